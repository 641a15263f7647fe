"""What makes a positive: every way of turning a row of text into what the encoder sees.

A *view* says which texts of a row go through the encoder in which pass: one sentence twice under two dropout masks
(section 3), a pair, or a triplet (section 4); with labels or scores, each text once. A *positive maker* first turns
single sentences x into pairs (x, g(x)), where g(x) is x with some words changed (Table 1) or a sentence that follows
it (Table 2).
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.random import Generator

from twinpass.config import Run, read_positive
from twinpass.display import counted
from twinpass.errors import InputError
from twinpass.registry import Registry
from twinpass.text import augment
from twinpass.text.rows import Row, Rows

T = TypeVar("T")


class View(NamedTuple):
    """Which texts of a row are encoded in which pass, and the number of text columns this needs."""

    columns: int
    passes: Callable[[Sequence[Any]], tuple[Any, ...]]


def dropout(row: Sequence[T]) -> tuple[T, ...]:
    """Section 3: the positive is the same sentence, encoded a second time under another dropout mask."""
    (x,) = row
    first_pass = x  # becomes h^z
    second_pass = x  # becomes h^z': dropout draws a new mask for every row of every pass
    return first_pass, second_pass


def shared_dropout(row: Sequence[T]) -> tuple[T, ...]:
    """Table 3, "fixed 0.1": both views share one mask, so there is one pass, and its vector is used twice."""
    (x,) = row
    only_pass = x
    return (only_pass,)


def pairs(row: Sequence[T]) -> tuple[T, ...]:
    """Section 4: the positive is another sentence, known to mean the same."""
    x, x_positive = row
    return x, x_positive


def triplets(row: Sequence[T]) -> tuple[T, ...]:
    """Section 4: a pair, and a hard negative known not to mean the same."""
    x, x_positive, x_hard_negative = row
    return x, x_positive, x_hard_negative


def classes(row: Sequence[T]) -> tuple[T, ...]:
    """Labelled sentences: the positives of a sentence are the other sentences of its class in the batch."""
    (x,) = row
    return (x,)


VIEWS: Registry[View] = Registry("view")
VIEWS.add("dropout", View(1, dropout))
VIEWS.add("pairs", View(2, pairs))
VIEWS.add("triplets", View(3, triplets))
VIEWS.add("classes", View(1, classes))
VIEWS.add("scores", View(2, pairs))


def choose_view(name: str, *, width: int, source: str) -> str:
    """Return the view for a corpus of `width` text columns; 'auto' follows the width, a name must fit it.

    Columns from the third on are hard negatives.
    """
    if name == "auto":
        return "dropout" if width == 1 else "pairs" if width == 2 else "triplets"
    if VIEWS[name].columns != min(width, 3):
        raise InputError(
            f"the {name} view takes {counted(VIEWS[name].columns, 'text column')}, and {source} has {width}. "
            "Name the columns to use, or choose another view."
        )
    return name


# Pairs made from single sentences. What is made depends on the seed and the row's number alone, so it is the same in
# every process, every epoch and after a resume. It is made only for the rows that are needed: a masked language model
# is slow.

WINDOW = 4_096  # sentences given to a maker together, so that a model can sort them by length
_STREAM = 0x706F73  # separates these random numbers from others with the same seed


class Place(NamedTuple):
    """A sentence, the sentences that follow it (as many as the maker needs), and a generator of its own."""

    text: str
    following: tuple[str, ...]
    random: Generator


Maker = Callable[[Sequence[Place]], Sequence[str]]


@dataclass(frozen=True)
class PositiveMaker:
    """A way of making positives."""

    name: str
    open: Callable[[], Maker]  # called when positives are needed; the maker is released after the pass
    ahead: int = 0  # how many following sentences it needs; a sentence without any makes no row
    fingerprint: Callable[[], str] = str  # of what it depends on besides the seed: a model, a dictionary


class WithPositives:
    """The rows (x, g(x)) of a corpus of single sentences."""

    width = 2

    def __init__(self, rows: Rows, maker: PositiveMaker, *, seed: int) -> None:
        if rows.width != 1:
            raise InputError(
                f"positive {maker.name!r} needs single sentences, and {rows.source} has {rows.width} text columns. "
                "Name the column to read, or leave positive out."
            )
        self.rows, self.maker, self.seed = rows, maker, seed
        self.source = rows.source

    @property
    def bad_rows(self) -> int:
        """Number of rows that the last full pass skipped."""
        return int(getattr(self.rows, "bad_rows", 0))

    def __iter__(self) -> Iterator[Row]:
        return self.only(None)

    def count(self) -> int:
        """Return the number of rows, without making any positive."""
        return sum(1 for _ in self._sentences())

    def only(self, numbers: Iterable[int] | None) -> Iterator[Row]:
        """Yield the rows with these numbers (ascending), or all; positives are made for no others."""
        chosen = choose(self._sentences(), numbers)
        make = self.maker.open()
        while window := list(islice(chosen, WINDOW)):
            places = [Place(row.texts[0], ahead, self._random(number)) for number, (row, ahead) in window]
            for (_, (row, _)), made in zip(window, make(places), strict=True):
                yield row._replace(texts=(row.texts[0], made))

    def fingerprint(self) -> str:
        """Return a SHA-256 of the sentences and of everything that decides their positives."""
        parts = (self.rows.fingerprint(), self.maker.name, str(self.seed), self.maker.fingerprint())
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def _random(self, number: int) -> Generator:
        return np.random.default_rng([self.seed, number, _STREAM])

    def _sentences(self) -> Iterator[tuple[Row, tuple[str, ...]]]:
        """Yield each sentence with those that follow it; where some are needed, only sentences that have one."""
        ahead, found = self.maker.ahead, False
        for row, following in with_following(self.rows, ahead):
            if following or not ahead:
                found = True
                yield row, following
        if not found:
            raise InputError(
                f"no sentence of {self.rows.source} is followed by another in the same document, so "
                f"{self.maker.name!r} finds no positive."
            )


def add_positives(rows: Rows, run: Run, *, masked_words: Callable[[str, int], PositiveMaker]) -> WithPositives:
    """Return the rows with a positive each, as run.positive says.

    `masked_words` opens the maker that replaces some per cent of the words by a masked language model's guesses: it
    needs an encoder, which this room does not know.
    """
    kind, amount = positive = read_positive(run.positive or "")
    name = str(positive)
    if kind == "next":
        maker = PositiveMaker(name, lambda: take_following, ahead=amount)
    elif kind == "mlm":
        maker = masked_words(name, amount)
    elif kind == "synonym":
        from twinpass.text.wordnet import find_wordnet

        wordnet = find_wordnet(run.wordnet)
        replace = augment.replace_by_synonym(wordnet.synonyms)
        maker = PositiveMaker(name, lambda: one_by_one(replace), fingerprint=wordnet.fingerprint)
    else:
        operators = {"crop": augment.crop(amount), "delete": augment.delete(amount), "delete-one": augment.delete_one}
        maker = PositiveMaker(name, lambda: one_by_one(operators[kind]))
    return WithPositives(rows, maker, seed=run.seed)


def one_by_one(operate: augment.Operator) -> Maker:
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
    """Return whether a row directly follows another: same file, no blank line or bad row between them."""
    file, _, line = row.where.rpartition(":")
    next_file, _, next_line = after.where.rpartition(":")
    if not (file and line.isdecimal() and next_line.isdecimal()):
        return True
    lines = 1 + row.texts[0].count("\n")  # a quoted field may span several lines
    return file == next_file and int(next_line) - int(line) == lines


def choose(rows: Iterable[T], numbers: Iterable[int] | None) -> Iterator[tuple[int, T]]:
    """Yield (number, row) for these numbers (ascending), or for all; nothing is read beyond the last."""
    if numbers is None:
        yield from enumerate(rows)
        return
    rest = iter(numbers)
    number = next(rest, None)
    for place, row in enumerate(rows):
        if number is None:
            return
        if place == number:
            yield place, row
            number = next(rest, None)
