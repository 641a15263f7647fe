"""What an evaluation found: every score with its protocol and interval, and the tables that show them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from twinpass.display import Displayed, Grid, to_latex, to_markdown, to_text
from twinpass.errors import OutputError
from twinpass.evaluation.answers import Answers, Pairs
from twinpass.evaluation.protocols import CELLS, DEFAULT_CELL, PUBLISHED, Cell, papers_using, published_beside
from twinpass.evaluation.statistics import LEVEL, Array, interval
from twinpass.evaluation.tasks import GROUPS
from twinpass.files import check_writable, plain, sealed, writing
from twinpass.registry import Registry
from twinpass.text.tables import write_table

SCALE = 100.0  # scores are given as published: correlations and shares times 100
PAPER = "paper"  # what results can be shown beside
TABLES = ("parquet", "jsonl")  # rows that a program reads; the formats of `to_text` are read by people, too
SUFFIXES = {
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".md": "markdown",
    ".tex": "latex",
}
INTERVAL = "95 % interval"
COUNTED = {"retrieval": "queries", "classes": "texts, accuracy"}  # what a score is over, where it is not pairs
METRICS = {
    "spearman": "Spearman",
    "pearson": "Pearson",
    "f1": "F1",
    "r_at_1": "R@1",
    "r_at_5": "R@5",
    "r_at_10": "R@10",
    "mrr": "MRR",
    "ndcg_at_10": "nDCG@10",
    "ap": "AP",
}


@dataclass(frozen=True, kw_only=True)
class Score:
    """One number times 100: which metric, over what, by which protocol, and its 95 % interval (NaN: none)."""

    metric: str
    over: str
    protocol: str
    value: float
    low: float = float("nan")
    high: float = float("nan")
    n: int = 0


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """The scores of one task, the main one first, with the items and resampled values behind them."""

    task: str
    kind: str
    split: str
    scores: list[Score]
    files: Mapping[str, str | None] = field(default_factory=dict)
    licence: str = ""
    citation: str = ""
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    items: Mapping[str, Answers] = field(repr=False)
    samples: Mapping[str, Mapping[str, Array]] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the scores, what they were computed from, and the items."""
        fields = {name: value for name, value in vars(self).items() if name != "samples"}
        return fields | {"items": {name: items.to_json() for name, items in self.items.items()}}


class Saved(Displayed):
    """Results that are written in many formats."""

    def to_text(self, form: str = "table") -> str:
        """Return the results as table, json, csv, markdown or latex."""
        return FORMATS[form](self).rstrip("\n")

    def save(self, path: str | Path) -> None:
        """Write the results to a .json (which `compare` reads), .csv, .parquet, .jsonl, .md or .tex file."""
        form = check_output(Path(path))
        if form in TABLES:
            records = self.records()
            write_table(path, records, columns=list(records[0]) if records else ())
            return
        with writing(path) as aside:
            aside.write_text(f"{self.to_text(form)}\n", encoding="utf-8")


