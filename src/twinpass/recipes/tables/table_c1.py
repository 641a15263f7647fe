"""Table C.1: layers fitted to NLI sentences, or to the very sentences that are judged."""

from twinpass.recipes.recipe import Recipe, Row, one_subject
from twinpass.recipes.subjects import Fitted, Subject
from twinpass.recipes.tables.models import BERT_FIRST_LAST, SBERT, SBERT_FIRST_LAST
from twinpass.recipes.tables.published import STS_COLUMNS, by_key


def _family(name: str, of: Subject) -> tuple[Row, ...]:
    return tuple(
        one_subject(
            f"{name.lower()}-{layer}-{on}",
            f"{name}-{layer} ({'NLI' if on == 'nli' else on})",
            Fitted(of=of, layer=layer, on=on),
        )
        for layer in ("flow", "whitening")
        for on in ("nli", "target")
    )


_KEYS = "{0}-flow-nli {0}-flow-target {0}-whitening-nli {0}-whitening-target"

RECIPE = Recipe(
    name="table-c1",
    title="Post-processing on NLI or on target sentences",
    measure="sts",
    columns=STS_COLUMNS,
    protocol="seven STS tasks, test, Spearman x 100, all, no regressor",
    rows=(
        one_subject("bert", "BERT (first-last avg.)", BERT_FIRST_LAST),
        *_family("BERT", BERT_FIRST_LAST),
        one_subject("sbert", "SBERT", SBERT),
        *_family("SBERT", SBERT_FIRST_LAST),
    ),
    # The rows without a layer are not in the paper's table. SBERT's numbers are Table 5's; BERT's there are of another
    # pooler, so that row has none.
    paper=by_key("C.1", f"{_KEYS.format('bert')} {_KEYS.format('sbert')}")
    | {
        "bert": (None,) * len(STS_COLUMNS),
        "sbert": (70.97, 76.53, 73.19, 79.09, 74.30, 77.03, 72.91, 74.89),
    },
)
