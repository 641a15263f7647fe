"""The models that the big tables share."""

from twinpass.config import PRESETS
from twinpass.recipes.recipe import quoted
from twinpass.recipes.subjects import (
    BERT,
    ROBERTA,
    ROBERTA_LARGE,
    Baseline,
    Fitted,
    Pooled,
    Raw,
    Subject,
    Trained,
    Words,
    supervised,
    unsupervised,
)
from twinpass.recipes.tables.table_1 import SIMCSE

SBERT_PAPER, IS_BERT_PAPER = "Reimers and Gurevych, 2019", "Zhang et al., 2020"
USE = quoted(
    "sup/use",
    "Universal Sentence Encoder",
    source=SBERT_PAPER,
    why="its training data was never released; any encoder can be judged with `twinpass evaluate`",
)
GLOVE = Words()
# The paper's row averages the embedding layer and the last; whitening and flow take the first layer and the last.
BERT_AVERAGE, BERT_FIRST_LAST = Raw(pooler="avg_embeddings_last"), Raw(pooler="avg_first_last")
ROBERTA_AVERAGE = Raw(pooler="avg_embeddings_last", encoder=ROBERTA)
ROBERTA_FIRST_LAST = Raw(pooler="avg_first_last", encoder=ROBERTA)
BERT_LAST, BERT_CLS = Raw(pooler="avg"), Raw(pooler="cls")
SBERT = Baseline(baseline="sbert", corpus="nli-labelled")
SROBERTA = Baseline(baseline="sbert", corpus="nli-labelled", encoder=ROBERTA)
# SBERT is trained with the mean of the last layer; layers are fitted to its first layer and its last (Appendix C).
SBERT_FIRST_LAST = Pooled(of=SBERT, pooler="avg_first_last")
SROBERTA_FIRST_LAST = Pooled(of=SROBERTA, pooler="avg_first_last")
IS_BERT = Baseline(baseline="isbert", corpus="wiki")
CT_BERT = Baseline(baseline="ct", corpus="wiki")
CT_SBERT = Baseline(baseline="ct", corpus="wiki", start=SBERT)
DECLUTR = Baseline(baseline="declutr", corpus="wiki-documents", encoder=ROBERTA)
INFERSENT = Baseline(baseline="infersent", corpus="nli-labelled")


def on_nli(layer: str, of: Subject) -> Fitted:
    """A layer fitted to NLI sentences."""
    return Fitted(of=of, layer="flow" if layer == "flow" else "whitening", on="nli")


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
NEXT_3 = unsupervised("wiki-documents", positive="next:3", view="pairs")


def with_mlm(simcse: Trained) -> Trained:
    """The same run with the MLM loss at the weight of Table E.1."""
    return Trained(run=simcse.run.replace(mlm_weight=0.1, track_geometry=None), corpus=simcse.corpus)


__all__ = [
    "BERT_AVERAGE",
    "BERT_CLS",
    "BERT_FIRST_LAST",
    "BERT_LAST",
    "CT_BERT",
    "CT_SBERT",
    "DECLUTR",
    "GLOVE",
    "INFERSENT",
    "IS_BERT",
    "NEXT_3",
    "ROBERTA_AVERAGE",
    "ROBERTA_FIRST_LAST",
    "SBERT",
    "SBERT_FIRST_LAST",
    "SIMCSE",
    "SIMCSE_ROBERTA",
    "SIMCSE_ROBERTA_LARGE",
    "SROBERTA",
    "SROBERTA_FIRST_LAST",
    "SUP_SIMCSE",
    "SUP_SIMCSE_ROBERTA",
    "SUP_SIMCSE_ROBERTA_LARGE",
    "on_nli",
    "preset",
    "with_mlm",
]
