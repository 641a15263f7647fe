"""Table 2: unsupervised objectives, with one encoder and with two."""

from twinpass.recipes.recipe import Recipe, Row, Trained, unsupervised
from twinpass.recipes.tables.shared import DELETE_ONE, SIMCSE


def _both(key: str, label: str, one: Trained) -> Row:
    two = one.changed(dual_encoder=True, track_geometry=None)
    return Row(key=key, label=label, models={"one": one, "two": two})


RECIPE = Recipe(
    name="table-2",
    title="Unsupervised objectives",
    measure="stsb-dev",
    columns={"one": "one encoder", "two": "two encoders"},
    protocol="STS-B dev, Spearman x 100, no regressor",
    rows=(
        _both("next-1", "Next sentence", unsupervised("wiki-documents", positive="next:1", view="pairs")),
        _both("next-3", "Next 3 sentences", unsupervised("wiki-documents", positive="next:3", view="pairs")),
        _both("delete-one", "Delete one word", DELETE_ONE),
        _both("simcse", "Unsupervised SimCSE", SIMCSE),
    ),
    paper={"next-1": (67.1, 68.9), "next-3": (67.4, 68.8), "delete-one": (75.9, 73.1), "simcse": (82.5, 80.7)},
)
