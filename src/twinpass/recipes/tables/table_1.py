"""Table 1: discrete augmentations against dropout alone."""

from twinpass.recipes.recipe import Recipe, one_model, unsupervised
from twinpass.recipes.tables.shared import DELETE_ONE, SIMCSE

RECIPE = Recipe(
    name="table-1",
    title="Data augmentations (unsupervised)",
    measure="stsb-dev",
    columns={"stsb": "STS-B"},
    protocol="STS-B dev, Spearman x 100, no regressor",
    rows=(
        one_model("none", "None (unsup. SimCSE)", SIMCSE),
        *(
            one_model(f"crop-{k}", f"Crop {k} %", unsupervised(positive=f"crop:{k}", view="pairs"))
            for k in (10, 20, 30)
        ),
        *(
            one_model(f"delete-{k}", f"Word deletion {k} %", unsupervised(positive=f"delete:{k}", view="pairs"))
            for k in (10, 20, 30)
        ),
        one_model("delete-one", "Delete one word", DELETE_ONE),
        one_model(
            "delete-one-no-dropout",
            "Delete one word, w/o dropout",
            unsupervised(positive="delete-one", view="pairs", dropout=0.0),
        ),
        one_model("synonym", "Synonym replacement", unsupervised(positive="synonym", view="pairs")),
        one_model("mlm-15", "MLM 15 %", unsupervised(positive="mlm:15", view="pairs")),
    ),
    paper={
        "none": (82.5,),
        "crop-10": (77.8,),
        "crop-20": (71.4,),
        "crop-30": (63.6,),
        "delete-10": (75.9,),
        "delete-20": (72.2,),
        "delete-30": (68.2,),
        "delete-one": (75.9,),
        "delete-one-no-dropout": (74.2,),
        "synonym": (77.4,),
        "mlm-15": (62.2,),
    },
)
