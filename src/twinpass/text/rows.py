"""What every reader yields: tables of rows, with bad rows reported or counted."""

from __future__ import annotations

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from twinpass.errors import InputError

SAMPLE = 20  # rows read before deciding what a file's columns are
Record = tuple[int, Sequence[object]]  # line number counted from 1, values


class Row(NamedTuple):
    """One row of a corpus: its texts, its score if it has one, the file:line it came from, and its label if any."""

    texts: tuple[str, ...]
    score: float | None
    where: str
    label: str | None = None


class Rows(Protocol):
    """Rows of texts that can be read more than once."""

    @property
    def width(self) -> int:
        """Number of text columns."""

    @property
    def source(self) -> str:
        """Its name in messages."""

    def __iter__(self) -> Iterator[Row]: ...

    def fingerprint(self) -> str:
        """Return a SHA-256 of the content."""


class BadRows:
    """Raises at the first bad row, or counts bad rows by reason."""

    def __init__(self, *, skip: bool) -> None:
        self.skip = skip
        self.reasons: Counter[str] = Counter()

    def report(self, where: str, reason: str, message: str) -> None:
        """Count a row as bad under a reason, or raise InputError with the message if bad rows are not skipped."""
        if not self.skip:
            raise InputError(f"{message} ({where}). Fix the row, or pass --skip-bad-rows.")
        self.reasons[reason] += 1


class Table(Protocol):
    """Rows of values under column names; each call of `rows` reads from the start."""

    @property
    def name(self) -> str:
        """The table's name in messages, usually the file's path."""

    @property
    def names(self) -> tuple[str, ...]:
        """Column names; positions "0", "1", ... if the file has none; empty if there is no row."""

    @property
    def sample(self) -> Sequence[Sequence[object]]:
        """The values of the first rows, to recognise columns by."""

    def rows(self, wanted: Sequence[int], bad: BadRows) -> Iterator[Record]:
        """Yield the columns at these positions of every row that can be read; report the other rows."""


def without_blanks(name: str, records: Iterator[Record], bad: BadRows) -> Iterator[Record]:
    """Report rows without values as bad, except at the end of the file, where they do no harm."""
    runs: list[list[int]] = []  # first and last line of each run of blank lines, so that a million cost nothing
    for record in records:
        line = record[0]
        if not record[1]:
            if runs and runs[-1][1] == line - 1:
                runs[-1][1] = line
            else:
                runs.append([line, line])
            continue
        for first, last in runs:
            for blank in range(first, last + 1):
                bad.report(f"{name}:{blank}", "blank line", "expected text, got a blank line")
        runs.clear()
        yield record


def text_key(text: str) -> bytes:
    """Return a key that texts with the same letters and digits share; empty for a text without any.

    Spaces do not count either: data sets differ in how they split "can't" and "U.S.".
    """
    letters = "".join(c for c in unicodedata.normalize("NFKC", text).casefold() if c.isalnum())
    return hashlib.blake2b(letters.encode("utf-8", "surrogatepass"), digest_size=8).digest() if letters else b""
