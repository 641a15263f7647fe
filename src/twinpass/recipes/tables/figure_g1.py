"""Figure G.1: cosines of pairs, by how similar people find them."""

from twinpass.recipes.recipe import Recipe, one_subject
from twinpass.recipes.tables import models as m

RECIPE = Recipe(
    name="figure-g1",
    title="Cosines by gold score",
    measure="densities",
    columns={f"group{place}": f"gold {place} to {place + 1}" for place in range(5)},
    protocol="STS-B dev, median cosine of the pairs in each of five groups of gold score",
    rows=(
        one_subject("bert", "Avg. BERT", m.BERT_AVERAGE),
        one_subject("bert-whitening", "BERT-whitening", m.on_nli("whitening", m.BERT_FIRST_LAST)),
        one_subject("simcse", "Unsup. SimCSE", m.SIMCSE),
        one_subject("sbert", "SBERT", m.SBERT),
        one_subject("sbert-whitening", "SBERT-whitening", m.on_nli("whitening", m.SBERT_FIRST_LAST)),
        one_subject("sup-simcse", "Sup. SimCSE", m.SUP_SIMCSE),
    ),
    paper={},  # the paper draws it and prints no numbers
    figure="densities",
)
