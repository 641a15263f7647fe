"""Table 6: poolers."""

from dataclasses import replace

from twinpass.recipes.model_specs import supervised, unsupervised
from twinpass.recipes.recipe import Recipe, Row
from twinpass.recipes.tables.shared import SIMCSE


def _pooled(key: str, label: str, pooler: str, *paper: float) -> Row:
    unsup = SIMCSE if pooler == SIMCSE.run.pooler else unsupervised(pooler=pooler)
    models = {"unsup": unsup, "sup": supervised(pooler=pooler)}
    kept = {column: replace(model, keeps_pooler=True) for column, model in models.items()}
    return Row(key=key, label=label, models=kept, paper=paper)


RECIPE = Recipe(
    name="table-6",
    title="Poolers",
    columns={"unsup": "Unsup.", "sup": "Sup."},
    rows=(
        _pooled("cls-mlp", "[CLS] w/ MLP", "cls_mlp", 81.7, 86.2),
        _pooled("cls-mlp-train", "[CLS] w/ MLP (train)", "cls_mlp_train", 82.5, 85.8),
        _pooled("cls", "[CLS] w/o MLP", "cls", 80.9, 86.2),
        _pooled("first-last", "First-last avg.", "avg_first_last", 81.2, 86.1),
    ),
)
