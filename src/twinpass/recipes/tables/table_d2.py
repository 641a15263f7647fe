"""Table D.2: the masked-language-model loss beside the contrastive one."""

from twinpass.recipes.model_specs import supervised
from twinpass.recipes.recipe import Recipe, one_model

RECIPE = Recipe(
    name="table-d2",
    title="The MLM auxiliary objective",
    measure="dev",
    columns={"stsb": "STS-B", "transfer": "Avg. transfer"},
    protocol="STS-B dev, Spearman x 100; transfer: mean dev accuracy of the seven tasks, per cent",
    rows=(
        one_model("none", "w/o MLM", supervised(), 86.2, 85.8),
        *(
            one_model(key, f"w/ MLM, lambda = {key}", supervised(mlm_weight=float(key)), *paper)
            for key, paper in {"0.01": (85.7, 86.1), "0.1": (85.7, 86.2), "1": (85.1, 85.8)}.items()
        ),
    ),
)
