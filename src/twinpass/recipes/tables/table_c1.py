"""Table C.1: layers fitted to NLI sentences, or to the very sentences that are scored."""

from twinpass.recipes.recipe import Recipe, one_model
from twinpass.recipes.tables.shared import BERT_FIRST_LAST, SBERT, SBERT_FIRST_LAST, STS_COLUMNS, four_layers, published
from twinpass.recipes.tables.table_5 import RECIPE as TABLE_5

_BERT, _SBERT = one_model("bert", "BERT (first-last avg.)", BERT_FIRST_LAST), one_model("sbert", "SBERT", SBERT)
_BERT_LAYERS = four_layers("bert", "BERT-{}", BERT_FIRST_LAST)
_SBERT_LAYERS = four_layers("sbert", "SBERT-{}", SBERT_FIRST_LAST)

RECIPE = Recipe(
    name="table-c1",
    title="Post-processing on NLI or on target sentences",
    measure="sts",
    columns=STS_COLUMNS,
    protocol="seven STS tasks, test, Spearman x 100, all, no regressor",
    rows=(_BERT, *_BERT_LAYERS, _SBERT, *_SBERT_LAYERS),
    # The rows without a layer are not in the paper's table. SBERT's numbers are Table 5's; BERT's there are of another
    # pooler, so that row has none.
    paper=published("C.1", [*_BERT_LAYERS, *_SBERT_LAYERS])
    | {"bert": (None,) * len(STS_COLUMNS), "sbert": TABLE_5.paper["sup/sbert"]},
)
