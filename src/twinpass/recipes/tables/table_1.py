"""Table 1: discrete augmentations against dropout alone."""

from twinpass.recipes.model_specs import unsupervised
from twinpass.recipes.recipe import Recipe, Row, one_model
from twinpass.recipes.tables.shared import DELETE_ONE, SIMCSE


def _augmented(key: str, label: str, positive: str, paper: float, dropout: float | None = None) -> Row:
    return one_model(key, label, unsupervised(positive=positive, view="pairs", dropout=dropout), paper)


RECIPE = Recipe(
    name="table-1",
    title="Data augmentations (unsupervised)",
    rows=(
        one_model("none", "None (unsup. SimCSE)", SIMCSE, 82.5),
        _augmented("crop-10", "Crop 10 %", "crop:10", 77.8),
        _augmented("crop-20", "Crop 20 %", "crop:20", 71.4),
        _augmented("crop-30", "Crop 30 %", "crop:30", 63.6),
        _augmented("delete-10", "Word deletion 10 %", "delete:10", 75.9),
        _augmented("delete-20", "Word deletion 20 %", "delete:20", 72.2),
        _augmented("delete-30", "Word deletion 30 %", "delete:30", 68.2),
        one_model("delete-one", "Delete one word", DELETE_ONE, 75.9),
        _augmented("delete-one-no-dropout", "Delete one word, w/o dropout", "delete-one", 74.2, dropout=0.0),
        _augmented("synonym", "Synonym replacement", "synonym", 77.4),
        _augmented("mlm-15", "MLM 15 %", "mlm:15", 62.2),
    ),
)
