"""What came of a recipe, ours beside the paper's: as tables, plain data, and files with a figure."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, filterfalse
from pathlib import Path
from typing import Any

from twinpass.display import Displayed, Grid, counted, to_latex, to_markdown
from twinpass.evaluation.reading import is_sentevals
from twinpass.files import explaining, plain, write_json, writing
from twinpass.recipes.corpora import describe_text
from twinpass.recipes.recipe import Recipe, Row

WIDE = 2  # with more columns than this, ours and the paper's number share a cell
NOTHING = "-"
SMALL = 0.005  # below it, two decimals are not enough
AGREES, SIMCSES = 0.02, "princeton-nlp/"  # how near the checkpoints of SimCSE's authors are expected to come
# In accuracies of a classifier that is trained here, one test question is more than that.
EXACT = ("sts", "sts-wmean", "geometry")
PAPERS_CAPTIONS = 150_000  # in the paper's Table 8
# What a report can show of one seed only.
OF_ONE_SEED = {
    "retrieval": "the captions are those",
    **dict.fromkeys(("trajectory", "spectrum", "densities"), "the figure is that"),
}


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

    @property
    def is_measured(self) -> bool:
        """Whether any cell has a number of ours; a search of which every run failed has NaN."""
        return any(not math.isnan(number) for cell in self.cells.values() for number in cell.ours)


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
        return any(row.is_measured for row in self.rows)

    @property
    def about(self) -> str:
        """What a reader must know before the numbers, if anything."""
        return "a check of the machinery, not a result; no ordering is claimed" if self.scale == "smoke" else ""

    def agreement(self, column: str) -> Agreement | None:
        """Return whether our numbers of a column order the rows as the paper's do; counts and settings rank nothing."""
        if self.recipe.counts or self.scale == "smoke":
            return None
        cells = [row.cells.get(column, Cell()) for row in self.rows if not row.row.extra]
        return order_agreement([cell.mean for cell in cells], [cell.paper for cell in cells])

    def grids(self) -> list[Grid]:
        """Return the table, ours beside the paper's, and the retrieved texts where it is about them."""
        rows = [[row.row.label, *self._texts(row)] for row in self.rows]
        title = self._titled(f"{self.recipe.name}: {self.recipe.title}")
        table = Grid(title=title, columns=self._headings(), rows=rows, notes=self.notes())
        return [table, *self._differences(), *self._answers(), *self._searches()]

    def _titled(self, title: str) -> str:
        return f"{title} ({self.about})" if self.about else title

    def _headings(self) -> list[str]:
        recipe, labels = self.recipe, self.recipe.columns.values()
        if len(labels) > WIDE:
            return [
                "",
                *(f"{recipe.columns[c]} (paper)" if recipe.prints(c) else recipe.columns[c] for c in recipe.columns),
            ]
        if not recipe.has_numbers:
            return ["", *labels]
        parts = ["ours", "paper"] if recipe.counts else ["ours", "paper", "difference"]
        return ["", *(f"{label}: {part}" for label in labels for part in parts)]

    def _texts(self, row: RowOutcome) -> list[str]:
        cells = [row.cells[column] for column in self.recipe.columns]
        counts = self.recipe.counts
        if not self.recipe.has_numbers:
            return [ours(cell, counts=counts) for cell in cells]
        if len(cells) > WIDE:
            return [ours(cell) + ("" if cell.paper is None else f" ({number(cell.paper)})") for cell in cells]
        texts = [[ours(cell, counts=counts), number(cell.paper, counts=counts)] for cell in cells]
        if not counts:  # the difference of two settings says nothing
            texts = [[*both, number(cell.difference, sign=True)] for both, cell in zip(texts, cells, strict=True)]
        return [text for both in texts for text in both]

    def _differences(self) -> list[Grid]:
        """Return ours minus the paper's, where the table itself has no room for it."""
        columns = [column for column in self.recipe.columns if self.recipe.prints(column)]
        rows = [
            [row.row.label, *(number(row.cells[column].difference, sign=True) for column in columns)]
            for row in self.rows
            if any(cell.difference is not None for cell in row.cells.values())
        ]
        if len(self.recipe.columns) <= WIDE or not rows:
            return []
        title = self._titled(f"{self.recipe.name}: difference from the paper")
        return [Grid(title=title, columns=["", *(self.recipe.columns[column] for column in columns)], rows=rows)]

    def notes(self) -> list[str]:
        """Return the notes below the table: protocol, ordering, skipped rows, and the text that was read."""
        recipe = self.recipe
        seeds = self.seeds if any(model.is_random for row in recipe.rows for model in row.models.values()) else ()
        seeded = f", {counted(len(seeds), 'seed')} ({', '.join(map(str, seeds))})" if seeds else ""
        # The JSON has the whole path.
        named = Path(self.encoder or "")
        encoder = f", encoder {named.name if named.is_dir() else self.encoder}" if self.encoder else ""
        precision = self.facts.get("options", {}).get("precision")
        trained = f", trained in {precision}" if precision else ""
        found = [f"{recipe.protocol}; scale {self.scale}{encoder}{trained}{seeded}"]
        if self.facts.get("options", {}).get("released"):
            found.insert(0, "released checkpoints: nothing was trained here; layers (flow, whitening) were fitted here")
        found += filter(None, (self._tracked_note(), self._pool_note(), self._released_note(), self._copies_note()))
        found += self._search_notes()
        if len(seeds) > 1 and recipe.measure in OF_ONE_SEED:
            found.append(f"{OF_ONE_SEED[recipe.measure]} of seed {seeds[0]}")
        for column, label in recipe.columns.items():
            agreement = self.agreement(column)
            if agreement is not None:
                found.append(
                    f"{label}: Kendall's tau {agreement.tau:+.2f} against the paper over {agreement.rows} rows "
                    f"(p = {agreement.p:.2g}): {agreement.words}"
                )
        if extra := [row.row.label for row in self.rows if row.row.extra]:
            found.append(f"not in the paper's table, and left out of its ordering: {', '.join(extra)}")
        notes = dict.fromkeys(row.note for row in self.rows if row.note)
        labels = {note: [row.row.label for row in self.rows if row.note == note] for note in notes}
        found += [f"{', '.join(labels[note])}: {note}" for note in notes]
        found += [f"{row.row.label}: {each}" for row in self.rows for each in row.checkpoints]
        found += [f"text read: {describe_text(name, facts)}" for name, facts in self.facts.get("corpora", {}).items()]
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
            # Model and query are not repeated from line to line.
            [*((row.row.label, query) if place == 1 else ("", "")), str(place), *_answer(answer), theirs]
            for row in self.rows
            for query, answers in (first_seed(row).get("found", {}) if row.more else {}).items()
            for place, (answer, theirs) in enumerate(zip(answers, PAPER_ANSWERS[query][row.row.key], strict=False), 1)
        ]
        columns = ["model", "query", "#", "cosine", "ours", "paper"]
        notes = [note for note in (self._pool_note(),) if note]
        return [
            Grid(
                title=self._titled("The captions found"),
                columns=columns,
                rows=rows,
                words=("query", "ours", "paper"),
                notes=notes,
            )
        ]

    def _pool_note(self) -> str:
        """Say how many captions were searched, and how many of the paper's are among them."""
        pools = {row.row.label: first_seed(row) for row in self.rows if row.more}
        pools = {label: more for label, more in pools.items() if "captions" in more}
        if not pools:
            return ""
        cut = self.facts["options"]["scale"]["captions"] is not None
        first = " (they were put in first)" if cut and any(more["there"] for more in pools.values()) else ""
        there = ", ".join(f"{label} {more['there']} of 6" for label, more in pools.items())
        searched = f"searched {next(iter(pools.values()))['captions']:,} captions (the paper: {PAPERS_CAPTIONS:,})"
        return f"{searched}; of those that the paper's models found, they have: {there}{first}"

    def _released_note(self) -> str:
        """Say how many numbers of SimCSE's own checkpoints agree with the paper, and which do not."""
        found = [
            (f"{row.row.label}, {self.recipe.columns[column]}", cell.difference)
            for row in self.rows
            if any(stated.startswith(SIMCSES) for stated in row.checkpoints)
            for column, cell in row.cells.items()
            if cell.difference is not None
        ]
        if not found or self.recipe.measure not in EXACT:
            return ""
        away = [(name, gap) for name, gap in found if abs(gap) > AGREES + 1e-9]
        near = f"{len(found) - len(away)} of {len(found)} numbers within {AGREES} of the paper's"
        others = "; not: " + ", ".join(f"{name} {number(gap, sign=True)}" for name, gap in away) if away else ""
        return f"SimCSE's checkpoints: {near}{others}"

    def _copies_note(self) -> str:
        """Name the evaluation files that are not SentEval's, whose scores do not compare with published ones."""
        files = self.facts.get("evaluation", {})
        other = [name for name, digest in files.items() if not is_sentevals(name, digest)]
        if not other or self.scale == "smoke":  # where they are generated
            return ""
        first = f"{', '.join(other[:3])}{' ...' if len(other) > 3 else ''}"
        return (
            f"{counted(len(other), 'evaluation file')} not SentEval's copy ({first}): scores on them do not compare "
            "with the paper's"
        )

    def _search_notes(self) -> list[str]:
        """Say which settings of a search have no score, and why."""
        if self.recipe.measure != "grid":
            return []
        from twinpass.recipes.tables.table_a1 import setting_name

        found = []
        for row in self.rows:
            reasons: defaultdict[str, Counter[str]] = defaultdict(Counter)
            for each in chain(*_tried(row)):
                if "failed" in each:
                    reasons[each["failed"]][setting_name(each)] += 1
            for reason, settings in reasons.items():
                named = "; ".join(f"{setting} ({counted(count, 'seed')})" for setting, count in settings.items())
                found.append(f"{row.row.label}: no score of {named}: {reason}")
        return found

    def _tracked_note(self) -> str:
        """Say so where a scale follows less of STS-B during training than the paper."""
        if self.recipe.measure != "trajectory" or self.facts["options"]["scale"]["tracked"] == "all":
            return ""
        return "followed on STS-B dev alone (--track dev), which takes a fifth of the time of all its splits"

    def _searches(self) -> list[Grid]:
        """Return the score of every setting of a search by grid, one table per row."""
        if self.recipe.measure != "grid":
            return []
        grids = []
        for row in self.rows:
            scores = searched(row)
            if not scores:
                continue
            batches, rates = (list(dict.fromkeys(values)) for values in zip(*scores, strict=True))
            lines = [[f"batch {b}", *(ours(scores[b, r]) for r in rates)] for b in batches]
            columns = ["", *(f"rate {rate:g}" for rate in rates)]
            title = self._titled(f"{row.row.label}: STS-B dev of every setting")
            grids.append(Grid(title=title, columns=columns, rows=lines))
        return grids

    def to_dict(self) -> dict[str, Any]:
        """Return every number by row, column and seed, with options, versions and the text that was read."""
        recipe = self.recipe
        agreement = {column: self.agreement(column) for column in recipe.columns}
        document: dict[str, Any] = plain(
            {"recipe": recipe.name, "title": recipe.title, "about": self.about}
            | self.facts
            | {
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
                        "extra": row.row.extra,
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
            {"recipe": self.recipe.name, "row": row.row.key, "label": row.row.label, "column": column}
            | {name: value for name, value in cell.to_dict().items() if name != "ours"}
            for row in self.rows
            for column, cell in row.cells.items()
        ]


def _tried(row: RowOutcome) -> list[list[dict[str, Any]]]:
    """Return the settings that a search tried, one list per seed."""
    return [each["grid"] for found in row.more.values() for each in found]


def searched(row: RowOutcome) -> dict[tuple[float, ...], Cell]:
    """Return the scores of a search by batch size and learning rate; a setting that always failed has none."""
    from twinpass.recipes.measures import scores_by_setting

    found = scores_by_setting([each for of_seeds in row.more.values() for each in of_seeds])
    return {setting: Cell(ours=tuple(filterfalse(math.isnan, scores))) for setting, scores in found.items()}


def _answer(answer: dict[str, Any]) -> tuple[str, str]:
    return f"{answer['cosine']:.3f}", answer["text"]


def first_seed(row: RowOutcome) -> dict[str, Any]:
    """Return what the first seed found beside its numbers."""
    found: dict[str, Any] = next(iter(row.more.values()))[0]
    return found


def number(value: float | None, *, sign: bool = False, counts: bool = False) -> str:
    """Write a number with two decimals, or in full where two are not enough, or for a count too many."""
    if value is None or math.isnan(value):
        return NOTHING
    form = ".4g" if counts or 0 < abs(value) < SMALL else ".2f"
    return f"{value:{'+' * sign}{form}}"


def ours(cell: Cell, *, counts: bool = False) -> str:
    """Write our mean, with the deviation over seeds where there are several."""
    if cell.mean is None or cell.deviation is None:
        return number(cell.mean, counts=counts)
    small = 0 < abs(cell.mean) < SMALL  # a learning rate, say
    return f"{number(cell.mean, counts=counts)} ± {cell.deviation:{'.1g' if small else '.2g' if counts else '.2f'}}"


def write_report(outcome: Outcome, folder: Path) -> list[Path]:
    """Write NAME.json, .md, .tex and the figure into a folder."""
    from twinpass.analysis.drawing import write_figure
    from twinpass.recipes.figures import draw_outcome

    with explaining(folder):
        folder.mkdir(parents=True, exist_ok=True)
    written = [folder / f"{outcome.recipe.name}.{suffix}" for suffix in ("json", "md", "tex")]
    write_json(written[0], outcome.to_dict())
    for path, write in zip(written[1:], (to_markdown, to_latex), strict=True):
        with writing(path) as aside:
            aside.write_text(write(outcome.grids()), encoding="utf-8")
    drawing = draw_outcome(outcome)
    return written + (write_figure(drawing, folder) if drawing is not None else [])
