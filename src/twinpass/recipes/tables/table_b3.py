"""Table B.3: the seven STS tasks with subsets weighted by size."""

from twinpass.recipes.recipe import Recipe, Row, one_subject
from twinpass.recipes.subjects import Subject
from twinpass.recipes.tables.models import BERT_FIRST_LAST, SBERT_FIRST_LAST, SIMCSE, SUP_SIMCSE, four_layers
from twinpass.recipes.tables.published import STS_COLUMNS, by_key

_SOURCE = "Li et al., 2020; Su et al., 2021"


def _family(key: str, label: str, of: Subject) -> tuple[Row, ...]:
    raw = one_subject(key, f"{label} (first-last avg.)", of, source=_SOURCE)
    return (raw, *four_layers(key, "  + {}", of, source=_SOURCE))


RECIPE = Recipe(
    name="table-b3",
    title="STS tasks, wmean",
    measure="sts-wmean",
    columns=STS_COLUMNS,
    protocol="seven STS tasks, test, Spearman x 100, wmean, no regressor",
    rows=(
        *_family("bert", "BERT-base", BERT_FIRST_LAST),
        one_subject("unsup-simcse", "Unsup. SimCSE-BERT-base", SIMCSE),
        *_family("sbert", "SBERT-base", SBERT_FIRST_LAST),
        one_subject("sup-simcse", "Sup. SimCSE-BERT-base", SUP_SIMCSE),
    ),
    paper=by_key(
        "B.3",
        "bert bert-flow-nli bert-flow-target bert-whitening-nli bert-whitening-target unsup-simcse "
        "sbert sbert-flow-nli sbert-flow-target sbert-whitening-nli sbert-whitening-target sup-simcse",
    ),
)
