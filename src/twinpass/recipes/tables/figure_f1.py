"""Figure F.1: singular values of the sentence vectors."""

from twinpass.recipes.recipe import Recipe, one_model
from twinpass.recipes.tables.shared import FIGURE_MODELS

RECIPE = Recipe(
    name="figure-f1",
    title="Singular values",
    measure="spectrum",
    columns={"tenth": "10th / 1st", "half": "values that hold half of the sum"},
    protocol="sentence vectors of all of STS-B, singular values divided by the largest",
    rows=tuple(one_model(*each) for each in FIGURE_MODELS),
    figure="spectrum",
)
