"""Figure 3: models between alignment and uniformity, with their average STS."""

from twinpass.recipes.recipe import Recipe, one_model
from twinpass.recipes.tables import shared as m
from twinpass.recipes.tables.shared import averages

_AVERAGES = averages(
    "5",
    {
        "bert": ("unsupervised", "BERT-base (first-last avg.)"),
        "bert-flow": ("unsupervised", "BERT-base-flow"),
        "bert-whitening": ("unsupervised", "BERT-base-whitening"),
        "simcse": ("unsupervised", "SimCSE-BERT-base"),
        "sbert": ("supervised", "SBERT-base"),
        "sbert-flow": ("supervised", "SBERT-base-flow"),
        "sbert-whitening": ("supervised", "SBERT-base-whitening"),
        "sup-simcse": ("supervised", "SimCSE-BERT-base"),
    },
)

RECIPE = Recipe(
    name="figure-3",
    title="Alignment, uniformity and average STS",
    measure="geometry",
    columns={"alignment": "alignment", "uniformity": "uniformity", "avg": "Avg. STS"},
    protocol="alignment and uniformity on STS-B dev; Avg. of seven STS tasks, Spearman x 100, all, no regressor",
    rows=(
        one_model("bert", "Avg. BERT", m.BERT_AVERAGE),
        one_model("bert-flow", "BERT-flow", m.on_nli("flow", m.BERT_FIRST_LAST)),
        one_model("bert-whitening", "BERT-whitening", m.on_nli("whitening", m.BERT_FIRST_LAST)),
        one_model("next-3", "Next3Sent", m.NEXT_3),
        one_model("simcse", "Unsup. SimCSE", m.SIMCSE),
        one_model("sbert", "SBERT", m.SBERT),
        one_model("sbert-flow", "SBERT-flow", m.on_nli("flow", m.SBERT_FIRST_LAST)),
        one_model("sbert-whitening", "SBERT-whitening", m.on_nli("whitening", m.SBERT_FIRST_LAST)),
        one_model("sup-simcse", "Sup. SimCSE", m.SUP_SIMCSE),
    ),
    # The paper prints averages only, and that of Next3Sent in the figure alone.
    paper={key: (None, None, value) for key, value in _AVERAGES.items()} | {"next-3": (None, None, None)},
    figure="geometry",
)
