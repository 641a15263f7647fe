"""Dev sets by name: scored pairs, pairs to retrieve, or the held-out part of the built-in corpus.

The held-out part is never trained on: the one rule for that is here, for `train` and `demo` alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from twinpass.text.docs.docstrings import MOST_CANDIDATES, held_out_pairs

if TYPE_CHECKING:
    from twinpass.evaluation.dev import PairRetrieval, ScoredPairs


BUILT_IN = "docs:"
PAIRS = "docs-pairs:"
Rows = list[tuple[str, ...]]
Pairs = list[tuple[str, str]]
_END = re.compile(r"""(?<=[.!?)"']) """)


def open_dev(source: str) -> ScoredPairs | PairRetrieval:
    """Open a dev set by name."""
    from twinpass.evaluation.dev import PairRetrieval, read_dev

    if is_built_in(source):
        return PairRetrieval(_held_out(source)[:MOST_CANDIDATES], source=f"the held-out part of {source}")
    return read_dev(source)


def split_documentation(source: str) -> tuple[Rows, Pairs]:
    """Split the built-in pairs into training pairs and at most 1,000 held-out ones, always the same way."""
    kept = _held_out(source)
    return _learnable(PAIRS + source.partition(":")[2], kept), kept[:MOST_CANDIDATES]


def rows_to_learn_from(data: str, *, dev: str | None, columns: Sequence[str] | None = None) -> Rows | None:
    """Return the rows of built-in `data` that a built-in `dev` does not ask for; None unless both are built in."""
    if dev is None or not is_built_in(dev) or not is_built_in(data):
        return None
    kept = _held_out(data)
    if data.partition(":")[2] != dev.partition(":")[2]:
        kept += _held_out(dev)
    return _learnable(data, kept, columns)


def _learnable(data: str, kept: Pairs, columns: Sequence[str] | None = None) -> Rows:
    """Skip every row with a text that is in the held-out pairs, as a whole or as one of their sentences."""
    from twinpass.text.corpus import open_corpus

    asked = {stretch for pair in kept for text in pair for stretch in _stretches(text)}
    return [row.texts for row in open_corpus(data, columns=columns) if not asked.intersection(row.texts)]


def _held_out(source: str) -> Pairs:
    """Return every held-out pair of the packages that a built-in source names."""
    packages = [name for name in source.partition(":")[2].split(",") if name]
    return held_out_pairs(packages)


def _stretches(text: str) -> Iterator[str]:
    """Yield every part of a text that can be one of its sentences, wherever the corpus splits them."""
    pieces = _END.split(text)
    for first in range(len(pieces)):
        for end in range(first + 1, len(pieces) + 1):
            yield " ".join(pieces[first:end])


def is_built_in(source: str) -> bool:
    """Return whether a source is the built-in corpus."""
    return source.startswith((BUILT_IN, PAIRS))
