"""What came of a recipe, ours beside the paper's: as tables, plain data, and files with a figure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from twinpass.display import Displayed, Grid, to_latex, to_markdown
from twinpass.files import plain, write_json, writing
from twinpass.recipes.corpora import describe_text
from twinpass.recipes.recipe import Recipe, Row

WIDE = 3  # with more columns than this, ours and the paper's number share a cell
NOTHING = "-"
SMALL = 0.005  # below it, two decimals are not enough


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell: our numbers, one per seed, and the paper's."""

    ours: tuple[float, ...] = ()
    paper: float | None = None

    @property
    def mean(self) -> float | None:
        """The mean over seeds."""
        return statistics.fmean(self.ours) if self.ours else None

    @property
    def deviation(self) -> float | None:
        """The standard deviation over seeds, where there are several."""
        return statistics.stdev(self.ours) if len(self.ours) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.mean is None or self.paper is None else self.mean - self.paper

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers and what follows from them."""
        found = {"mean": self.mean, "deviation": self.deviation, "paper": self.paper, "difference": self.difference}
        return {"ours": list(self.ours)} | found


@dataclass(kw_only=True)
class RowOutcome:
    """What came of a row."""

    row: Row
    cells: dict[str, Cell] = field(default_factory=dict)
    more: dict[str, list[Any]] = field(default_factory=dict)  # by column, one per seed
    note: str = ""  # why it has no number of ours, where it has none
    checkpoints: list[str] = field(default_factory=list)  # released ones that it was measured with


@dataclass(frozen=True)
class Agreement:
    """Whether two columns order the rows alike: Kendall's tau-b, with the p-value of no association."""

    tau: float
    p: float
    rows: int

    @property
    def words(self) -> str:
        """The value of tau in words."""
        if abs(self.tau) == 1.0:
            return "the paper's ordering" if self.tau > 0 else "the paper's ordering reversed"
        degree = "mostly" if self.tau >= 0.6 else "partly" if self.tau >= 0.2 else "not"
        return f"{degree} the paper's ordering"


def order_agreement(ours: Sequence[float | None], paper: Sequence[float | None]) -> Agreement | None:
    """Compare the rows that have both numbers; None for fewer than three, or if all are equal on one side."""
    from scipy.stats import kendalltau

    pairs = zip(ours, paper, strict=True)
    both = [(a, b) for a, b in pairs if a is not None and b is not None and not math.isnan(a)]
    if len(both) < 3 or len({a for a, _ in both}) == 1 or len({b for _, b in both}) == 1:
        return None
    found = kendalltau(*zip(*both, strict=True))
    return Agreement(float(found.statistic), float(found.pvalue), len(both))


