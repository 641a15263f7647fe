"""Table 2: unsupervised objectives, with one encoder and with two."""

from twinpass.recipes.model_specs import Trained, unsupervised
from twinpass.recipes.recipe import Recipe, Row
from twinpass.recipes.tables.shared import DELETE_ONE, NEXT_3, SIMCSE

NEXT_1 = unsupervised("wiki-documents", positive="next:1", view="pairs")


def _both(key: str, label: str, one: Trained, *paper: float) -> Row:
    two = one.changed(dual_encoder=True)
    return Row(key=key, label=label, models={"one": one, "two": two}, paper=paper)


RECIPE = Recipe(
    name="table-2",
    title="Unsupervised objectives",
    columns={"one": "one encoder", "two": "two encoders"},
    rows=(
        _both("next-1", "Next sentence", NEXT_1, 67.1, 68.9),
        _both("next-3", "Next 3 sentences", NEXT_3, 67.4, 68.8),
        _both("delete-one", "Delete one word", DELETE_ONE, 75.9, 73.1),
        _both("simcse", "Unsupervised SimCSE", SIMCSE, 82.5, 80.7),
    ),
)
