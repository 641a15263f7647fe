"""Which sentences of a corpus are analysed: all of them, or a sample that the seed reproduces."""

from __future__ import annotations

import hashlib
import heapq
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinpass.display import counted
from twinpass.equations import POSITIVE_SHARE
from twinpass.errors import InputError
from twinpass.text.corpus import Corpus, Row, open_corpus
from twinpass.text.sources import is_file

MOST_TEXTS = 10_000
SPLITS = ("dev", "test", "train")  # of STS-B; their order decides which rows a sample takes

Vectors = NDArray[np.float32]  # (texts, dimensions)


class Scale(NamedTuple):
    """The lowest and the highest gold score of the whole corpus."""

    low: float
    high: float


class Graded(NamedTuple):
    """Pairs of positions (n, 2), their gold scores (n,), and the scale of these scores."""

    pairs: NDArray[np.int64]
    gold: NDArray[np.float64]
    scale: Scale


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Distinct texts, and the pairs and gold scores that connect them, if the corpus has any."""

    source: str
    splits: Sequence[str] = ()  # of STS-B, if that is the corpus
    texts: list[str]
    rows: int  # in the sample
    of_rows: int  # in the corpus
    pairs: NDArray[np.int64] | None = None  # (rows, 2), positions in `texts`
    gold: NDArray[np.float64] | None = None  # (rows,)
    scale: Scale | None = None

    @property
    def positives(self) -> NDArray[np.int64] | None:
        """The positive pairs: scored above 0.8 of the highest score, or all pairs if there are no scores."""
        if self.pairs is None:
            return None
        if self.gold is None or self.scale is None:
            return self.pairs
        return self.pairs[self.gold > POSITIVE_SHARE * self.scale.high]

    @property
    def graded(self) -> Graded | None:
        """The pairs with their gold scores, if there are scores and they vary."""
        if self.pairs is None or self.gold is None or self.scale is None or self.scale.low == self.scale.high:
            return None
        return Graded(self.pairs, self.gold, self.scale)

    @property
    def protocol(self) -> str:
        """What was analysed, in words."""
        part = "" if self.rows == self.of_rows else f", a sample of {self.rows:,} of {self.of_rows:,} rows"
        if self.splits:
            which = "three splits" if len(self.splits) == len(SPLITS) else f"{' and '.join(self.splits)} only"
            positives = "" if self.positives is None else f", {len(self.positives):,} positives"
            return f"STS-B, {which}, {len(self.texts):,} distinct sentences{positives}{part}"
        # A caption has no room for the folder; the last section of the report has the whole path.
        return f"{len(self.texts):,} distinct sentences of {self.source.rstrip('/').rpartition('/')[2]}{part}"

    @property
    def over(self) -> str:
        """What alignment is taken over, in words; empty if there are no positive pairs."""
        if self.positives is None or not len(self.positives):
            return ""
        above = f" (score above {POSITIVE_SHARE * self.scale.high:g})" if self.scale is not None else ""
        return f"{counted(len(self.positives), 'positive pair')}{above}"

    @property
    def heading(self) -> str:
        """What was analysed, with the number of positive pairs: for tables that show alignment."""
        # STS-B's protocol has this number.
        return self.protocol if self.splits or not self.over else f"{self.protocol}; {self.over}"

    @property
    def not_measured(self) -> list[str]:
        """What cannot be measured on this corpus, and why."""
        notes = []
        if self.pairs is None:
            notes.append("alignment and Eq. 6's first term need pairs; this corpus has one text column")
        elif not len(self.positives if self.positives is not None else ()):
            notes.append("alignment and Eq. 6's first term need positives; no pair is scored high enough")
        if self.gold is None:
            notes.append("cosine densities and Spearman's correlation need gold scores; this corpus has none")
        elif self.graded is None:
            notes.append("cosine densities and Spearman's correlation need gold scores that vary")
        return notes


def splits_of_stsb(data: str | os.PathLike[str]) -> list[str]:
    """Return which splits of STS-B are in a folder: none if it is not STS-B's, or no folder."""
    return [split for split in SPLITS if is_file(Path(data) / f"sts-{split}.csv")]


def open_stsb(
    folder: str | os.PathLike[str], splits: Sequence[str], *, skip_bad_rows: bool = False, **how: Any
) -> Corpus:
    """Open splits of STS-B as one corpus, and no other file of the folder; `how` has more options of open_corpus."""
    names = [f"sts-{split}.csv" for split in splits]
    files = [open_corpus(Path(folder) / name, skip_bad_rows=skip_bad_rows, **how) for name in names]
    if len({(each.width, each.scored) for each in files}) > 1:
        raise InputError(f"{', '.join(names)} in {folder} differ in their columns. Name one of these files instead.")
    parts = [part for each in files for part in each._parts]
    return Corpus(f"{os.fspath(folder)} ({', '.join(names)})", parts, skip_bad_rows=skip_bad_rows)


def take_sample(corpus: Corpus, *, most: int = MOST_TEXTS, seed: int = 42, splits: Sequence[str] = ()) -> Sample:
    """Sample at most `most` texts of a corpus in one pass and in constant memory."""
    if most < 2:
        raise InputError(f"expected a sample of 2 or more sentences, got {most}: an analysis compares sentences.")
    count, scale, rows = _draw(corpus, most=max(1, most // corpus.width), seed=seed)
    places: dict[str, int] = {}
    pairs = [[places.setdefault(text, len(places)) for text in row.texts] for row in rows]
    if len(places) < 2:
        raise InputError(f"{corpus.source} has fewer than two distinct sentences: there is nothing to compare.")
    return Sample(
        source=corpus.source,
        splits=splits,
        texts=list(places),
        rows=len(rows),
        of_rows=count,
        # A third column is a hard negative (Eq. 5): here, a sentence like any other.
        pairs=np.array([pair[:2] for pair in pairs], dtype=np.int64) if corpus.width > 1 else None,
        gold=np.array([row.score for row in rows], dtype=np.float64) if corpus.scored else None,
        scale=scale,
    )


def _draw(corpus: Iterable[Row], *, most: int, seed: int) -> tuple[int, Scale | None, list[Row]]:
    """Return the number of rows, the scale of their scores and the sampled rows, in the corpus's order.

    The sample is the rows with the smallest seeded hashes, so one pass over a corpus of any length is enough.
    """
    kept: list[tuple[int, int, Row]] = []  # a heap with the largest hash on top
    low, high, count = math.inf, -math.inf, 0
    for count, row in enumerate(corpus, start=1):
        if row.score is not None:
            low, high = min(low, row.score), max(high, row.score)
        entry = (-_hash(row, seed, count), -count, row)
        if len(kept) < most:
            heapq.heappush(kept, entry)
        elif entry > kept[0]:
            heapq.heapreplace(kept, entry)
    ordered = [row for _, place, row in sorted(kept, key=lambda entry: -entry[1])]
    return count, Scale(low, high) if low <= high else None, ordered


def _hash(row: Row, seed: int, count: int) -> int:
    content = "\0".join((str(seed), str(count), *row.texts))
    return int.from_bytes(hashlib.blake2b(content.encode(), digest_size=8).digest(), "big")


def some_rows(total: int, most: int, *, seed: int) -> NDArray[np.int64]:
    """Sample at most `most` distinct positions out of a total, in ascending order; all of them if there are fewer."""
    if total <= most:
        return np.arange(total)
    return np.sort(np.random.default_rng(seed).choice(total, size=most, replace=False))
