"""One file per table or figure; each holds a RECIPE."""

from __future__ import annotations

import importlib

from twinpass.recipes.recipe import RECIPES, Recipe
from twinpass.registry import Registry

MODULES = (
    *(f"table_{number}" for number in range(1, 9)),
    *("table_a1", "table_b1", "table_b2", "table_b3", "table_c1", "table_d1", "table_d2", "table_e1"),
    *("figure_2", "figure_3", "figure_f1", "figure_g1", "in_text", "after_simcse", "more_kinds"),
)


def load_recipes() -> Registry[Recipe]:
    """Return every recipe, in the paper's order."""
    if not len(RECIPES):
        for module in MODULES:
            recipe: Recipe = importlib.import_module(f"{__name__}.{module}").RECIPE
            RECIPES.add(recipe.name, recipe)
    return RECIPES