@dataclass(frozen=True, kw_only=True, repr=False)
class Results(Saved):
    """An evaluation of one model; `cells`, `subsets` and `beside` say what its tables show."""

    model: str
    fingerprint: str | None
    computing: Mapping[str, str] = field(default_factory=dict)  # an encoder's precision and runtime
    tasks: list[TaskResult]
    averages: list[Score]
    resamples: int
    seed: int
    seconds: float
    provenance: Mapping[str, Any] = field(default_factory=dict)
    cells: bool = False
    subsets: bool = False
    beside: str | None = None
    by_dimensions: Mapping[int, Results] = field(default_factory=dict)  # where several sizes were scored

    @property
    def label(self) -> str:
        """The model's name, with its precision where that is not fp32, and its dimensions where they are chosen."""
        return labelled(self.model, self.computing)

    def grids(self) -> list[Grid]:
        """Return STS (by one protocol or all), its subsets if they are shown, transfer, and every other task."""
        sts, transfer = ([task for task in self.tasks if task.kind == kind] for kind in ("sts", "transfer"))
        grids = [_sts_grid(self, sts)] if sts else []
        if self.subsets:
            grids += [_subset_grid(task, names) for task in sts if len(names := _subsets(task)) > 1]
        if transfer:
            grids.append(_transfer_grid(self, transfer))
        grids += [_other_grid(self, task) for task in self.tasks if task.kind not in ("sts", "transfer")]
        return grids + ([_dimensions_grid(self)] if self.by_dimensions else [])

    @property
    def main_scores(self) -> dict[str, Score]:
        """The main score of each task, and the averages of seven by the paper's protocols, by name."""
        averages = [s for s in self.averages if s.protocol == DEFAULT_CELL.name or s.protocol.startswith("transfer")]
        names = ["Avg. STS" if s.protocol == DEFAULT_CELL.name else "Avg. transfer" for s in averages]
        return {task.task: task.scores[0] for task in self.tasks} | dict(zip(names, averages, strict=True))

    def records(self) -> list[dict[str, Any]]:
        """Return every score with all that says what it is."""
        places = [(task.task, task.kind, task.split, score) for task in self.tasks for score in task.scores]
        places += [("Avg.", "", "", score) for score in self.averages]
        columns = ("over", "metric", "protocol", "value", "low", "high", "n")
        if self.by_dimensions:
            return [record for each in self.by_dimensions.values() for record in each.records()]
        return [
            {"model": self.label, "task": task, "kind": kind, "split": split} | {c: getattr(score, c) for c in columns}
            for task, kind, split, score in places
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the document that a result file holds; `compare` reads it."""
        document = {
            **self.provenance,
            "model": {"name": self.model, "fingerprint": self.fingerprint, **self.computing},
            "scale": SCALE,
            "confidence": {"level": LEVEL, "resamples": self.resamples, "seed": self.seed},
            "cells": {cell.name: list(papers_using(cell)) for cell in CELLS},
            "averages": self.averages,
            "tasks": [task.to_dict() for task in self.tasks],
            "seconds": self.seconds,
        }
        if self.by_dimensions:
            document["by_dimensions"] = {str(n): each.main_scores for n, each in self.by_dimensions.items()}
        if self.beside is not None:
            document["beside"] = [row._asdict() | {"cell": row.cell.name if row.cell else None} for row in PUBLISHED]
        plain_document: dict[str, Any] = plain(document)
        return plain_document


FORMATS: Registry[Callable[[Displayed], str]] = Registry("format")
FORMATS.add("table", lambda results: to_text(results.grids()))
FORMATS.add(
    "json", lambda results: json.dumps(sealed(results.to_dict()), indent=2, ensure_ascii=False, allow_nan=False)
)
FORMATS.add("csv", lambda results: results.to_csv())
FORMATS.add("markdown", lambda results: to_markdown(results.grids()))
FORMATS.add("latex", lambda results: to_latex(results.grids()))


def labelled(name: str, computing: Mapping[str, str]) -> str:
    """Return a name with what scores differ by: a precision other than fp32, and dimensions that were chosen."""
    notes = [f"{computing['dimensions']} dimensions"] if "dimensions" in computing else []
    if (precision := computing.get("precision", "fp32")) != "fp32":
        notes.insert(0, precision)
    return f"{name} ({', '.join(notes)})" if notes else name


def check_output(path: Path) -> str:
    """Return the format of a file that can be written, by its suffix."""
    if path.suffix not in SUFFIXES:
        raise OutputError(f"cannot write {path}: expected a name that ends in {', '.join(SUFFIXES)}.")
    check_writable(path)
    return SUFFIXES[path.suffix]


def average_scores(tasks: list[TaskResult]) -> list[Score]:
    """Return Avg. of the seven STS tasks in each cell, and of the seven transfer tasks, where all seven were scored."""
    by_name = {result.task: result for result in tasks}
    averages: list[Score | None] = []
    if by_name.keys() >= set(GROUPS["sts"]):
        years = [by_name[name] for name in GROUPS["sts"]]
        averages += [_sts_average(years, cell) for cell in cells_of(years)]
    if by_name.keys() >= set(GROUPS["transfer"]):
        seven = [by_name[name] for name in GROUPS["transfer"]]
        samples = [result.samples["test"]["accuracy"] for result in seven]
        protocol = f"transfer, accuracy, {seven[0].scores[0].protocol}, test"
        averages.append(_average([result.scores[0] for result in seven], samples, protocol))
    return [score for score in averages if score]


def cells_of(tasks: list[TaskResult]) -> list[Cell]:
    """Return the cells of STS that these tasks have scores in: those of a regressor only if one was trained."""
    regressed = any("regressor" in task.items for task in tasks)
    return [cell for cell in CELLS if regressed or not cell.regressor]


def cell_score(result: TaskResult, cell: Cell) -> Score | None:
    """Return a task's score in a cell of STS; a year has no training pairs and keeps its cosine beside a regressor."""
    found = {s.protocol: s for s in result.scores if (s.metric, s.over) == (cell.metric, cell.aggregation)}
    regressed = found.get("regressor") if cell.regressor else None
    return regressed or found.get("no regressor")


def _sts_average(years: list[TaskResult], cell: Cell) -> Score | None:
    scores = [score for result in years if (score := cell_score(result, cell))]
    if len(scores) < len(years):
        return None
    kinds = ["regressor" if cell.regressor and "regressor" in result.items else "cosine" for result in years]
    key = f"{cell.aggregation} {cell.metric}"
    samples = [result.samples[kind][key] for result, kind in zip(years, kinds, strict=True)]
    return _average(scores, samples, cell.name)


def _average(scores: list[Score], samples: list[Array], protocol: str) -> Score:
    """The mean of values each rounded to two decimals, as in the tables of the paper."""
    low, high = interval(SCALE * np.mean(samples, axis=0))
    value = float(np.mean([round(score.value, 2) for score in scores]))
    count = sum(score.n for score in scores)
    return Score(metric=scores[0].metric, over="Avg.", protocol=protocol, value=value, low=low, high=high, n=count)


def _number(score: Score | None) -> str:
    """A score with two decimals; a dash where there is none."""
    return "-" if score is None or math.isnan(score.value) else f"{score.value:.2f}"


def _span(score: Score | None) -> str:
    """A score's interval."""
    return "" if score is None or math.isnan(score.low) else f"{score.low:.2f} to {score.high:.2f}"


def _sts_grid(results: Results, tasks: list[TaskResult]) -> Grid:
    cells = cells_of(tasks) if results.cells else [DEFAULT_CELL]
    averages = {score.protocol: score for score in results.averages if score.metric in ("spearman", "pearson")}
    columns = ["", *(task.task for task in tasks), *(["Avg."] if averages else [])]
    rows = []
    notes = [f"{task.task}: {note}" for task in tasks for note in task.notes]
    for cell in cells:
        scores = [cell_score(task, cell) for task in tasks] + ([averages.get(cell.name)] if averages else [])
        rows.append([results.label if len(cells) == 1 else cell.name, *map(_number, scores)])
        if len(cells) == 1:
            rows.append([f"  {INTERVAL}", *map(_span, scores)])
        rows += _beside(results, cell, columns)
        papers = "; ".join(papers_using(cell)) or "no paper of Table B.1"
        notes.append(f"{cell.name}: used by {papers}")
    metric = f"{results.label}, every protocol" if len(cells) > 1 else cells[0].name
    splits = "/".join(dict.fromkeys(task.split for task in tasks))
    return Grid(f"STS, correlation x 100 ({metric}, {splits})", columns, rows, notes)


def _beside(results: Results, cell: Cell | None, columns: Sequence[str]) -> list[list[str]]:
    """The published rows of the same protocol, one value for each column that is shown."""
    rows = []
    for row in published_beside(cell) if results.beside else ():
        values = dict(zip((*GROUPS["sts" if cell else "transfer"], "Avg."), row.values, strict=True))
        name = f"{row.model}{', ' + row.training if row.training else ''} [Table {row.table}]"
        rows.append([name, *(f"{values[task]:.2f}" if task in values else "" for task in columns[1:])])
    return rows


def _subsets(task: TaskResult) -> list[str]:
    items = task.items["cosine"]
    return list(items.subsets) if isinstance(items, Pairs) else []


def _subset_grid(task: TaskResult, names: list[str]) -> Grid:
    rows = []
    for name in names:
        found = [s for s in task.scores if s.over == name]
        rows.append([name, f"{found[0].n:,}", *(text for s in found for text in (_number(s), _span(s)))])
    columns = ["", "pairs", "Spearman", INTERVAL, "Pearson", INTERVAL]
    return Grid(f"{task.task} by subset, x 100 (no regressor)", columns, rows)


def _transfer_grid(results: Results, tasks: list[TaskResult]) -> Grid:
    average = [s for s in results.averages if s.protocol.startswith("transfer")]
    columns = ["", *(task.task for task in tasks), *(["Avg."] if average else [])]
    test = [task.scores[0] for task in tasks] + average
    rows = [
        [f"{results.label}, test", *map(_number, test)],
        [f"  {INTERVAL}", *map(_span, test)],
        [f"{results.label}, dev", *(_number(task.scores[-1]) for task in tasks), *[""] * len(average)],
        *_beside(results, None, columns),
    ]
    f1 = [(task.task, score) for task in tasks for score in task.scores if score.metric == "f1"]
    notes = [f"{name}: test F1 {_number(score)} ({_span(score)})" for name, score in f1]
    title = f"Transfer, accuracy in per cent (SentEval, {test[0].protocol} protocol)"
    return Grid(title, columns, rows, notes)


def _other_grid(results: Results, task: TaskResult) -> Grid:
    labels = [s.protocol if task.kind == "classes" else METRICS.get(s.metric, s.metric) for s in task.scores]
    rows = [[label, _number(s), _span(s)] for label, s in zip(labels, task.scores, strict=True)]
    count = f"{task.scores[0].n:,} {COUNTED.get(task.kind, 'pairs')}"
    title = labelled(f"{task.task}, x 100 ({count if task.scores[0].n else task.split})", results.computing)
    return Grid(title, ["", "score", INTERVAL], rows, task.notes)


def _dimensions_grid(results: Results) -> Grid:
    """One row of main scores for each size, its interval below it."""
    names, rows = list(results.main_scores), []
    for size, each in results.by_dimensions.items():
        scores = [each.main_scores[name] for name in names]
        rows += [[str(size), *map(_number, scores)], [f"  {INTERVAL}", *map(_span, scores)]]
    metrics = dict.fromkeys(METRICS.get(score.metric, score.metric) for score in results.main_scores.values())
    title = f"{results.model}: score over dimensions, x 100 ({', '.join(metrics)})"
    return Grid(title, ["dimensions", *names], rows)
