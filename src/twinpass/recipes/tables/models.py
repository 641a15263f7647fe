"""The models that the big tables share."""

from twinpass.config import PRESETS
from twinpass.recipes.recipe import Row, one_subject, quoted
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

SBERT_PAPER, IS_BERT_PAPER = "Reimers and Gurevych, 2019", "Zhang et al., 2020"
USE = quoted(
    "sup/use",
    "Universal Sentence Encoder",
    source=SBERT_PAPER,
    why="its training data was never released; any encoder can be judged with `twinpass evaluate`",
)
GLOVE = Words()
# Followed every 10 steps, for Figure 2 shows the same runs.
SIMCSE = unsupervised(track_geometry=10)
DELETE_ONE = unsupervised(positive="delete-one", view="pairs", track_geometry=10)
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
# The row quoted is IS-BERT-NLI: the sentences of NLI without their labels.
IS_BERT = Baseline(baseline="is-bert", corpus="nli-sentences")
CT_BERT = Baseline(baseline="ct", corpus="wiki")
CT_SBERT = Baseline(baseline="ct", corpus="wiki", start=SBERT)
DECLUTR = Baseline(baseline="declutr", corpus="wiki-documents", encoder=ROBERTA)
INFERSENT = Baseline(baseline="infersent", corpus="nli-labelled")


def on_nli(layer: str, of: Subject) -> Fitted:
    """A layer fitted to NLI sentences."""
    return Fitted(of=of, layer="flow" if layer == "flow" else "whitening", on="nli")


def four_layers(key: str, label: str, of: Subject, *, source: str = "") -> tuple[Row, ...]:
    """Flow and whitening, each fitted to NLI sentences and to those that are judged; `label` has a place for it."""
    return tuple(
        one_subject(
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
NEXT_3 = unsupervised("wiki-documents", positive="next:3", view="pairs")


def with_mlm(simcse: Trained) -> Trained:
    """The same run with the MLM loss at the weight of Table E.1."""
    return Trained(run=simcse.run.replace(mlm_weight=0.1, track_geometry=None), corpus=simcse.corpus)
