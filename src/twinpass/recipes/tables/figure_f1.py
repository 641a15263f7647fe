"""Figure F.1: singular values of the sentence vectors."""

from twinpass.recipes.recipe import Recipe, one_model
from twinpass.recipes.tables import shared as m

RECIPE = Recipe(
    name="figure-f1",
    title="Singular values",
    measure="spectrum",
    columns={"tenth": "10th / 1st", "half": "values that hold half of the sum"},
    protocol="sentence vectors of STS-B dev, singular values divided by the largest",
    rows=(
        one_model("bert", "Avg. BERT", m.BERT_AVERAGE),
        one_model("bert-flow", "BERT-flow", m.on_nli("flow", m.BERT_FIRST_LAST)),
        one_model("bert-whitening", "BERT-whitening", m.on_nli("whitening", m.BERT_FIRST_LAST)),
        one_model("simcse", "Unsup. SimCSE", m.SIMCSE),
        one_model("sbert", "SBERT", m.SBERT),
        one_model("sbert-flow", "SBERT-flow", m.on_nli("flow", m.SBERT_FIRST_LAST)),
        one_model("sbert-whitening", "SBERT-whitening", m.on_nli("whitening", m.SBERT_FIRST_LAST)),
        one_model("sup-simcse", "Sup. SimCSE", m.SUP_SIMCSE),
    ),
    paper={},  # the paper draws it and prints no numbers
    figure="spectrum",
)
