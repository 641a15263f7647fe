"""Table 7: hard negatives and their weight (Eq. 8)."""

from twinpass.recipes.model_specs import supervised
from twinpass.recipes.recipe import Recipe, one_model

RECIPE = Recipe(
    name="table-7",
    title="Hard negatives",
    rows=(
        one_model("none", "no hard negative", supervised("nli-entailment", view="pairs"), 84.9),
        one_model("0.5", "Contradiction, alpha 0.5", supervised(hard_negative_weight=0.5), 86.1),
        one_model("1.0", "Contradiction, alpha 1.0", supervised(), 86.2),
        one_model("2.0", "Contradiction, alpha 2.0", supervised(hard_negative_weight=2.0), 86.2),
        # One of a premise's contradictions and neutral hypotheses, drawn with equal chances.
        one_model("both", "Contra. + neutral, alpha 1.0", supervised("nli-triplets-both"), 85.3),
    ),
)
