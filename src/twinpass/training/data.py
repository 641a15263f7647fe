"""Training text: read, checked, tokenised ahead and stored compactly."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinpass.errors import InputError
from twinpass.text.columns import to_label, to_number
from twinpass.text.nli import LABEL_OF, LABELS
from twinpass.text.rows import Row, Rows, text_key
from twinpass.text.views import WithPositives, choose

WINDOW = 16_384  # rows tokenised at a time: all token ids are in memory, never all texts
OVERLAP_ROWS = 10_000
EXAMPLES = 5  # of a leakage report
CLASS_OF = {spelling: LABELS.index(label) for spelling, label in LABEL_OF.items()}

Tokenize = Callable[[Sequence[str]], list[list[int]]]


class InMemory:
    """Rows given as Python strings, or as tuples of texts, with a label or a score at a position counted from 0.

    From the third on, texts are hard negatives. They may be a list, and rows may have different numbers of them.
    """

    def __init__(
        self,
        rows: Sequence[str] | Sequence[tuple[Any, ...]],
        *,
        source: str = "the data in memory",
        label: str | None = None,
        score: str | None = None,
    ) -> None:
        self.source = source
        given = [(row,) if isinstance(row, str) else tuple(row) for row in rows]
        if not given:
            raise InputError(f"{source} has no text to train on.")
        self.labels = None if label is None else _take("label", label, given, to_label)
        self.scores = None if score is None else _take("score", score, given, to_number)
        self.rows = [tuple(_flat(place, row)) for place, row in enumerate(given)]
        self.width = max(map(len, self.rows))
        nested = any(len(row) > 2 and not isinstance(row[2], str) for row in given)
        self.ragged = self.width > 3 or nested or (self.width == 3 and min(map(len, self.rows)) == 2)
        lengths = [len(row) for row in self.rows]
        if min(lengths) != self.width and not (self.ragged and min(lengths) >= 2):
            place = next(place for place, length in enumerate(lengths) if length != lengths[0])
            raise InputError(
                f"row {place} has {lengths[place]} texts and row 0 has {lengths[0]}. Give the same number; only hard "
                "negatives, from the third text on, may differ in number."
            )

    def __iter__(self) -> Iterator[Row]:
        for place, texts in enumerate(self.rows):
            score = None if self.scores is None else self.scores[place]
            yield Row(texts, score, f"row {place}", None if self.labels is None else self.labels[place])

    def fingerprint(self) -> str:
        """Return a SHA-256 of the content."""
        digest = hashlib.sha256()
        for row in self:
            more = [each for each in (row.score, row.label) if each is not None]
            digest.update(json.dumps([row.texts, *more] if more else row.texts).encode() + b"\n")
        return digest.hexdigest()


def _take(what: str, position: str, rows: list[tuple[Any, ...]], convert: Callable[[object], Any]) -> list[Any]:
    """Take the values at a position out of the rows."""
    if not position.isdecimal() or int(position) >= min(map(len, rows)):
        raise InputError(
            f"rows in memory have no column names: expected {what} to be a position counted from 0 that every row "
            f"has, got {position!r}."
        )
    at = int(position)
    values = [convert(row[at]) for row in rows]
    if None in values:
        place = values.index(None)
        raise InputError(f"row {place}: expected a {what} at position {at}, got {rows[place][at]!r}.")
    rows[:] = [row[:at] + row[at + 1 :] for row in rows]
    return values


def _flat(place: int, row: Sequence[Any]) -> Iterator[str]:
    """Yield the texts of a row, those of a list one by one."""
    for at, value in enumerate(row):
        texts = value if at >= 2 and isinstance(value, (list, tuple)) else [value]
        for text in texts:
            if not isinstance(text, str):
                raise InputError(
                    f"row {place}: expected texts, and from the third on lists of texts, got {text!r}. A label or a "
                    "score is named by its position (label='1')."
                )
            yield text


class Sentences:
    """Every text of every row as its own row."""

    width = 1

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.source = rows.source

    def __iter__(self) -> Iterator[Row]:
        return (Row((text,), None, row.where) for row in self.rows for text in row.texts)

    @property
    def bad_rows(self) -> int:
        """Number of rows that the last full pass skipped."""
        return int(getattr(self.rows, "bad_rows", 0))

    def fingerprint(self) -> str:
        """Return a SHA-256 of the content."""
        return self.rows.fingerprint()


class LabelledPairs(Sentences):
    """Rows of premise, hypothesis and label as rows of two texts; `classes` holds the labels in order."""

    width = 2

    def __init__(self, rows: Rows) -> None:
        if rows.width != 3:
            raise InputError(
                f"{rows.source} has {rows.width} text column(s); expected premise, hypothesis and label. Name them "
                "with columns."
            )
        super().__init__(rows)
        self.classes = np.fromiter(map(_class_of, rows), np.int64)
        if len(found := Counter(self.classes.tolist())) < 2:
            only = LABELS[next(iter(found))]
            raise InputError(f"every pair of {rows.source} is labelled {only}, so there is nothing to learn.")

    def __iter__(self) -> Iterator[Row]:
        return (Row(row.texts[:2], None, row.where) for row in self.rows)


def _class_of(row: Row) -> int:
    label = row.texts[2].strip().lower()
    if label not in CLASS_OF:
        raise InputError(
            f"{row.where}: expected a label ({', '.join(CLASS_OF)}), got {row.texts[2]!r}. Remove such rows."
        )
    return CLASS_OF[label]


class MoreTexts(NamedTuple):
    """The texts that rows have beyond their columns; they are numbered after all texts of the columns."""

    ends: NDArray[np.int64]  # where each held row's ends
    keys: NDArray[np.uint64]


@dataclass(frozen=True)
class TrainingData:
    """Token ids of the texts of the rows that are held, in flat arrays, with keys that show which texts are equal.

    Where rows may have any number of hard negatives, these are in `more`, and the width is 2.
    """

    rows: int  # in the corpus
    held: NDArray[np.int64] | None  # the numbers of the rows held here, ascending; None if all are
    tokens: NDArray[np.int32]
    ends: NDArray[np.int64]  # where each text's ids end in `tokens`; text k of held row p is p * width + k
    keys: NDArray[np.uint64]  # (held rows, width)
    overlap: float | None  # mean lexical overlap of the first two columns, over a random sample of rows
    more: MoreTexts | None = None  # the hard negatives of rows that may have any number of them

    def __len__(self) -> int:
        return self.rows

    @property
    def width(self) -> int:
        """Number of text columns."""
        return int(self.keys.shape[1])

    def ids(self, text: int) -> NDArray[np.int32]:
        """Return the token ids of one text."""
        start = self.ends[text - 1] if text else 0
        return self.tokens[start : self.ends[text]]

    def columns(self, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return the numbers of the rows' texts, column by column."""
        return [self._places(rows) * self.width + column for column in range(self.width)]

    def key_columns(self, rows: NDArray[np.int64]) -> list[NDArray[np.uint64]]:
        """Return the keys of the rows' texts, column by column."""
        return list(self.keys[self._places(rows)].T)

    def negatives(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]:
        """Return the numbers of the rows' further texts, the place in `rows` that each belongs to, and their keys."""
        if self.more is None:
            return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint64)
        places = self._places(rows)
        first = np.where(places > 0, self.more.ends[places - 1], 0)
        counts = self.more.ends[places] - first
        owner = np.repeat(np.arange(len(rows)), counts)
        texts = np.arange(len(owner)) + np.repeat(first - (counts.cumsum() - counts), counts)
        return self.keys.size + texts, owner, self.more.keys[texts]

    def _places(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return rows if self.held is None else np.searchsorted(self.held, rows)


def read_data(
    rows: Rows, tokenize: Tokenize, *, total: int | None = None, held: NDArray[np.int64] | None = None
) -> TrainingData:
    """Tokenise every row once, or of `total` rows only those in `held`; refuse text without anything to compare."""
    ragged = bool(getattr(rows, "ragged", False))
    width = 2 if ragged else rows.width
    columns, more, counts = _Texts(tokenize), _Texts(tokenize), list[int]()
    sample = _Sample(OVERLAP_ROWS if width > 1 else 0)
    for window in _windows(rows, held):
        sample.add(window)
        columns.add([text for row in window for text in row[:width]])
        if ragged:
            more.add([text for row in window for text in row[2:]])
            counts += [len(row) - 2 for row in window]
    table = np.concatenate(columns.keys).reshape(-1, width)
    if not (isinstance(rows, LabelledPairs) or width == 3 or (ragged and min(counts) > 0)):
        _check_learnable(table, rows.source)  # labels, and hard negatives, are learned from one row alone
    return TrainingData(
        total or len(table),
        held,
        np.concatenate(columns.tokens + more.tokens),
        np.concatenate(columns.lengths + more.lengths).cumsum(),
        table,
        overlap=lexical_overlap(sample.rows) if width > 1 else None,
        more=MoreTexts(np.cumsum(counts), np.concatenate(more.keys)) if ragged else None,
    )


class _Texts:
    """Token ids, their numbers, and keys of texts, in arrays window by window."""

    def __init__(self, tokenize: Tokenize) -> None:
        self.tokenize = tokenize
        self.tokens: list[NDArray[np.int32]] = []
        self.lengths: list[NDArray[np.int64]] = []
        self.keys: list[NDArray[np.uint64]] = []

    def add(self, texts: Sequence[str]) -> None:
        """Tokenise the texts of a window."""
        ids = _tokenize_distinct(texts, self.tokenize) if texts else []
        self.lengths.append(np.fromiter(map(len, ids), np.int64, len(ids)))
        self.tokens.append(np.fromiter(chain.from_iterable(ids), np.int32, int(self.lengths[-1].sum())))
        self.keys.append(np.fromiter(map(text_hash, texts), np.uint64, len(texts)))


class _Sample:
    """A random sample of rows, the same every time, drawn as they are read (Vitter's algorithm R)."""

    def __init__(self, size: int) -> None:
        self.size, self.rows, self.seen = size, list[tuple[str, ...]](), 0
        self.random = random.Random(0)

    def add(self, rows: Sequence[tuple[str, ...]]) -> None:
        """Let each row take the place of an earlier one by chance."""
        for row in rows if self.size else ():
            self.seen += 1
            if len(self.rows) < self.size:
                self.rows.append(row)
            elif (place := self.random.randrange(self.seen)) < self.size:
                self.rows[place] = row


def count_rows(rows: Rows) -> int:
    """Return the number of rows."""
    return rows.count() if isinstance(rows, WithPositives) else sum(1 for _ in rows)


def text_hash(text: str) -> int:
    """Return a 64-bit hash of a text: equal texts have equal keys."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def find_rows(rows: Rows, numbers: Iterable[int], *, most: int = 5) -> list[str]:
    """Return "file:line: text" for at most `most` of the rows with these numbers, by reading the text again."""
    found = _select(rows, islice(sorted(set(numbers)), most))
    return [f"{row.where}: {' | '.join(row.texts)[:200]}" for row in found]


def _windows(rows: Rows, held: NDArray[np.int64] | None) -> Iterator[list[tuple[str, ...]]]:
    stream = _select(rows, None if held is None else held.tolist())
    while window := [row.texts for row in islice(stream, WINDOW)]:
        yield window


def _select(rows: Rows, numbers: Iterable[int] | None) -> Iterator[Row]:
    """Yield the rows with these numbers (ascending), or all; positives are made for these rows only."""
    if isinstance(rows, WithPositives):
        return rows.only(numbers)
    return iter(rows) if numbers is None else (row for _, row in choose(rows, numbers))


def _tokenize_distinct(texts: Sequence[str], tokenize: Tokenize) -> list[list[int]]:
    """Tokenise each distinct text once."""
    distinct = list(dict.fromkeys(texts))
    if len(distinct) == len(texts):
        return tokenize(texts)
    ids: dict[str, Any] = dict(zip(distinct, tokenize(distinct), strict=True))
    return [ids[text] for text in texts]


def _check_learnable(keys: NDArray[np.uint64], source: str) -> None:
    """Refuse a corpus in which no row has a negative."""
    if len(keys) == 1:
        raise InputError(f"{source} has one row. The other rows are the negatives, so training needs 2 or more.")
    if len(np.unique(keys[:, 0])) == 1 or len(np.unique(keys[:, -1])) == 1:
        raise InputError(
            f"all {len(keys)} rows of {source} hold the same text. The other rows are the negatives, so training "
            "needs different texts."
        )


class Leakage(NamedTuple):
    """What an evaluation shares with the training text."""

    sentences: int  # distinct sentences of the evaluation that occur in training
    of_sentences: int
    rows: int  # rows of the evaluation all of whose texts occur in training
    of_rows: int
    examples: tuple[str, ...]  # "file:line: text" in the training text

    def report(self, *, evaluation: str, training: str) -> list[str]:
        """Return what was found as lines of text."""
        return [
            f"leakage: {self.sentences:,} of {self.of_sentences:,} sentences of {evaluation}, and {self.rows:,} of its "
            f"{self.of_rows:,} rows as a whole, occur in {training}",
            *(f"  {example}" for example in self.examples),
        ]


def leakage(training: Iterable[Row], evaluation: Iterable[Row]) -> Leakage:
    """Find evaluation sentences in training text, ignoring case, spaces and punctuation."""
    rows = [[text_key(text) for text in row.texts] for row in evaluation]
    sought = {key for row in rows for key in row if key}
    found: set[bytes] = set()
    examples: list[str] = []
    for row in training:
        for text in row.texts:
            key = text_key(text)
            if key in sought and key not in found:
                found.add(key)
                if len(examples) < EXAMPLES:
                    examples.append(f"{row.where}: {text}")
    whole = sum(1 for row in rows if all(key in found for key in row))
    return Leakage(len(found), len(sought), whole, len(rows), tuple(examples))


def lexical_overlap(pairs: Iterable[Sequence[str]]) -> float:
    """Return the mean F1 between the bags of words of each row's first two texts (section 4)."""
    scores = [overlap_f1(texts[0], texts[1]) for texts in pairs]
    return sum(scores) / len(scores) if scores else 0.0


def overlap_f1(left: str, right: str) -> float:
    """Return the F1 between two bags of lowercased words."""
    a, b = Counter(_words(left)), Counter(_words(right))
    shared, total = sum((a & b).values()), sum(a.values()) + sum(b.values())
    return 2 * shared / total if total else 0.0


def _words(text: str) -> list[str]:
    """Split into runs of letters and digits, so a comma next to a word does not matter."""
    return "".join(c if c.isalnum() else " " for c in text.casefold()).split()
