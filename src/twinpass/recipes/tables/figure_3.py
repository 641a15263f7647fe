"""Figure 3: models between alignment and uniformity, with their average STS."""

from twinpass.recipes.recipe import ALL, Recipe, one_model
from twinpass.recipes.tables.shared import FIGURE_MODELS, NEXT_3
from twinpass.recipes.tables.table_5 import RECIPE as TABLE_5

# The figure prints the averages: those of Table 5, with one decimal, and that of Next3Sent.
_AVERAGES = {row.models[ALL]: row.paper[-1] for row in TABLE_5.rows if row.models and row.paper} | {NEXT_3: 63.1}

RECIPE = Recipe(
    name="figure-3",
    title="Alignment, uniformity and average STS",
    measure="geometry",
    columns={"alignment": "alignment", "uniformity": "uniformity", "avg": "Avg. STS"},
    protocol="alignment and uniformity on all of STS-B; Avg. of seven STS tasks, Spearman x 100, all, no regressor",
    rows=tuple(
        one_model(key, label, model, None, None, _AVERAGES.get(model))
        for key, label, model in (*FIGURE_MODELS[:3], ("next-3", "Next3Sent", NEXT_3), *FIGURE_MODELS[3:])
    ),
    figure="geometry",
)
