"""The models that several tables of the paper share."""

from twinpass.config import PRESETS
from twinpass.recipes.recipe import (
    Baseline,
    Fitted,
    Layer,
    ModelSpec,
    Pooled,
    Raw,
    Trained,
    Words,
    supervised,
    unsupervised,
)
from twinpass.recipes.scales import BERT, ROBERTA, ROBERTA_LARGE

# Tracked every 10 steps: Figure 2 shows these runs.
SIMCSE = unsupervised(track_geometry=10)
DELETE_ONE = unsupervised(positive="delete-one", view="pairs", track_geometry=10)
NO_DROPOUT = unsupervised(dropout=0.0, track_geometry=10)
FIXED_DROPOUT = unsupervised(share_dropout_mask=True, track_geometry=10)
NEXT_1 = unsupervised("wiki-documents", positive="next:1", view="pairs")
NEXT_3 = unsupervised("wiki-documents", positive="next:3", view="pairs")
GLOVE = Words()
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
IS_BERT = Baseline(baseline="is-bert", corpus="nli-sentences")
CT_BERT = Baseline(baseline="ct", corpus="wiki")
CT_SBERT = Baseline(baseline="ct", corpus="wiki", start=SBERT)
DECLUTR = Baseline(baseline="declutr", corpus="wiki-documents", start=Raw(encoder=ROBERTA))
INFERSENT = Baseline(baseline="infersent", corpus="nli-labelled", start=GLOVE)


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


def with_mlm(simcse: Trained) -> Trained:
    """The same run with the MLM loss at the weight of Table E.1."""
    return simcse.changed(mlm_weight=0.1, track_geometry=None)


def on_nli(layer: Layer, of: ModelSpec) -> Fitted:
    """A layer fitted to NLI sentences."""
    return Fitted(of=of, layer=layer, on="nli")


def on_target(layer: Layer, of: ModelSpec) -> Fitted:
    """A layer fitted to the sentences that are scored."""
    return Fitted(of=of, layer=layer, on="target")
