"""The batches of a run in a seeded order: a step's number alone determines its rows, so a resumed run takes the same.

`Batches` shuffles all rows anew in every epoch, `ClassBatches` keeps rows of one class together, and `MixedBatches`
lets the parts of a mixture take turns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


class Schedule(Protocol):
    """Batches of row numbers, step by step."""

    @property
    def per_epoch(self) -> int:
        """Number of batches in one epoch."""

    def steps_in(self, epochs: int) -> int:
        """Return the number of batches in some epochs."""

    def since(self, step: int, *, until: int) -> Iterator[tuple[int, Numbers]]:
        """Yield (step, rows) starting at a step."""


@dataclass(frozen=True)
class Batches:
    """The batches of a run, numbered from 0: a step's number alone determines its rows."""

    rows: int
    size: int
    seed: int
    needs_negatives: bool  # whether a row alone in a batch teaches nothing

    @property
    def per_epoch(self) -> int:
        """Number of batches in one pass over the data, a smaller last one included."""
        whole, rest = divmod(self.rows, self.size)
        # A last row alone would have no negatives, so it joins the previous batch.
        lonely = rest == 1 and whole > 0 and self.needs_negatives
        return whole + (rest > 0 and not lonely)

    def steps_in(self, epochs: int) -> int:
        """Return the number of batches in some epochs."""
        return epochs * self.per_epoch

    def visited(self, steps: int) -> Numbers | None:
        """Return the rows that a run of this many steps uses, or None if it uses all of them."""
        if steps >= self.per_epoch:
            return None
        return np.sort(np.concatenate([rows for _, rows in self.since(0, until=steps)]))

    def since(self, step: int, *, until: int) -> Iterator[tuple[int, Numbers]]:
        """Yield (step, rows) starting at a step, drawing each epoch's order once."""
        while step < until:
            epoch, place = divmod(step, self.per_epoch)
            order, ends = self.epoch(epoch)
            for batch in range(place, min(self.per_epoch, place + until - step)):
                yield step, order[ends[batch - 1] if batch else 0 : ends[batch]]
                step += 1

    def epoch(self, number: int) -> tuple[Numbers, Numbers]:
        """Return the rows of an epoch in order, and where its batches end."""
        order: Numbers = np.random.default_rng([self.seed, number]).permutation(self.rows)
        ends = np.arange(1, self.per_epoch + 1) * self.size
        ends[-1] = self.rows
        return order, ends


@dataclass(frozen=True)
class ClassBatches(Batches):
    """Batches in which every class has two rows or more; their sizes differ from `size` by two at most, but the last's.

    A class's rows are shuffled and cut into twos (and a three where their number is odd), which are spread evenly over
    the epoch. A row whose class has no other is left out.
    """

    classes: Numbers = field(compare=False)  # of every row

    @property
    def per_epoch(self) -> int:
        """Number of batches; a rest of fewer than four rows, too few for two classes, joins the last one."""
        sizes = np.bincount(self.classes)
        whole, rest = divmod(int(sizes[sizes > 1].sum()), self.size)
        return max(1, whole + (rest >= 4))

    def epoch(self, number: int) -> tuple[Numbers, Numbers]:
        """Return the rows of an epoch in order, and where its batches end."""
        random = np.random.default_rng([self.seed, number])
        sizes = np.bincount(self.classes)
        rows = np.flatnonzero(sizes[self.classes] > 1)
        rows = rows[np.lexsort((random.random(len(rows)), self.classes[rows]))]  # class by class, shuffled within
        classes, groups_of = self.classes[rows], sizes // 2
        first = np.flatnonzero(np.r_[True, classes[1:] != classes[:-1]])
        place = np.arange(len(rows)) - np.repeat(first, sizes[classes[first]])
        nth = np.minimum(place // 2, groups_of[classes] - 1)  # which of its class's groups a row is in
        group = nth + np.repeat(np.r_[0, groups_of[classes[first]].cumsum()[:-1]], sizes[classes[first]])
        when = (nth + random.random(group[-1] + 1)[group]) / groups_of[
            classes
        ]  # 0 to 1: its group's place in the epoch
        order = np.lexsort((group, when))
        ends_of_groups = np.r_[np.flatnonzero(np.diff(group[order])) + 1, len(rows)]
        due = np.arange(1, self.per_epoch + 1) * self.size
        ends = ends_of_groups[np.searchsorted(ends_of_groups, due, side="right") - 1]
        ends[-1] = len(rows)
        return rows[order], ends


class MixedBatches:
    """The batches of several parts, each batch of one part; a part's rows are numbered after those of the parts before.

    The next batch is of the part that is furthest behind its share, so equal shares take turns. An epoch is over when
    the first part has been seen once.
    """

    def __init__(self, parts: Sequence[Batches], shares: Sequence[Fraction]) -> None:
        self.parts = parts
        self.offsets = np.r_[0, np.cumsum([part.rows for part in parts])]
        self.shares = shares

    @property
    def per_epoch(self) -> int:
        """Number of batches until the first part has been seen once."""
        return self.steps_in(1)

    def steps_in(self, epochs: int) -> int:
        """Return the number of batches until the first part has been seen so often, the others' shares rounded once."""
        own = epochs * self.parts[0].per_epoch
        return sum(math.floor(own * share / self.shares[0] + Fraction(1, 2)) for share in self.shares)

    def since(self, step: int, *, until: int) -> Iterator[tuple[int, Numbers]]:
        """Yield (step, rows) starting at a step."""
        turns = whose_turn(self.shares, until)
        before = np.bincount(turns[:step], minlength=len(self.parts))
        in_all = np.bincount(turns, minlength=len(self.parts))
        streams = [
            part.since(int(start), until=int(end)) for part, start, end in zip(self.parts, before, in_all, strict=True)
        ]
        for place in range(step, until):
            turn = int(turns[place])
            yield place, next(streams[turn])[1] + self.offsets[turn]


def whose_turn(shares: Sequence[Fraction], steps: int) -> Numbers:
    """Return the part of each step: a part's k-th batch is due at (k + 1/2) / share, and the earliest comes next."""
    common = math.lcm(*(share.denominator for share in shares))
    weights = [int(share * common) for share in shares]
    whole = math.lcm(*weights)  # times are whole numbers, so that no rounding decides whose turn it is
    exact = 2 * steps * whole < 2**63  # shares of many digits have no such numbers that fit
    halves = 2 * np.arange(steps) + 1
    due = np.concatenate([halves * (whole // weight) if exact else halves / weight for weight in weights])
    part = np.repeat(np.arange(len(weights)), steps)
    return part[np.lexsort((part, due))][:steps]
