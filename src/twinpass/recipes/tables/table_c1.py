"""Table C.1: layers fitted to NLI sentences, or to the very sentences that are judged."""

from twinpass.recipes.recipe import Recipe, one_subject
from twinpass.recipes.tables.models import BERT_FIRST_LAST, SBERT, SBERT_FIRST_LAST, four_layers
from twinpass.recipes.tables.published import STS_COLUMNS, by_key
from twinpass.recipes.tables.table_5 import RECIPE as TABLE_5

_KEYS = "{0}-flow-nli {0}-flow-target {0}-whitening-nli {0}-whitening-target"

RECIPE = Recipe(
    name="table-c1",
    title="Post-processing on NLI or on target sentences",
    measure="sts",
    columns=STS_COLUMNS,
    protocol="seven STS tasks, test, Spearman x 100, all, no regressor",
    rows=(
        one_subject("bert", "BERT (first-last avg.)", BERT_FIRST_LAST),
        *four_layers("bert", "BERT-{}", BERT_FIRST_LAST),
        one_subject("sbert", "SBERT", SBERT),
        *four_layers("sbert", "SBERT-{}", SBERT_FIRST_LAST),
    ),
    # The rows without a layer are not in the paper's table. SBERT's numbers are Table 5's; BERT's there are of another
    # pooler, so that row has none.
    paper=by_key("C.1", f"{_KEYS.format('bert')} {_KEYS.format('sbert')}")
    | {"bert": (None,) * len(STS_COLUMNS), "sbert": TABLE_5.paper["sup/sbert"]},
)
