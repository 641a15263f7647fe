"""Opening what `--dev` names: scored pairs, pairs to retrieve, or the held-out part of the built-in corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinpass.errors import InputError

if TYPE_CHECKING:
    from twinpass.evaluation.dev import PairRetrieval, ScoredPairs

BUILT_IN = "docs:"
PAIRS = "docs-pairs:"
MOST_PAIRS = 1_000  # candidates of the built-in retrieval task


def open_dev(source: str) -> ScoredPairs | PairRetrieval:
    """Return the dev set behind a name."""
    from twinpass.evaluation.dev import PairRetrieval, ScoredPairs
    from twinpass.text.corpus import open_corpus

    if source.startswith((BUILT_IN, PAIRS)):
        held_out = split_documentation(source)[1]
        return PairRetrieval(held_out, source=f"the held-out part of {source}")
    corpus = open_corpus(source)
    rows: list[Any] = [(row.texts, row.score) for row in corpus]
    if corpus.width != 2:
        raise InputError(
            f"{source} has {corpus.width} text column(s); a dev set has two, and a score if it is to be correlated."
        )
    pairs = [texts for texts, _ in rows]
    if not corpus.scored:
        return PairRetrieval(pairs, source=source)
    return ScoredPairs(pairs, [score for _, score in rows], source=source)


def split_documentation(source: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Split the built-in pairs into those to learn from and at most 1,000 held out, always the same way."""
    from twinpass.text.docstrings import docs_pairs, held_out

    packages = [name for name in source.partition(":")[2].split(",") if name]
    pairs = docs_pairs(packages)
    kept = [pair for pair in pairs if held_out(pair)]
    # A summary or description that is learned from must not be asked for.
    asked = {text for pair in kept for text in pair}
    return [pair for pair in pairs if not asked.intersection(pair)], kept[:MOST_PAIRS]