@dataclass(frozen=True, kw_only=True, repr=False)
class Outcome(Displayed):
    """What came of a recipe."""

    recipe: Recipe
    scale: str
    encoder: str | None
    seeds: tuple[int, ...]
    rows: list[RowOutcome]
    facts: dict[str, Any]

    @property
    def is_measured(self) -> bool:
        """Whether any cell has a number of ours."""
        return any(cell.ours for row in self.rows for cell in row.cells.values())

    def agreement(self, column: str) -> Agreement | None:
        """Return whether our numbers of a column order the rows as the paper's do."""
        cells = [row.cells.get(column, Cell()) for row in self.rows if not row.row.extra]
        return order_agreement([cell.mean for cell in cells], [cell.paper for cell in cells])

    def grids(self) -> list[Grid]:
        """Return the table, ours beside the paper's, and the retrieved texts where it is about them."""
        rows = [[row.row.label, *self._texts(row)] for row in self.rows]
        title = f"{self.recipe.name}: {self.recipe.title}"
        if self.scale == "smoke":
            title += " (a check of the machinery, not a result; no ordering is claimed)"
        table = Grid(title=title, columns=self._headings(), rows=rows, notes=self.notes())
        return [table, *self._answers(), *self._searches()]

    def _headings(self) -> list[str]:
        recipe, labels = self.recipe, self.recipe.columns.values()
        if len(labels) > WIDE:
            return ["", *(f"{label} (paper)" if recipe.has_numbers else label for label in labels)]
        parts = ["ours", "paper", "difference"] if recipe.has_numbers else ["ours"]
        return ["", *(f"{label}: {part}" for label in labels for part in parts)]

    def _texts(self, row: RowOutcome) -> list[str]:
        cells = [row.cells[column] for column in self.recipe.columns]
        if not self.recipe.has_numbers:
            return [ours(cell) for cell in cells]
        if len(cells) > WIDE:
            return [f"{ours(cell)} ({number(cell.paper)})" for cell in cells]
        return [text for cell in cells for text in (ours(cell), number(cell.paper), number(cell.difference, sign=True))]

    def notes(self) -> list[str]:
        """Return the notes below the table: protocol, ordering, skipped rows, and the text that was read."""
        recipe = self.recipe
        seeds = f"{len(self.seeds)} seed{'s' * (len(self.seeds) > 1)} ({', '.join(map(str, self.seeds))})"
        encoder = f", encoder {self.encoder}" if self.encoder else ""
        named = self.facts.get("options", {}).get("precision")
        trained = f", trained in {named}" if named else ""
        found = [f"{recipe.protocol}; scale {self.scale}{encoder}{trained}, {seeds}"]
        found += [note for note in (self._tracked_note(), self._pool_note()) if note]
        for column, label in recipe.columns.items() if self.scale != "smoke" else ():
            agreement = self.agreement(column)
            if agreement is not None:
                found.append(
                    f"{label}: Kendall's tau {agreement.tau:+.2f} against the paper over {agreement.rows} rows "
                    f"(p = {agreement.p:.2g}): {agreement.words}"
                )
        found += [f"{row.row.label.strip()}: {row.note}" for row in self.rows if row.note]
        found += [f"{row.row.label.strip()}: {each}" for row in self.rows for each in row.checkpoints]
        found += [f"text {describe_text(name, facts)}" for name, facts in self.facts.get("corpora", {}).items()]
        sources = {row.row.source for row in self.rows if row.row.source}
        if sources:
            found.append(f"the paper quotes some of its numbers from {'; '.join(sorted(sources))}")
        return found

    def _answers(self) -> list[Grid]:
        """Return what was retrieved, beside what the paper's models found."""
        if self.recipe.measure != "retrieval":
            return []
        from twinpass.recipes.tables.table_8 import PAPER_ANSWERS

        rows = [
            [row.row.label, query, str(place), f"{answer['cosine']:.3f}", answer["text"], theirs]
            for row in self.rows
            for query, answers in (first_seed(row).get("found", {}) if row.more else {}).items()
            for place, (answer, theirs) in enumerate(zip(answers, PAPER_ANSWERS[query][row.row.key], strict=False), 1)
        ]
        columns = ["model", "query", "#", "cosine", "ours", "paper"]
        return [Grid(title="The captions found", columns=columns, rows=rows, words=("query", "ours", "paper"))]

    def _pool_note(self) -> str:
        """Say how many captions were searched, and whether the paper's were put among them."""
        pools = [first_seed(row)["captions"] for row in self.rows if row.more and "captions" in first_seed(row)]
        if not pools:
            return ""
        limit = self.facts["options"]["scale"]["captions"]
        chosen = "" if limit is None else ", among them all that the paper's models found"
        return f"searched {pools[0]:,} captions{chosen}"

    def _tracked_note(self) -> str:
        """Say so where a scale follows less of STS-B during training than the paper."""
        if self.recipe.measure != "trajectory" or self.facts["options"]["scale"]["tracked"] == "all":
            return ""
        return "followed on STS-B dev alone, which takes a sixth of the time of all its splits"

    def _searches(self) -> list[Grid]:
        """Return the score of every setting of a search by grid, one table per row."""
        if self.recipe.measure != "grid":
            return []
        grids = []
        for row in self.rows:
            tried = [each["grid"] for found in row.more.values() for each in found]  # one list per seed
            if not tried:
                continue
            rates = list(dict.fromkeys(cell["learning_rate"] for cell in tried[0]))
            batches = list(dict.fromkeys(cell["batch_size"] for cell in tried[0]))
            found: dict[tuple[float, float], list[float]] = {}
            for each in (each for of_seed in tried for each in of_seed if each["stsb"] is not None):
                found.setdefault((each["batch_size"], each["learning_rate"]), []).append(each["stsb"])
            scores = {(b, r): Cell(ours=tuple(found.get((b, r), ()))) for b in batches for r in rates}
            lines = [[f"batch {b}", *(ours(scores[b, r]) for r in rates)] for b in batches]
            columns = ["", *(f"rate {rate:g}" for rate in rates)]
            grids.append(Grid(title=f"{row.row.label}: STS-B dev of every setting", columns=columns, rows=lines))
        return grids

    def to_dict(self) -> dict[str, Any]:
        """Return every number by row, column and seed, with options, versions and the text that was read."""
        recipe = self.recipe
        agreement = {column: self.agreement(column) for column in recipe.columns}
        document: dict[str, Any] = plain(
            self.facts
            | {
                "recipe": recipe.name,
                "title": recipe.title,
                "protocol": recipe.protocol,
                "scale": self.scale,
                "encoder": self.encoder,
                "seeds": self.seeds,
                "columns": recipe.columns,
                "rows": [
                    {
                        "key": row.row.key,
                        "label": row.row.label,
                        "source": row.row.source,
                        "note": row.note,
                        "checkpoints": row.checkpoints,
                        "cells": {column: cell.to_dict() for column, cell in row.cells.items()},
                        "more": row.more,
                    }
                    for row in self.rows
                ],
                "ordering": {column: asdict(found) for column, found in agreement.items() if found is not None},
            }
        )
        return document

    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary per cell."""
        return [
            {"recipe": self.recipe.name, "row": row.row.key, "label": row.row.label.strip(), "column": column}
            | {name: value for name, value in cell.to_dict().items() if name != "ours"}
            for row in self.rows
            for column, cell in row.cells.items()
        ]


def first_seed(row: RowOutcome) -> dict[str, Any]:
    """Return what the first seed found beside its numbers."""
    found: dict[str, Any] = next(iter(row.more.values()))[0]
    return found


def number(value: float | None, *, sign: bool = False) -> str:
    """Write a number with two decimals, or in full where two are not enough."""
    if value is None or math.isnan(value):
        return NOTHING
    form = "g" if 0 < abs(value) < SMALL else ".2f"
    return f"{value:{'+' * sign}{form}}"


def ours(cell: Cell) -> str:
    """Write our mean, with the deviation over seeds where there are several."""
    if cell.mean is None or cell.deviation is None:
        return number(cell.mean)
    small = 0 < abs(cell.mean) < SMALL  # a learning rate, say
    return f"{number(cell.mean)} ± {cell.deviation:{'.1g' if small else '.2f'}}"


def write_report(outcome: Outcome, folder: Path) -> list[Path]:
    """Write NAME.json, .md, .tex and the figure into a folder."""
    from twinpass.analysis.drawing import write_figure
    from twinpass.recipes.figures import draw_outcome

    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / f"{outcome.recipe.name}.{suffix}" for suffix in ("json", "md", "tex")]
    write_json(written[0], outcome.to_dict())
    for path, write in zip(written[1:], (to_markdown, to_latex), strict=True):
        with writing(path) as aside:
            aside.write_text(write(outcome.grids()), encoding="utf-8")
    drawing = draw_outcome(outcome)
    return written + (write_figure(drawing, folder) if drawing is not None else [])
