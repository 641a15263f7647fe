"""Table D.1: the dot product, and the cosine at several temperatures."""

from twinpass.recipes.model_specs import supervised
from twinpass.recipes.recipe import Recipe, one_model

RECIPE = Recipe(
    name="table-d1",
    title="Normalisation and temperature",
    rows=(
        one_model("dot", "dot product", supervised(similarity="dot"), 85.9),
        *(
            one_model(key, f"cosine, tau = {key}", supervised(temperature=float(key)), paper)
            for key, paper in {"0.001": 84.9, "0.01": 85.4, "0.05": 86.2, "0.1": 82.0, "1": 64.0}.items()
        ),
    ),
)
