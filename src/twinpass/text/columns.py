"""Which columns of a table are texts, and which one is the score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from twinpass.errors import InputError
from twinpass.registry import suggest
from twinpass.text.rows import Table

# Two columns that belong together, and the beginning of the names of further ones (hard negatives).
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
    """Choose a table's columns: as told, else by known names, else every column that holds text."""
    told_score = None if score is None else _find(table, score)
    if columns:
        return Choice(tuple(_find(table, column) for column in columns), told_score)
    names = [plain(name) for name in table.names]
    known = known_texts(names)
    texts = known or tuple(at for at in range(len(names)) if at != told_score and _holds_text(table, at))
    if not texts:
        raise InputError(f"{table.name} has no column of text. Its columns: {', '.join(table.names)}.")
    found_score = _find_score(table, names, texts) if score is None else None
    _refuse_to_guess(table, names, known if found_score is None else (*known, found_score))
    return Choice(texts, told_score if found_score is None else found_score)


def plain(name: str) -> str:
    """Return a column name as it is compared: lower case, underscores for spaces and dashes."""
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def known_texts(names: list[str]) -> tuple[int, ...]:
    """Return the positions of the texts by the first rule that fits: two columns and more, or one; else none."""
    for first, second, more in GROUPS:
        if first in names and second in names:
            rest = [at for at, name in enumerate(names) if more and name.startswith(more)]
            return (names.index(first), names.index(second), *rest)
    return next(((names.index(name),) for name in SINGLES if name in names), ())


def to_number(value: object) -> float | None:
    """Return a value, or text that reads as one, as a finite number; None if it is not."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _find_score(table: Table, names: list[str], texts: tuple[int, ...]) -> int | None:
    """Find the score that goes with two texts: a known name, or a last column of numbers without a name."""
    if len(texts) != 2:
        return None
    for name in SCORES:
        if name in names and _share_of_numbers(table, names.index(name)) >= 0.5:
            return names.index(name)  # what is no number in it is a bad row, not a reason to go without
    nameless = table.names == tuple(str(at) for at in range(len(names)))
    last = len(names) - 1
    return last if nameless and last not in texts and _holds_numbers(table, last) else None


def _holds_numbers(table: Table, at: int) -> bool:
    return _share_of_numbers(table, at) == 1


def _share_of_numbers(table: Table, at: int) -> float:
    """Return how many of the values seen first in a column are numbers, as a share; 0 if all are empty."""
    values = [row[at] for row in table.sample if row[at] not in (None, "") and not _is_nan(row[at])]
    return sum(to_number(value) is not None for value in values) / len(values) if values else 0.0


def _is_nan(value: object) -> bool:
    return str(value).strip().lower() == "nan"


def _holds_text(table: Table, at: int) -> bool:
    if not table.sample:
        return True  # no good row so far: let reading the rows say what is wrong with them
    return not _holds_numbers(table, at) and any(isinstance(row[at], str) for row in table.sample)


def _refuse_to_guess(table: Table, names: Sequence[str], by_name: Sequence[int]) -> None:
    """Raise InputError if a column chosen by its name has a namesake that was not chosen."""
    for chosen in by_name:
        alike = [at for at, name in enumerate(names) if name == names[chosen]]
        if not {*alike} <= {*by_name}:
            raise InputError(
                f"{table.name} has {len(alike)} columns called {table.names[chosen]!r}. "
                f"Say which by position, counted from 0: {', '.join(map(str, alike))}."
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
