"""Table B.3: the seven STS tasks with subsets weighted by size."""

from twinpass.recipes.model_specs import ModelSpec
from twinpass.recipes.recipe import Recipe, Row, one_model
from twinpass.recipes.tables.shared import (
    BERT_FIRST_LAST,
    SBERT_FIRST_LAST,
    SIMCSE,
    STS_COLUMNS,
    SUP_SIMCSE,
    four_layers,
    printed,
)

_SOURCE = "Li et al., 2020; Su et al., 2021"


def _family(key: str, label: str, of: ModelSpec) -> tuple[Row, ...]:
    raw = one_model(key, f"{label} (first-last avg.)", of, source=_SOURCE)
    return (raw, *four_layers(key, f"{label} + {{}}", of, source=_SOURCE))


RECIPE = Recipe(
    name="table-b3",
    title="STS tasks, wmean",
    measure="sts-wmean",
    columns=STS_COLUMNS,
    protocol="seven STS tasks, test, Spearman x 100, wmean, no regressor",
    rows=printed(
        "B.3",
        *_family("bert", "BERT-base", BERT_FIRST_LAST),
        one_model("unsup-simcse", "Unsup. SimCSE-BERT-base", SIMCSE),
        *_family("sbert", "SBERT-base", SBERT_FIRST_LAST),
        one_model("sup-simcse", "Sup. SimCSE-BERT-base", SUP_SIMCSE),
    ),
)
