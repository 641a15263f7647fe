"""What several tables share: models, columns, and the numbers that `evaluation.protocols` holds."""

from dataclasses import replace

from twinpass.config import PRESETS
from twinpass.evaluation.protocols import PUBLISHED
from twinpass.recipes.model_specs import (
    Baseline,
    Fitted,
    ModelSpec,
    Pooled,
    Raw,
    Trained,
    Words,
    supervised,
    unsupervised,
)
from twinpass.recipes.recipe import Row, one_model, quoted
from twinpass.recipes.scales import BERT, ROBERTA, ROBERTA_LARGE

STS_COLUMNS = {f"sts{year}": f"STS{year}" for year in range(12, 17)}
STS_COLUMNS |= {"stsb": "STS-B", "sickr": "SICK-R", "avg": "Avg."}
TRANSFER_COLUMNS = {name.lower(): name for name in ("MR", "CR", "SUBJ", "MPQA")}
TRANSFER_COLUMNS |= {"sst2": "SST", "trec": "TREC", "mrpc": "MRPC", "avg": "Avg."}

SBERT_PAPER, IS_BERT_PAPER = "Reimers and Gurevych, 2019", "Zhang et al., 2020"
USE = quoted(
    "sup/use",
    "Universal Sentence Encoder",
    source=SBERT_PAPER,
    why="its training data was never released; any encoder can be evaluated with `twinpass evaluate`",
)
# SBERT's paper, whose rows are quoted, leaves out stop words for STS. Its transfer scores cannot be of such vectors:
# without "who", "where" and "how", TREC falls by 13 points, far below the 83.0 that it prints.
GLOVE, GLOVE_ALL_WORDS = Words(pooler="avg_content"), Words()
SIMCSE = unsupervised()
DELETE_ONE = unsupervised(positive="delete-one", view="pairs")
# The paper's row averages the embedding layer and the last; whitening and flow take the first layer and the last.
BERT_AVERAGE, BERT_FIRST_LAST = Raw(pooler="avg_embeddings_last"), Raw(pooler="avg_first_last")
ROBERTA_AVERAGE = Raw(pooler="avg_embeddings_last", encoder=ROBERTA)
ROBERTA_FIRST_LAST = Raw(pooler="avg_first_last", encoder=ROBERTA)
BERT_LAST, BERT_CLS = Raw(pooler="avg"), Raw(pooler="cls")
SBERT = Baseline(baseline="sbert", corpus="nli-labelled")
SROBERTA = Baseline(baseline="sbert", corpus="nli-labelled", start=Raw(encoder=ROBERTA))
# SBERT is trained with the mean of the last layer; layers are fitted to its first layer and its last (Appendix C).
SBERT_FIRST_LAST = Pooled(of=SBERT, pooler="avg_first_last")
SROBERTA_FIRST_LAST = Pooled(of=SROBERTA, pooler="avg_first_last")
# The row quoted is IS-BERT-NLI: the sentences of NLI without their labels.
IS_BERT = Baseline(baseline="is-bert", corpus="nli-training-sentences")
CT_BERT = Baseline(baseline="ct", corpus="wiki")
CT_SBERT = Baseline(baseline="ct", corpus="wiki", start=SBERT)
DECLUTR = Baseline(baseline="declutr", corpus="wiki-documents", start=Raw(encoder=ROBERTA))
INFERSENT = Baseline(baseline="infersent", corpus="nli-labelled", start=GLOVE_ALL_WORDS)


def extra_glove(words: str, model: Words) -> Row:
    """The row of GloVe with the other choice of words, which the paper's table does not have."""
    return replace(one_model("unsup/glove-other", f"GloVe embeddings, {words}", model), extra=True)


def on_nli(layer: str, of: ModelSpec) -> Fitted:
    """A layer fitted to NLI sentences."""
    return Fitted(of=of, layer="flow" if layer == "flow" else "whitening", on="nli")


def four_layers(key: str, label: str, of: ModelSpec, *, source: str = "") -> tuple[Row, ...]:
    """Flow and whitening, each fitted to NLI sentences and to those that are scored; `label` has a place for it."""
    return tuple(
        one_model(
            f"{key}-{layer}-{on}",
            label.format(f"{layer} ({'NLI' if on == 'nli' else on})"),
            Fitted(of=of, layer=layer, on=on),
            source=source,
        )
        for layer in ("flow", "whitening")
        for on in ("nli", "target")
    )


def preset(name: str, model: str) -> Trained:
    """SimCSE by a column of Table A.1."""
    make = unsupervised if name.startswith("unsup") else supervised
    usual = PRESETS[name]
    return make(model=model, batch_size=usual.batch_size, learning_rate=usual.learning_rate)


SIMCSE_ROBERTA = preset("unsup-roberta-base", ROBERTA)
SIMCSE_ROBERTA_LARGE = preset("unsup-roberta-large", ROBERTA_LARGE)
SUP_SIMCSE = preset("sup-base", BERT)
SUP_SIMCSE_ROBERTA = preset("sup-base", ROBERTA)
SUP_SIMCSE_ROBERTA_LARGE = preset("sup-large", ROBERTA_LARGE)
# Batches of the two texts take turns; and each row with every contradiction that the NLI text has of its premise.
NLI_AND_WIKI = replace(SUP_SIMCSE, also="wiki")
CONTRADICTIONS = supervised("nli-triplets-all")
NEXT_3 = unsupervised("wiki-documents", positive="next:3", view="pairs")
# Key, label and model of the rows of Figures 3, F.1 and G.1.
FIGURE_MODELS = (
    ("bert", "Avg. BERT", BERT_AVERAGE),
    ("bert-flow", "BERT-flow", on_nli("flow", BERT_FIRST_LAST)),
    ("bert-whitening", "BERT-whitening", on_nli("whitening", BERT_FIRST_LAST)),
    ("simcse", "Unsup. SimCSE", SIMCSE),
    ("sbert", "SBERT", SBERT),
    ("sbert-flow", "SBERT-flow", on_nli("flow", SBERT_FIRST_LAST)),
    ("sbert-whitening", "SBERT-whitening", on_nli("whitening", SBERT_FIRST_LAST)),
    ("sup-simcse", "Sup. SimCSE", SUP_SIMCSE),
)


def with_mlm(simcse: Trained) -> Trained:
    """The same run with the MLM loss at the weight of Table E.1."""
    return simcse.changed(mlm_weight=0.1)


def printed(table: str, *rows: Row) -> tuple[Row, ...]:
    """Return rows with the numbers that a table prints; they are in its order, and extra rows have none."""
    numbers = [tuple(row.values) for row in PUBLISHED if row.table == table]
    if len(numbers) != sum(not row.extra for row in rows):
        raise ValueError(f"Table {table} prints {len(numbers)} rows")
    left = iter(numbers)
    return tuple(row if row.extra else replace(row, paper=next(left)) for row in rows)
