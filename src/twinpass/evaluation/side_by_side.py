"""Several models on the same tasks, in one table."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinpass.display import Grid
from twinpass.encoder.any_model import check_model
from twinpass.errors import ConfigError
from twinpass.evaluation.evaluate import Tasks, evaluate, make_jobs, read_settings
from twinpass.evaluation.results import INTERVAL, Results, Saved, check_output


@dataclass(frozen=True, repr=False)
class SideBySide(Saved):
    """The results of several models on the same tasks."""

    models: Sequence[Results]

    def grids(self) -> list[Grid]:
        """Return the tables of one model, with the rows or columns of the others."""
        # Published rows come once, below all models.
        shown = [dataclasses.replace(each, beside=None) for each in self.models[:-1]] + [self.models[-1]]
        labels = [each.label for each in shown]
        return [_merged(grids, labels) for grids in zip(*(each.grids() for each in shown), strict=True)]

    def records(self) -> list[dict[str, Any]]:
        """Return every score of every model."""
        return [record for each in self.models for record in each.records()]

    def to_dict(self) -> dict[str, Any]:
        """Return the documents of all models."""
        return {"models": [each.to_dict() for each in self.models]}


def evaluate_models(
    models: Sequence[Any], tasks: Tasks = None, *, output: str | Path | Sequence[str | Path] = (), **options: Any
) -> SideBySide:
    """Score several models on the same tasks, side by side; the options are those of `evaluate`.

    The tasks are read once. A name that no model has is refused before anything is scored.
    """
    if not models:
        raise ConfigError("expected at least one model to evaluate, got none.")
    targets = [output] if isinstance(output, (str, Path)) else list(output)
    for target in targets:
        check_output(Path(target))
    for model in models:
        check_model(model, **options)
    jobs = make_jobs(tasks, read_settings(options))
    found = SideBySide([evaluate(model, jobs, **options) for model in models])
    for target in targets:
        found.save(target)
    return found


def _merged(grids: Sequence[Grid], labels: Sequence[str]) -> Grid:
    """Return one table of several models' tables of the same task."""
    first = grids[0]
    notes = list(dict.fromkeys(note for grid in grids for note in grid.notes))
    if list(first.columns) == ["", "score", INTERVAL]:  # one row for each metric: a model is two columns
        columns = ["", *(column for label in labels for column in (label, INTERVAL))]
        rows = [[row[0], *(cell for grid in grids for cell in grid.rows[at][1:])] for at, row in enumerate(first.rows)]
        return Grid(first.title, columns, rows, notes)
    named: list[Sequence[str]] = []
    for grid, label in zip(grids, labels, strict=True):
        ours = any(row[0].startswith(label) for row in grid.rows)
        named += list(grid.rows) if ours else [[f"{label}: {row[0]}", *row[1:]] for row in grid.rows]
    title = first.title.replace(f"({labels[0]}, ", "(")
    return Grid(title, first.columns, named, notes, words=first.words)
