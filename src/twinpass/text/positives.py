"""A positive for every sentence: rows (x, g(x)) from a corpus with one text column.

The first text of a row is the sentence itself, the second what was made of it (Table 1) or a sentence that follows it
(Table 2). What is made depends on the seed and the row's number alone, so it is the same in every process, every
epoch and after a resume; and it is made only for the rows that are asked for, since a masked language model is slow.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.random import Generator

from twinpass.errors import InputError
from twinpass.text.augment import Operator
from twinpass.text.rows import Row, Rows

T = TypeVar("T")

WINDOW = 4_096  # sentences handed over together, so that a model can sort them by length
_OWN = 0x706F73  # keeps these draws apart from those that other parts make with the same seed


class Place(NamedTuple):
    """A sentence, those that follow it (as many as were asked for), and its own generator."""

    text: str
    following: tuple[str, ...]
    random: Generator


Maker = Callable[[Sequence[Place]], Sequence[str]]


@dataclass(frozen=True)
class Method:
    """A way of making positives."""

    name: str
    open: Callable[[], Maker]  # called when positives are wanted; the maker is let go after the pass
    ahead: int = 0  # how many of the following sentences it is shown; a sentence without any is left out
    fingerprint: Callable[[], str] = str  # of what it goes by besides the seed: a model, a dictionary


class WithPositives:
    """The rows (x, g(x)) of a corpus of single sentences."""

    width = 2

    def __init__(self, rows: Rows, method: Method, *, seed: int) -> None:
        if rows.width != 1:
            raise InputError(
                f"positive {method.name!r} is made from single sentences, and {rows.source} has {rows.width} text "
                "columns. Name the one to read, or leave positive out."
            )
        self.rows, self.method, self.seed = rows, method, seed
        self.source = rows.source

    @property
    def bad_rows(self) -> int:
        """Number of rows that the last full pass left out."""
        return int(getattr(self.rows, "bad_rows", 0))

    def __iter__(self) -> Iterator[Row]:
        return self.only(None)

    def count(self) -> int:
        """Return how many rows there are, without making any positive."""
        return sum(1 for _ in self._sentences())

    def only(self, numbers: Iterable[int] | None) -> Iterator[Row]:
        """Yield the rows of these numbers (rising), or all; positives are made for no others."""
        chosen = choose(self._sentences(), numbers)
        make = self.method.open()
        while window := list(islice(chosen, WINDOW)):
            places = [Place(row.texts[0], ahead, self._random(number)) for number, (row, ahead) in window]
            for (_, (row, _)), made in zip(window, make(places), strict=True):
                yield row._replace(texts=(row.texts[0], made))

    def fingerprint(self) -> str:
        """Return a SHA-256 of the sentences and of all that decides their positives."""
        parts = (self.rows.fingerprint(), self.method.name, str(self.seed), self.method.fingerprint())
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def _random(self, number: int) -> Generator:
        return np.random.default_rng([self.seed, number, _OWN])

    def _sentences(self) -> Iterator[tuple[Row, tuple[str, ...]]]:
        """Yield each sentence with those that follow it; where some must follow, only those with any."""
        ahead, found = self.method.ahead, False
        for row, following in with_following(self.rows, ahead):
            if following or not ahead:
                found = True
                yield row, following
        if not found:
            raise InputError(
                f"no sentence of {self.rows.source} is followed by another in the same document, so "
                f"{self.method.name!r} has no positive to take."
            )


def one_by_one(operate: Operator) -> Maker:
    """Return a maker that applies an operator to each sentence."""
    return lambda places: [operate(place.text, place.random) for place in places]


def take_following(places: Sequence[Place]) -> list[str]:
    """Take one of the sentences that follow each sentence, all equally likely (Table 2)."""
    return [place.following[int(place.random.integers(len(place.following)))] for place in places]


def with_following(rows: Iterable[Row], count: int) -> Iterator[tuple[Row, tuple[str, ...]]]:
    """Yield each row with the first texts of up to `count` rows after it that belong to the same document."""
    held: deque[Row] = deque()
    for row in rows:
        if held and not adjoin(held[-1], row):
            yield from _run_out(held)
        held.append(row)
        if len(held) > count:
            yield _first(held)
    yield from _run_out(held)


def _run_out(held: deque[Row]) -> Iterator[tuple[Row, tuple[str, ...]]]:
    while held:
        yield _first(held)


def _first(held: deque[Row]) -> tuple[Row, tuple[str, ...]]:
    row = held.popleft()
    return row, tuple(follower.texts[0] for follower in held)


def adjoin(row: Row, after: Row) -> bool:
    """Tell whether a row follows another without another file, a blank line or a bad row between them."""
    file, _, line = row.where.rpartition(":")
    next_file, _, next_line = after.where.rpartition(":")
    if not (file and line.isdecimal() and next_line.isdecimal()):
        return True
    lines = 1 + row.texts[0].count("\n")  # a quoted field may run over several lines
    return file == next_file and int(next_line) - int(line) == lines


def choose(rows: Iterable[T], numbers: Iterable[int] | None) -> Iterator[tuple[int, T]]:
    """Yield (number, row) for these numbers (rising), reading no further than the last of them; or for all."""
    if numbers is None:
        yield from enumerate(rows)
        return
    wanted = iter(numbers)
    looked_for = next(wanted, None)
    for number, row in enumerate(rows):
        if looked_for is None:
            return
        if number == looked_for:
            yield number, row
            looked_for = next(wanted, None)
