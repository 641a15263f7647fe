"""Every table and figure of the paper as a recipe, in the paper's order."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from twinpass.evaluation.protocols import PAPERS
from twinpass.evaluation.published import PUBLISHED
from twinpass.recipes import models as m
from twinpass.recipes.models import SBERT_FIRST_LAST, SIMCSE, on_nli, on_target, preset, with_mlm
from twinpass.recipes.recipe import ALL, ModelSpec, Recipe, Row, Trained, one_model, quoted, supervised, unsupervised
from twinpass.recipes.scales import BERT, BERT_LARGE, ROBERTA, ROBERTA_LARGE
from twinpass.registry import Registry

RECIPES: Registry[Recipe] = Registry("table or figure")


def _recipe(name: str, title: str, *, rows: Iterable[Row], **details: Any) -> Recipe:
    return RECIPES.add(name, Recipe(name=name, title=title, rows=tuple(rows), **details))


def _printed(table: str, *rows: Row) -> tuple[Row, ...]:
    """Return rows with the numbers that a table prints; they are in its order."""
    numbers = [row.values for row in PUBLISHED if row.table == table]
    return tuple(replace(row, paper=tuple(values)) for row, values in zip(rows, numbers, strict=True))


STS_COLUMNS = {f"sts{year}": f"STS{year}" for year in range(12, 17)}
STS_COLUMNS |= {"stsb": "STS-B", "sickr": "SICK-R", "avg": "Avg."}
TRANSFER_COLUMNS = {name.lower(): name for name in ("MR", "CR", "SUBJ", "MPQA")}
TRANSFER_COLUMNS |= {"sst2": "SST", "trec": "TREC", "mrpc": "MRPC", "avg": "Avg."}
_sts_recipe = partial(
    _recipe, measure="sts", columns=STS_COLUMNS, protocol="seven STS tasks, test, Spearman x 100, all, no regressor"
)
# Whom the paper quotes.
SBERT_PAPER, IS_BERT_PAPER = "Reimers and Gurevych, 2019", "Zhang et al., 2020"
WHITENING_PAPER, FLOW_PAPER = "Su et al., 2021", "Li et al., 2020"
USE = quoted(
    "sup/use",
    "Universal Sentence Encoder",
    source=SBERT_PAPER,
    why="its training data was never released; any encoder can be evaluated with `twinpass evaluate`",
)


def _augmented(key: str, label: str, positive: str, paper: float, dropout: float | None = None) -> Row:
    return one_model(key, label, unsupervised(positive=positive, view="pairs", dropout=dropout), paper)


_recipe(
    "table-1",
    "Data augmentations (unsupervised)",
    rows=(
        one_model("none", "None (unsup. SimCSE)", SIMCSE, 82.5),
        _augmented("crop-10", "Crop 10 %", "crop:10", 77.8),
        _augmented("crop-20", "Crop 20 %", "crop:20", 71.4),
        _augmented("crop-30", "Crop 30 %", "crop:30", 63.6),
        _augmented("delete-10", "Word deletion 10 %", "delete:10", 75.9),
        _augmented("delete-20", "Word deletion 20 %", "delete:20", 72.2),
        _augmented("delete-30", "Word deletion 30 %", "delete:30", 68.2),
        one_model("delete-one", "Delete one word", m.DELETE_ONE, 75.9),
        _augmented("delete-one-no-dropout", "Delete one word, w/o dropout", "delete-one", 74.2, dropout=0.0),
        _augmented("synonym", "Synonym replacement", "synonym", 77.4),
        _augmented("mlm-15", "MLM 15 %", "mlm:15", 62.2),
    ),
)


def _both(key: str, label: str, one: Trained, *paper: float) -> Row:
    two = one.changed(dual_encoder=True, track_geometry=None)
    return Row(key=key, label=label, models={"one": one, "two": two}, paper=paper)


_recipe(
    "table-2",
    "Unsupervised objectives",
    columns={"one": "one encoder", "two": "two encoders"},
    rows=(
        _both("next-1", "Next sentence", m.NEXT_1, 67.1, 68.9),
        _both("next-3", "Next 3 sentences", m.NEXT_3, 67.4, 68.8),
        _both("delete-one", "Delete one word", m.DELETE_ONE, 75.9, 73.1),
        _both("simcse", "Unsupervised SimCSE", SIMCSE, 82.5, 80.7),
    ),
)

_recipe(
    "table-3",
    "Dropout rates",
    rows=(
        one_model("0.0", "p = 0.0", m.NO_DROPOUT, 71.1),
        one_model("0.01", "p = 0.01", unsupervised(dropout=0.01), 72.6),
        one_model("0.05", "p = 0.05", unsupervised(dropout=0.05), 81.1),
        one_model("0.1", "p = 0.1 (SimCSE)", SIMCSE, 82.5),
        one_model("0.15", "p = 0.15", unsupervised(dropout=0.15), 81.4),
        one_model("0.2", "p = 0.2", unsupervised(dropout=0.2), 80.5),
        one_model("0.5", "p = 0.5", unsupervised(dropout=0.5), 71.0),
        one_model("fixed", "Fixed 0.1", m.FIXED_DROPOUT, 43.6),
    ),
)


# "Sample" takes as many pairs of each data set as QQP has, 134k. Below the paper's scale every row sees equally many
# pairs, so one run fills both columns.


def _pairs(key: str, label: str, corpus: str, *paper: float) -> Row:
    full = supervised(corpus, view="pairs")
    return Row(key=key, label=label, models={"sample": replace(full, most=134_000), "full": full}, paper=paper)


def _full(key: str, label: str, model: Trained, paper: float) -> Row:
    return Row(key=key, label=label, models={"full": model}, paper=(None, paper))


_recipe(
    "table-4",
    "Supervised data sets",
    columns={"sample": "sample", "full": "full"},
    rows=(
        _full("unsup", "Unsup. SimCSE (1m)", SIMCSE, 82.5),
        _pairs("qqp", "QQP (134k)", "qqp", 81.8, 81.8),
        _pairs("flickr", "Flickr30k (318k)", "flickr", 81.5, 81.4),
        _pairs("paranmt", "ParaNMT (5m)", "paranmt", 79.7, 78.7),
        _pairs("entailment", "NLI entailment (314k)", "nli-entailment", 84.1, 84.9),
        _pairs("neutral", "NLI neutral (314k)", "nli-neutral", 82.6, 82.9),
        _pairs("contradiction", "NLI contradiction (314k)", "nli-contradiction", 77.5, 77.6),
        _pairs("all", "NLI all (942k)", "nli-all", 81.7, 81.9),
        _full("hard-negatives", "NLI entailment + hard neg.", supervised(), 86.2),
        _full("anli", "  + ANLI (52k)", supervised("nli-triplets-anli"), 85.0),
    ),
)

TABLE_5 = _sts_recipe(
    "table-5",
    "STS tasks",
    rows=_printed(
        "5",
        one_model("unsup/glove", "GloVe embeddings (avg.)", m.GLOVE, source=SBERT_PAPER),
        one_model("unsup/bert", "BERT-base (first-last avg.)", m.BERT_AVERAGE),
        one_model("unsup/bert-flow", "BERT-base-flow", on_nli("flow", m.BERT_FIRST_LAST)),
        one_model("unsup/bert-whitening", "BERT-base-whitening", on_nli("whitening", m.BERT_FIRST_LAST)),
        one_model("unsup/is-bert", "IS-BERT-base", m.IS_BERT, source=IS_BERT_PAPER),
        one_model("unsup/ct-bert", "CT-BERT-base", m.CT_BERT),
        one_model("unsup/simcse-bert", "SimCSE-BERT-base", SIMCSE),
        one_model("unsup/roberta", "RoBERTa-base (first-last avg.)", m.ROBERTA_AVERAGE),
        one_model("unsup/roberta-whitening", "RoBERTa-base-whitening", on_nli("whitening", m.ROBERTA_FIRST_LAST)),
        one_model("unsup/declutr", "DeCLUTR-RoBERTa-base", m.DECLUTR),
        one_model("unsup/simcse-roberta", "SimCSE-RoBERTa-base", m.SIMCSE_ROBERTA),
        one_model("unsup/simcse-roberta-large", "SimCSE-RoBERTa-large", m.SIMCSE_ROBERTA_LARGE),
        one_model("sup/infersent", "InferSent-GloVe", m.INFERSENT, source=SBERT_PAPER),
        USE,
        one_model("sup/sbert", "SBERT-base", m.SBERT, source=SBERT_PAPER),
        one_model("sup/sbert-flow", "SBERT-base-flow", on_nli("flow", SBERT_FIRST_LAST)),
        one_model("sup/sbert-whitening", "SBERT-base-whitening", on_nli("whitening", SBERT_FIRST_LAST)),
        one_model("sup/ct-sbert", "CT-SBERT-base", m.CT_SBERT),
        one_model("sup/simcse-bert", "SimCSE-BERT-base", m.SUP_SIMCSE),
        one_model("sup/sroberta", "SRoBERTa-base", m.SROBERTA, source=SBERT_PAPER),
        one_model("sup/sroberta-whitening", "SRoBERTa-base-whitening", on_nli("whitening", m.SROBERTA_FIRST_LAST)),
        one_model("sup/simcse-roberta", "SimCSE-RoBERTa-base", m.SUP_SIMCSE_ROBERTA),
        one_model("sup/simcse-roberta-large", "SimCSE-RoBERTa-large", m.SUP_SIMCSE_ROBERTA_LARGE),
    ),
)


def _pooled(key: str, label: str, pooler: str, *paper: float) -> Row:
    unsup = SIMCSE if pooler == SIMCSE.run.pooler else unsupervised(pooler=pooler)
    return Row(key=key, label=label, models={"unsup": unsup, "sup": supervised(pooler=pooler)}, paper=paper)


_recipe(
    "table-6",
    "Poolers",
    columns={"unsup": "Unsup.", "sup": "Sup."},
    rows=(
        _pooled("cls-mlp", "[CLS] w/ MLP", "cls_mlp", 81.7, 86.2),
        _pooled("cls-mlp-train", "[CLS] w/ MLP (train)", "cls_mlp_train", 82.5, 85.8),
        _pooled("cls", "[CLS] w/o MLP", "cls", 80.9, 86.2),
        _pooled("first-last", "First-last avg.", "avg_first_last", 81.2, 86.1),
    ),
)

_recipe(
    "table-7",
    "Hard negatives",  # and their weight (Eq. 8)
    rows=(
        one_model("none", "no hard negative", supervised("nli-entailment", view="pairs"), 84.9),
        one_model("0.5", "Contradiction, alpha 0.5", supervised(hard_negative_weight=0.5), 86.1),
        one_model("1.0", "Contradiction, alpha 1.0", supervised(), 86.2),
        one_model("2.0", "Contradiction, alpha 2.0", supervised(hard_negative_weight=2.0), 86.2),
        # One of a premise's contradictions and neutral hypotheses, drawn with equal chances.
        one_model("both", "Contra. + neutral, alpha 1.0", supervised("nli-triplets-both"), 85.3),
    ),
)

_recipe(
    "table-8",
    "Retrieved captions",
    measure="retrieval",
    columns={"shared": "of the paper's six captions, found"},
    protocol="the three captions of Flickr30k (150k) with the highest cosine, the query itself excluded",
    rows=(
        one_model("sbert", "SBERT-base", m.SBERT, 6),
        one_model("simcse", "Supervised SimCSE-BERT-base", m.SUP_SIMCSE, 6),
    ),
    figure="none",
)

# The grid search of Appendix A.
BATCH_SIZES, LEARNING_RATES = (64, 128, 256, 512), (1e-5, 3e-5, 5e-5)


def _searched(name: str, label: str, encoder: str, *paper: float) -> Row:
    return one_model(name, label, preset(name, encoder), *paper)


_recipe(
    "table-a1",
    "Batch sizes and learning rates",
    measure="grid",
    columns={"batch_size": "batch size", "learning_rate": "learning rate"},
    protocol="the best of 4 batch sizes and 3 learning rates by STS-B dev, Spearman x 100",
    rows=(
        _searched("unsup-bert-base", "Unsup. BERT base", BERT, 64, 3e-5),
        _searched("unsup-bert-large", "Unsup. BERT large", BERT_LARGE, 64, 1e-5),
        _searched("unsup-roberta-base", "Unsup. RoBERTa base", ROBERTA, 512, 1e-5),
        _searched("unsup-roberta-large", "Unsup. RoBERTa large", ROBERTA_LARGE, 512, 3e-5),
        _searched("sup-base", "Sup. base", BERT, 512, 5e-5),
        _searched("sup-large", "Sup. large", BERT_LARGE, 512, 1e-5),
    ),
    figure="none",
    trainings_per_model=len(BATCH_SIZES) * len(LEARNING_RATES),
)

_recipe(
    "table-b1",
    "Protocols of STS evaluation",
    measure="protocols",
    columns={"avg": "Avg. of unsup. SimCSE-BERT-base"},
    protocol="seven STS tasks, test, x 100, by the protocol of each row",
    rows=(
        Row(key=f"{paper}, {cell}", label=f"{paper}: {cell}", models={ALL: SIMCSE}, pick=f"{paper}, {cell}")
        for paper, cells in PAPERS.items()
        for cell in (each.name for each in cells)
    ),
)

_NLI, _TARGET = on_nli("whitening", m.BERT_FIRST_LAST), on_target("whitening", m.BERT_FIRST_LAST)


def _by(measure: str, key: str, label: str, model: ModelSpec) -> Row:
    return Row(key=key, label=label, models={ALL: model}, measure=measure)


def _as_printed(key: str, label: str, source: str) -> Row:
    return quoted(key, label, source=source, why="printed by the method's own authors")


_sts_recipe(
    "table-b2",
    "Which protocol did they use?",
    protocol="seven STS tasks, test, Spearman x 100, no regressor, aggregated as each row says",
    rows=_printed(
        "B.2",
        _by("sts", "sbert-all", "SBERT (all)", m.SBERT),
        _by("sts-wmean", "sbert-wmean", "SBERT (wmean)", m.SBERT),
        _as_printed("sbert-printed", "SBERT, as printed", SBERT_PAPER),
        _by("sts", "nli-all", "BERT-whitening (NLI, all)", _NLI),
        _by("sts-wmean", "nli-wmean", "BERT-whitening (NLI, wmean)", _NLI),
        _as_printed("nli-printed", "BERT-whitening (NLI), as printed", WHITENING_PAPER),
        _by("sts", "target-all", "BERT-whitening (target, all)", _TARGET),
        _by("sts-wmean", "target-wmean", "BERT-whitening (target, wmean)", _TARGET),
        _as_printed("target-printed", "BERT-whitening (target), as printed", WHITENING_PAPER),
    ),
)


def _four_layers(key: str, label: str, of: ModelSpec, *, source: str = "") -> list[Row]:
    """Flow and whitening, each fitted to NLI sentences and to those that are scored; `label` has a place for it."""
    return [
        one_model(f"{key}-{layer}-{on}", label.format(f"{layer} ({where})"), fit(layer, of), source=source)
        for layer in ("flow", "whitening")
        for on, where, fit in (("nli", "NLI", on_nli), ("target", "target", on_target))
    ]


def _family(key: str, label: str, of: ModelSpec) -> list[Row]:
    source = f"{FLOW_PAPER}; {WHITENING_PAPER}"
    raw = one_model(key, f"{label} (first-last avg.)", of, source=source)
    return [raw, *_four_layers(key, "  + {}", of, source=source)]


_sts_recipe(
    "table-b3",
    "STS tasks, wmean",
    measure="sts-wmean",
    protocol="seven STS tasks, test, Spearman x 100, wmean, no regressor",
    rows=_printed(
        "B.3",
        *_family("bert", "BERT-base", m.BERT_FIRST_LAST),
        one_model("unsup-simcse", "Unsup. SimCSE-BERT-base", SIMCSE),
        *_family("sbert", "SBERT-base", SBERT_FIRST_LAST),
        one_model("sup-simcse", "Sup. SimCSE-BERT-base", m.SUP_SIMCSE),
    ),
)

_LAYERS = _printed(
    "C.1", *_four_layers("bert", "BERT-{}", m.BERT_FIRST_LAST), *_four_layers("sbert", "SBERT-{}", SBERT_FIRST_LAST)
)
# The rows without a layer are not in the paper's table. SBERT's numbers are Table 5's; BERT's there are of another
# pooler, so that row has none.
_BERT = one_model("bert", "BERT (first-last avg.)", m.BERT_FIRST_LAST)
_SBERT = replace(next(row for row in TABLE_5.rows if row.key == "sup/sbert"), key="sbert", label="SBERT", source="")
_sts_recipe(
    "table-c1", "Post-processing on NLI or on target sentences", rows=(_BERT, *_LAYERS[:4], _SBERT, *_LAYERS[4:])
)

_recipe(
    "table-d1",
    "Normalisation and temperature",
    rows=(
        one_model("dot", "dot product", supervised(similarity="dot"), 85.9),
        *(
            one_model(key, f"cosine, tau = {key}", supervised(temperature=float(key)), paper)
            for key, paper in {"0.001": 84.9, "0.01": 85.4, "0.05": 86.2, "0.1": 82.0, "1": 64.0}.items()
        ),
    ),
)

_recipe(
    "table-d2",
    "The MLM auxiliary objective",
    measure="dev",
    columns={"stsb": "STS-B", "transfer": "Avg. transfer"},
    protocol="STS-B dev, Spearman x 100; transfer: mean dev accuracy of the seven tasks, per cent",
    rows=(
        one_model("none", "w/o MLM", supervised(), 86.2, 85.8),
        *(
            one_model(key, f"w/ MLM, lambda = {key}", supervised(mlm_weight=float(key)), *paper)
            for key, paper in {"0.01": (85.7, 86.1), "0.1": (85.7, 86.2), "1": (85.1, 85.8)}.items()
        ),
    ),
)

_recipe(
    "table-e1",
    "Transfer tasks",
    measure="transfer",
    columns=TRANSFER_COLUMNS,
    protocol="seven transfer tasks, logistic regression on frozen vectors, test accuracy in per cent",
    rows=_printed(
        "E.1",
        one_model("unsup/glove", "GloVe embeddings (avg.)", m.GLOVE, source=SBERT_PAPER),
        quoted(
            "unsup/skip-thought",
            "Skip-thought",
            source=IS_BERT_PAPER,
            why="its books are no longer available; any encoder can be evaluated with `twinpass evaluate`",
        ),
        one_model("unsup/bert-avg", "Avg. BERT embeddings", m.BERT_LAST, source=SBERT_PAPER),
        one_model("unsup/bert-cls", "BERT-[CLS] embedding", m.BERT_CLS, source=SBERT_PAPER),
        one_model("unsup/is-bert", "IS-BERT-base", m.IS_BERT, source=IS_BERT_PAPER),
        one_model("unsup/simcse-bert", "SimCSE-BERT-base", SIMCSE),
        one_model("unsup/simcse-bert-mlm", "  w/ MLM", with_mlm(SIMCSE)),
        one_model("unsup/simcse-roberta", "SimCSE-RoBERTa-base", m.SIMCSE_ROBERTA),
        one_model("unsup/simcse-roberta-mlm", "  w/ MLM", with_mlm(m.SIMCSE_ROBERTA)),
        one_model("unsup/simcse-roberta-large", "SimCSE-RoBERTa-large", m.SIMCSE_ROBERTA_LARGE),
        one_model("unsup/simcse-roberta-large-mlm", "  w/ MLM", with_mlm(m.SIMCSE_ROBERTA_LARGE)),
        one_model("sup/infersent", "InferSent-GloVe", m.INFERSENT, source=SBERT_PAPER),
        USE,
        one_model("sup/sbert", "SBERT-base", m.SBERT, source=SBERT_PAPER),
        one_model("sup/simcse-bert", "SimCSE-BERT-base", m.SUP_SIMCSE),
        one_model("sup/simcse-bert-mlm", "  w/ MLM", with_mlm(m.SUP_SIMCSE)),
        one_model("sup/sroberta", "SRoBERTa-base", m.SROBERTA),
        one_model("sup/simcse-roberta", "SimCSE-RoBERTa-base", m.SUP_SIMCSE_ROBERTA),
        one_model("sup/simcse-roberta-mlm", "  w/ MLM", with_mlm(m.SUP_SIMCSE_ROBERTA)),
        one_model("sup/simcse-roberta-large", "SimCSE-RoBERTa-large", m.SUP_SIMCSE_ROBERTA_LARGE),
        one_model("sup/simcse-roberta-large-mlm", "  w/ MLM", with_mlm(m.SUP_SIMCSE_ROBERTA_LARGE)),
    ),
)

_recipe(
    "figure-2",
    "Alignment and uniformity during training",
    measure="trajectory",
    columns={"alignment": "alignment at the end", "uniformity": "uniformity at the end"},
    protocol="STS-B dev: pairs scored above 4 for alignment, all sentences for uniformity (t = 2)",
    rows=(
        one_model("fixed", "Fixed 0.1", m.FIXED_DROPOUT),
        one_model("no-dropout", "No dropout", m.NO_DROPOUT),
        one_model("delete-one", "Delete one word", m.DELETE_ONE),
        one_model("simcse", "Unsup. SimCSE", SIMCSE),
    ),
    figure="trajectory",
)

# Key, label and model of the rows of Figures 3, F.1 and G.1.
_SHOWN = (
    ("bert", "Avg. BERT", m.BERT_AVERAGE),
    ("bert-flow", "BERT-flow", on_nli("flow", m.BERT_FIRST_LAST)),
    ("bert-whitening", "BERT-whitening", on_nli("whitening", m.BERT_FIRST_LAST)),
    ("simcse", "Unsup. SimCSE", SIMCSE),
    ("sbert", "SBERT", m.SBERT),
    ("sbert-flow", "SBERT-flow", on_nli("flow", SBERT_FIRST_LAST)),
    ("sbert-whitening", "SBERT-whitening", on_nli("whitening", SBERT_FIRST_LAST)),
    ("sup-simcse", "Sup. SimCSE", m.SUP_SIMCSE),
)
# The paper prints only the averages, in Table 5; that of Next3Sent is not printed there.
_AVERAGES = {row.models[ALL]: row.paper[-1] for row in TABLE_5.rows if row.models}
_recipe(
    "figure-3",
    "Alignment, uniformity and average STS",
    measure="geometry",
    columns={"alignment": "alignment", "uniformity": "uniformity", "avg": "Avg. STS"},
    protocol="alignment and uniformity on STS-B dev; Avg. of seven STS tasks, Spearman x 100, all, no regressor",
    rows=(
        one_model(key, label, model, None, None, _AVERAGES.get(model))
        for key, label, model in (*_SHOWN[:3], ("next-3", "Next3Sent", m.NEXT_3), *_SHOWN[3:])
    ),
    figure="geometry",
)

_recipe(
    "figure-f1",
    "Singular values",
    measure="spectrum",
    columns={"tenth": "10th / 1st", "half": "values that hold half of the sum"},
    protocol="sentence vectors of STS-B dev, singular values divided by the largest",
    rows=(one_model(*each) for each in _SHOWN),
    figure="spectrum",
)

_recipe(
    "figure-g1",
    "Cosines by gold score",
    measure="densities",
    columns={f"group{place}": f"gold {place} to {place + 1}" for place in range(5)},
    protocol="STS-B dev, median cosine of the pairs in each of five groups of gold score",
    rows=(one_model(*each) for each in _SHOWN if "flow" not in each[0]),
    figure="densities",
)
