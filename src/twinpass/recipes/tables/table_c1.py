"""Table C.1: layers fitted to NLI sentences, or to the very sentences that are scored."""

from dataclasses import replace

from twinpass.recipes.recipe import Recipe, one_model
from twinpass.recipes.tables.shared import BERT_FIRST_LAST, SBERT_FIRST_LAST, STS_COLUMNS, four_layers, printed
from twinpass.recipes.tables.table_5 import RECIPE as TABLE_5

_LAYERS = printed(
    "C.1", *four_layers("bert", "BERT-{}", BERT_FIRST_LAST), *four_layers("sbert", "SBERT-{}", SBERT_FIRST_LAST)
)
# The rows without a layer are not in the paper's table. SBERT's numbers are Table 5's; BERT's there are of another
# pooler, so that row has none.
_BERT = replace(one_model("bert", "BERT (first-last avg.)", BERT_FIRST_LAST), extra=True)
_TABLE_5_SBERT = next(row for row in TABLE_5.rows if row.key == "sup/sbert")
_SBERT = replace(_TABLE_5_SBERT, key="sbert", label="SBERT (numbers of Table 5)", source="", extra=True)

RECIPE = Recipe(
    name="table-c1",
    title="Post-processing on NLI or on target sentences",
    measure="sts",
    columns=STS_COLUMNS,
    protocol="seven STS tasks, test, Spearman x 100, all, no regressor",
    rows=(_BERT, *_LAYERS[:4], _SBERT, *_LAYERS[4:]),
)
