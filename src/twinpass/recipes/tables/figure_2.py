"""Figure 2: the path between alignment and uniformity, every 10 steps of training."""

from twinpass.recipes.model_specs import Trained
from twinpass.recipes.recipe import Recipe, Row, one_model
from twinpass.recipes.tables.shared import DELETE_ONE, SIMCSE
from twinpass.recipes.tables.table_3 import FIXED, NO_DROPOUT


def _followed(key: str, label: str, model: Trained) -> Row:
    # Runs of its own: at the paper's scale, following a training on all of STS-B takes longer than the training.
    return one_model(key, label, model.changed(track_geometry=10))


RECIPE = Recipe(
    name="figure-2",
    title="Alignment and uniformity during training",
    measure="trajectory",
    columns={"alignment": "alignment at the end", "uniformity": "uniformity at the end"},
    protocol="STS-B's pairs scored above 4 for alignment, its sentences for uniformity (t = 2)",
    rows=(
        _followed("fixed", "Fixed 0.1", FIXED),
        _followed("no-dropout", "No dropout", NO_DROPOUT),
        _followed("delete-one", "Delete one word", DELETE_ONE),
        _followed("simcse", "Unsup. SimCSE", SIMCSE),
    ),
    figure="trajectory",
)
