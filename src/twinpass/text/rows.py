"""What every reader gives back: a table of rows, and an account of the rows that were bad."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from twinpass.errors import InputError

SAMPLE = 20  # rows looked at before deciding what a file's columns are
Record = tuple[int, Sequence[object]]  # line number counted from 1, values


class Row(NamedTuple):
    """One row of a corpus: its texts, its score if it has one, and the file:line it came from."""

    texts: tuple[str, ...]
    score: float | None
    where: str


class Rows(Protocol):
    """Rows of texts that can be gone through more than once."""

    @property
    def width(self) -> int:
        """Number of text columns."""

    @property
    def source(self) -> str:
        """What messages call it."""

    def __iter__(self) -> Iterator[Row]: ...

    def fingerprint(self) -> str:
        """Return a SHA-256 of the content."""


class BadRows:
    """Stops at the first bad row, or counts the bad rows by reason."""

    def __init__(self, *, skip: bool) -> None:
        self.skip = skip
        self.reasons: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """Number of rows left out so far."""
        return sum(self.reasons.values())

    def report(self, where: str, reason: str, detail: str = "") -> None:
        """Count a row as bad, or raise InputError if bad rows are not to be skipped."""
        if not self.skip:
            found = f"{reason} ({detail})" if detail else reason
            raise InputError(f"{where}: {found}. Mend the row, or leave such rows out with --skip-bad-rows.")
        self.reasons[reason] += 1


class Table(Protocol):
    """Rows of values under column names; each call of `rows` reads from the start."""

    @property
    def name(self) -> str:
        """What error messages call this table, usually the file's path."""

    @property
    def names(self) -> tuple[str, ...]:
        """Column names; positions "0", "1", ... where the file gives none; empty if there is no row."""

    @property
    def sample(self) -> Sequence[Sequence[object]]:
        """The values of the first rows, to recognise columns by."""

    def rows(self, wanted: Sequence[int], bad: BadRows) -> Iterator[Record]:
        """Yield the wanted columns of every row that can be read, reporting the others."""


def without_blanks(name: str, records: Iterator[Record], bad: BadRows) -> Iterator[Record]:
    """Report rows without values as bad, except at the end of the file, where they do no harm."""
    blank: list[int] = []  # [first, last] of a run, so that a million blank lines cost nothing
    for record in records:
        if not record[1]:
            blank[:] = [blank[0] if blank else record[0], record[0]]
            continue
        if blank:
            for line in range(blank[0], blank[1] + 1):
                bad.report(f"{name}:{line}", "blank line", "wanted text")
            blank.clear()
        yield record
