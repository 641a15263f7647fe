"""Figure 2: the path between alignment and uniformity, every 10 steps of training."""

from twinpass.recipes.recipe import Recipe, one_model
from twinpass.recipes.tables.shared import DELETE_ONE, SIMCSE
from twinpass.recipes.tables.table_3 import FIXED, NO_DROPOUT

RECIPE = Recipe(
    name="figure-2",
    title="Alignment and uniformity during training",
    measure="trajectory",
    columns={"alignment": "alignment at the end", "uniformity": "uniformity at the end"},
    protocol="STS-B: pairs scored above 4 for alignment, all sentences for uniformity (t = 2)",
    rows=(
        one_model("fixed", "Fixed 0.1", FIXED),
        one_model("no-dropout", "No dropout", NO_DROPOUT),
        one_model("delete-one", "Delete one word", DELETE_ONE),
        one_model("simcse", "Unsup. SimCSE", SIMCSE),
    ),
    figure="trajectory",
)
