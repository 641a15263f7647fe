"""What the paper says in its text, not in a table: two encoders, lexical overlap, and what did not help."""

from twinpass.recipes.model_specs import ModelSpec, PairText, supervised
from twinpass.recipes.recipe import ALL, Recipe, Row
from twinpass.recipes.tables.shared import (
    BERT_FIRST_LAST,
    CONTRADICTIONS,
    NLI_AND_WIKI,
    SBERT_FIRST_LAST,
    SUP_SIMCSE,
    on_nli,
)

_COLUMNS = {"stsb": "STS-B dev", "overlap": "lexical overlap, %", "avg": "Avg. transfer"}


def _score(key: str, label: str, model: ModelSpec, paper: float | None = None) -> Row:
    return Row(key=key, label=label, models={ALL: model}, paper=() if paper is None else (paper, None, None))


def _overlap(key: str, label: str, corpus: str, paper: float) -> Row:
    models = {ALL: PairText(corpus=corpus)}
    return Row(key=key, label=label, models=models, measure="overlap", paper=(None, paper, None))


def _transfer(key: str, label: str, model: ModelSpec) -> Row:
    return Row(key=key, label=label, models={ALL: model}, measure="transfer", paper=(None, None, None))


RECIPE = Recipe(
    name="in-text",
    title="Statements in the text",
    columns=_COLUMNS,
    protocol=(
        "STS-B dev, Spearman x 100; mean F1 between the bags of words of a pair; transfer: mean test accuracy of the "
        "seven tasks, of which the paper says that both layers hurt (Appendix E). In the paper, NLI and unsup. SimCSE "
        "in one run were no meaningful improvement, and several contradictions per premise no difference (section 4)"
    ),
    rows=(
        _score("one-encoder", "Sup. SimCSE, one encoder", SUP_SIMCSE, 86.2),
        _score("two-encoders", "Sup. SimCSE, two encoders", supervised(dual_encoder=True), 84.2),
        # The paper prints no number: neither helped (section 4).
        _score("nli-and-unsup", "NLI and unsup. SimCSE in one run", NLI_AND_WIKI),
        _score("contradictions", "Several contradictions per premise", CONTRADICTIONS),
        _overlap("overlap-nli", "Entailment pairs of NLI", "nli-entailment", 39.0),
        _overlap("overlap-qqp", "QQP", "qqp", 60.0),
        _overlap("overlap-paranmt", "ParaNMT", "paranmt", 55.0),
        _transfer("bert", "BERT-base (first-last avg.)", BERT_FIRST_LAST),
        _transfer("bert-flow", "BERT-base + flow", on_nli("flow", BERT_FIRST_LAST)),
        _transfer("bert-whitening", "BERT-base + whitening", on_nli("whitening", BERT_FIRST_LAST)),
        _transfer("sbert", "SBERT-base (first-last avg.)", SBERT_FIRST_LAST),
        _transfer("sbert-flow", "SBERT-base + flow", on_nli("flow", SBERT_FIRST_LAST)),
        _transfer("sbert-whitening", "SBERT-base + whitening", on_nli("whitening", SBERT_FIRST_LAST)),
    ),
    figure="none",
)
