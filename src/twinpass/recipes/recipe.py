"""A recipe: one table or figure of the paper as data. Its rows, with the paper's numbers, and what is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from twinpass.recipes.model_specs import ModelSpec
from twinpass.recipes.scales import Scale
from twinpass.registry import Registry

ALL = "*"  # the place of a model whose measure fills every column of its row


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row: the model for each column, or one for all of them; none where only the paper has a number."""

    key: str
    label: str
    models: Mapping[str, ModelSpec] = field(default_factory=dict)
    paper: tuple[float | None, ...] = ()  # the paper's number for each column; nothing where it prints none
    measure: str | None = None  # where it is not the recipe's
    pick: str | None = None  # which of the measure's numbers the row shows, where it is not one for each column
    source: str = ""  # whom the paper quotes
    why_quoted: str = ""  # why we do not measure it
    extra: bool = False  # for comparison only: the paper's table does not have it


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Rows, and what is measured of them; most tables show Spearman's correlation on STS-B's development set."""

    name: str  # table-3, figure-2
    title: str
    rows: tuple[Row, ...]
    measure: str = "stsb-dev"
    columns: Mapping[str, str] = field(default_factory=lambda: {"stsb": "STS-B"})  # key -> heading
    protocol: str = "STS-B dev, Spearman x 100, no regressor"
    figure: str = "dots"  # how it is drawn
    counts: bool = False  # whether its numbers are counts or rates, which have no two decimals
    trainings_per_model: int = 1

    @property
    def has_numbers(self) -> bool:
        """Whether the paper prints numbers for it."""
        return any(row.paper for row in self.rows)

    def prints(self, column: str) -> bool:
        """Tell whether the paper prints a number in any row of a column."""
        return any(self.published(row, column) is not None for row in self.rows)

    def published(self, row: Row, column: str) -> float | None:
        """Return the paper's number of a cell, if it has one."""
        return row.paper[list(self.columns).index(column)] if row.paper else None

    def models(self, scale: Scale) -> list[ModelSpec]:
        """Return every model of its rows that is run at a scale."""
        return [model for row in self.rows for model in row.models.values() if scale.runs(model.encoder)]


RECIPES: Registry[Recipe] = Registry("table or figure")


def one_model(key: str, label: str, model: ModelSpec, *paper: float | None, source: str = "") -> Row:
    """A row with a single model for all its columns, and the paper's numbers."""
    return Row(key=key, label=label, models={ALL: model}, paper=paper, source=source)


def quoted(key: str, label: str, *, source: str, why: str) -> Row:
    """A row that only quotes the paper's number."""
    return Row(key=key, label=label, source=source, why_quoted=why)
