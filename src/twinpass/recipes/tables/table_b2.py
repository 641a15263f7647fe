"""Table B.2: one model by two protocols, beside what its authors printed."""

from twinpass.recipes.model_specs import Fitted, ModelSpec
from twinpass.recipes.recipe import ALL, Recipe, Row, quoted
from twinpass.recipes.tables.shared import BERT_FIRST_LAST, SBERT, STS_COLUMNS, printed

_MEASURES = {"all": "sts", "wmean": "sts-wmean"}
NLI = Fitted(of=BERT_FIRST_LAST, layer="whitening", on="nli")
TARGET = Fitted(of=BERT_FIRST_LAST, layer="whitening", on="target")


def _row(key: str, label: str, model: ModelSpec, aggregation: str) -> Row:
    return Row(key=key, label=label, models={ALL: model}, measure=_MEASURES[aggregation])


def _quoted(key: str, label: str, source: str) -> Row:
    return quoted(key, label, source=source, why="printed by the method's own authors")


RECIPE = Recipe(
    name="table-b2",
    title="Which protocol did they use?",
    measure="sts",
    columns=STS_COLUMNS,
    protocol="seven STS tasks, test, Spearman x 100, no regressor, aggregated as each row says",
    rows=printed(
        "B.2",
        _row("sbert-all", "SBERT (all)", SBERT, "all"),
        _row("sbert-wmean", "SBERT (wmean)", SBERT, "wmean"),
        _quoted("sbert-printed", "SBERT, as printed", "Reimers and Gurevych, 2019"),
        _row("nli-all", "BERT-whitening (NLI, all)", NLI, "all"),
        _row("nli-wmean", "BERT-whitening (NLI, wmean)", NLI, "wmean"),
        _quoted("nli-printed", "BERT-whitening (NLI), as printed", "Su et al., 2021"),
        _row("target-all", "BERT-whitening (target, all)", TARGET, "all"),
        _row("target-wmean", "BERT-whitening (target, wmean)", TARGET, "wmean"),
        _quoted("target-printed", "BERT-whitening (target), as printed", "Su et al., 2021"),
    ),
)
