"""Figure G.1: cosines of pairs, by how similar people find them."""

from twinpass.recipes.recipe import Recipe, one_model
from twinpass.recipes.tables.shared import FIGURE_MODELS

RECIPE = Recipe(
    name="figure-g1",
    title="Cosines by gold score",
    measure="densities",
    columns={f"group{place}": f"gold {place} to {place + 1}" for place in range(5)},
    protocol="all of STS-B, median cosine of the pairs in each of five groups of gold score",
    rows=tuple(one_model(*each) for each in FIGURE_MODELS if "flow" not in each[0]),
    figure="densities",
)
