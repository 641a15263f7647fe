"""Table 3: dropout rates, and one mask for both views."""

from twinpass.recipes.model_specs import unsupervised
from twinpass.recipes.recipe import Recipe, one_model
from twinpass.recipes.tables.shared import SIMCSE

NO_DROPOUT, FIXED = unsupervised(dropout=0.0), unsupervised(share_dropout_mask=True)

RECIPE = Recipe(
    name="table-3",
    title="Dropout rates",
    rows=(
        one_model("0.0", "p = 0.0", NO_DROPOUT, 71.1),
        one_model("0.01", "p = 0.01", unsupervised(dropout=0.01), 72.6),
        one_model("0.05", "p = 0.05", unsupervised(dropout=0.05), 81.1),
        one_model("0.1", "p = 0.1 (SimCSE)", SIMCSE, 82.5),
        one_model("0.15", "p = 0.15", unsupervised(dropout=0.15), 81.4),
        one_model("0.2", "p = 0.2", unsupervised(dropout=0.2), 80.5),
        one_model("0.5", "p = 0.5", unsupervised(dropout=0.5), 71.0),
        one_model("fixed", "Fixed 0.1", FIXED, 43.6),
    ),
)
