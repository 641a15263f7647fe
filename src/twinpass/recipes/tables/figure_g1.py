"""Figure G.1: cosines of pairs, by how similar people find them."""

from twinpass.recipes.recipe import Recipe, one_model
from twinpass.recipes.tables import shared as m

RECIPE = Recipe(
    name="figure-g1",
    title="Cosines by gold score",
    measure="densities",
    columns={f"group{place}": f"gold {place} to {place + 1}" for place in range(5)},
    protocol="STS-B dev, median cosine of the pairs in each of five groups of gold score",
    rows=(
        one_model("bert", "Avg. BERT", m.BERT_AVERAGE),
        one_model("bert-whitening", "BERT-whitening", m.on_nli("whitening", m.BERT_FIRST_LAST)),
        one_model("simcse", "Unsup. SimCSE", m.SIMCSE),
        one_model("sbert", "SBERT", m.SBERT),
        one_model("sbert-whitening", "SBERT-whitening", m.on_nli("whitening", m.SBERT_FIRST_LAST)),
        one_model("sup-simcse", "Sup. SimCSE", m.SUP_SIMCSE),
    ),
    paper={},  # the paper draws it and prints no numbers
    figure="densities",
)
