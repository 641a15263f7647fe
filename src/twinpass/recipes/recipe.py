"""A recipe: one table or figure of the paper as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from twinpass.recipes.subjects import Subject
from twinpass.registry import Registry

ALL = "*"  # a subject whose measure fills every column of its row

Number = float | None


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row: the subject behind each column, or one behind all of them; none where only the paper has a number."""

    key: str
    label: str
    subjects: Mapping[str, Subject] = field(default_factory=dict)
    measure: str | None = None  # where it is not the recipe's
    pick: str | None = None  # which of the measure's numbers the row shows, where it is not one for each column
    source: str = ""  # whom the paper quotes
    why_quoted: str = ""  # why we do not measure it


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Rows, what is measured of them, and the paper's numbers under the same keys."""

    name: str  # table-3, figure-2
    title: str
    measure: str
    columns: Mapping[str, str]  # key -> heading
    rows: tuple[Row, ...]
    paper: Mapping[str, tuple[Number, ...]]  # row -> a number for each column; empty for figures without numbers
    protocol: str
    figure: str = "dots"  # how it is drawn
    trainings_per_subject: int = 1

    def published(self, row: str, column: str) -> Number:
        """Return the paper's number of a cell, if it has one."""
        numbers = self.paper.get(row)
        return None if numbers is None else numbers[list(self.columns).index(column)]

    def cells(self, row: Row) -> list[tuple[str, Subject]]:
        """Return (column or ALL, subject) of each thing to measure for a row."""
        return list(row.subjects.items())


RECIPES: Registry[Recipe] = Registry("table or figure")


def one_subject(key: str, label: str, subject: Subject, *, source: str = "") -> Row:
    """A row with a single subject behind all its columns."""
    return Row(key=key, label=label, subjects={ALL: subject}, source=source)


def quoted(key: str, label: str, *, source: str, why: str) -> Row:
    """A row whose number stands as the paper quotes it."""
    return Row(key=key, label=label, source=source, why_quoted=why)
