"""Table 6: poolers."""

from twinpass.recipes.recipe import Recipe, Row, supervised, unsupervised
from twinpass.recipes.tables.shared import SIMCSE


def _pooled(key: str, label: str, pooler: str) -> Row:
    unsup = SIMCSE if pooler == SIMCSE.run.pooler else unsupervised(pooler=pooler)
    return Row(key=key, label=label, models={"unsup": unsup, "sup": supervised(pooler=pooler)})


RECIPE = Recipe(
    name="table-6",
    title="Poolers",
    measure="stsb-dev",
    columns={"unsup": "Unsup.", "sup": "Sup."},
    protocol="STS-B dev, Spearman x 100, no regressor",
    rows=(
        _pooled("cls-mlp", "[CLS] w/ MLP", "cls_mlp"),
        _pooled("cls-mlp-train", "[CLS] w/ MLP (train)", "cls_mlp_train"),
        _pooled("cls", "[CLS] w/o MLP", "cls"),
        _pooled("first-last", "First-last avg.", "avg_first_last"),
    ),
    paper={"cls-mlp": (81.7, 86.2), "cls-mlp-train": (82.5, 85.8), "cls": (80.9, 86.2), "first-last": (81.2, 86.1)},
)
