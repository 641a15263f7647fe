"""Which columns of a table are texts, and which one is the score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

from twinpass.errors import InputError
from twinpass.registry import suggest
from twinpass.text.rows import Table

# Two columns that belong together, and how the names of further ones (hard negatives) begin.
GROUPS = (
    ("sent0", "sent1", "hard_neg"),
    ("anchor", "positive", "negative"),
    ("query", "positive", "negative"),
    ("sentence1", "sentence2", ""),
    ("sentence_1", "sentence_2", ""),
    ("sentence_a", "sentence_b", ""),
    ("text1", "text2", ""),
    ("premise", "hypothesis", ""),
    ("question1", "question2", ""),
    ("query", "answer", ""),
    ("question", "answer", ""),
    ("summary", "description", ""),
)
SINGLES = ("sentence", "text")
SCORES = ("score", "similarity_score", "relatedness_score", "gold_score", "similarity", "label")
KNOWN = frozenset(name for group in GROUPS for name in group if name) | {*SINGLES, *SCORES}


class Choice(NamedTuple):
    """Positions of the text columns, and of the score if there is one."""

    texts: tuple[int, ...]
    score: int | None

    @property
    def wanted(self) -> tuple[int, ...]:
        """Every position to read, the score last."""
        return self.texts if self.score is None else (*self.texts, self.score)


def choose(table: Table, *, columns: Sequence[str] | None, score: str | None) -> Choice:
    """Choose a table's columns: those that are named, else known names, else every column that holds text."""
    named_score = None if score is None else _find(table, score)
    if columns:
        return Choice(tuple(_find(table, column) for column in columns), named_score)
    names = [plain(name) for name in table.names]
    known = known_texts(names)
    texts = known or tuple(at for at in range(len(names)) if at != named_score and _holds_text(table, at))
    if not texts:
        raise InputError(f"{table.name} has no column of text. Its columns: {', '.join(table.names)}.")
    found_score = _find_score(table, names, texts) if score is None else None
    _refuse_to_guess(table, names, known if found_score is None else (*known, found_score))
    return Choice(texts, named_score if found_score is None else found_score)


def plain(name: str) -> str:
    """Return a column name for comparison: lower case, underscores for spaces and dashes."""
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def known_texts(names: list[str]) -> tuple[int, ...]:
    """Return the positions of the text columns of the first group whose names are there, else of a single one."""
    for first, second, more in GROUPS:
        if first in names and second in names:
            rest = [at for at, name in enumerate(names) if more and name.startswith(more)]
            return (names.index(first), names.index(second), *rest)
    return next(((names.index(name),) for name in SINGLES if name in names), ())


def to_number(value: object) -> float | None:
    """Return a number, or text that reads as one, as a finite float; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float, Decimal)):
        return None
    if isinstance(value, str) and "_" in value:  # Python reads 4_5 as 45
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _find_score(table: Table, names: list[str], texts: tuple[int, ...]) -> int | None:
    """Find the score of two texts: a column of a known name, or in a table without names a last column of numbers."""
    if len(texts) != 2:
        return None
    for name in SCORES:
        if name in names and _share_of_numbers(table, names.index(name)) >= 0.5:
            return names.index(name)  # a value in it that is not a number makes a bad row
    nameless = table.names == tuple(str(at) for at in range(len(names)))
    last = len(names) - 1
    return last if nameless and last not in texts and _share_of_numbers(table, last) == 1 else None


def _share_of_numbers(table: Table, at: int) -> float:
    """Return the share of numbers among a column's first values; 0 if all are empty."""
    present = (row[at] for row in table.sample if row[at] is not None)
    values = [value for value in present if str(value).strip().lower() not in ("", "nan")]
    return sum(to_number(value) is not None for value in values) / len(values) if values else 0.0


def _holds_text(table: Table, at: int) -> bool:
    if not table.sample:
        return True  # no good row so far: reading the rows reports what is wrong with them
    return _share_of_numbers(table, at) < 1 and any(isinstance(row[at], str) for row in table.sample)


def _refuse_to_guess(table: Table, names: Sequence[str], by_name: Sequence[int]) -> None:
    """Raise InputError if a column was chosen by its name and another of the same name was not."""
    for chosen in by_name:
        alike = [at for at, name in enumerate(names) if name == names[chosen]]
        if not {*alike} <= {*by_name}:
            raise InputError(
                f"{table.name} has {len(alike)} columns called {table.names[chosen]!r}. "
                f"Name one by position, counted from 0: {', '.join(map(str, alike))}."
            )


def _find(table: Table, column: str) -> int:
    """Return a column's position by its name, or by its position counted from 0."""
    if column in table.names:
        _refuse_to_guess(table, table.names, [table.names.index(column)])
        return table.names.index(column)
    if column.isdecimal() and int(column) < len(table.names):
        return int(column)
    hint = suggest(column, table.names)
    raise InputError(f"{table.name} has no column {column!r}.{hint} Its columns: {', '.join(table.names)}.")
