"""Table 7: hard negatives and their weight (Eq. 8)."""

from twinpass.recipes.recipe import Recipe, one_model, supervised

RECIPE = Recipe(
    name="table-7",
    title="Hard negatives",
    measure="stsb-dev",
    columns={"stsb": "STS-B"},
    protocol="STS-B dev, Spearman x 100, no regressor",
    rows=(
        one_model("none", "no hard negative", supervised("nli-entailment", view="pairs")),
        one_model("0.5", "Contradiction, alpha 0.5", supervised(hard_negative_weight=0.5)),
        one_model("1.0", "Contradiction, alpha 1.0", supervised()),
        one_model("2.0", "Contradiction, alpha 2.0", supervised(hard_negative_weight=2.0)),
        # One of a premise's contradictions and neutral hypotheses, drawn with equal chances.
        one_model("both", "Contra. + neutral, alpha 1.0", supervised("nli-triplets-both")),
    ),
    paper={"none": (84.9,), "0.5": (86.1,), "1.0": (86.2,), "2.0": (86.2,), "both": (85.3,)},
)
