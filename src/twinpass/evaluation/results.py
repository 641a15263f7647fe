"""What an evaluation found: every score with its protocol and interval, and the items it was computed from.

Items are a model's answers, one per pair, text or query. They are enough to compute a score again, to resample it, and
to compare two models; a result file keeps them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from twinpass.display import Displayed, Grid, to_latex, to_markdown, to_text
from twinpass.errors import InputError, OutputError
from twinpass.evaluation.confidence import LEVEL, draw_counts, interval, resampled_pearson, resampled_spearman
from twinpass.evaluation.correlation import Array, pearson, spearman
from twinpass.evaluation.protocols import CELLS, Cell, papers_using
from twinpass.evaluation.retrieval import MEASURES, mean_measures
from twinpass.evaluation.tasks import GROUPS
from twinpass.files import check_writable, plain, write_json, writing
from twinpass.registry import Registry

Classes = npt.NDArray[np.int64]
Samples = dict[str, Array]

SCALE = 100.0  # scores are given as published: correlations and shares times 100
PAPER = "paper"  # what results can be shown beside
SUFFIXES = {".json": "json", ".csv": "csv", ".md": "markdown", ".tex": "latex"}
_CORRELATIONS = {"spearman": (spearman, resampled_spearman), "pearson": (pearson, resampled_pearson)}


class Items:
    """A model's answers to one task, and the scores they add up to."""

    headline: ClassVar[str]  # the score by which two models are compared
    asked: str = ""  # the hash of what was asked, where `targets` does not say it

    @property
    def sizes(self) -> list[int]:
        """How many items are resampled together: one number, or one per subset."""
        return [len(self.targets())]

    def targets(self) -> Array:
        """Return the right answers (n,)."""
        raise NotImplementedError

    def values(self) -> dict[str, float]:
        """Return the scores by name, from 0 to 1 (correlations from -1 to 1)."""
        return {name: float(value[0]) for name, value in self._weighted(np.ones((sum(self.sizes), 1))).items()}

    def samples(self, *, resamples: int, seed: int, name: str) -> Samples:
        """Return the resampled scores (resamples,) under the names of values()."""
        blocks = [self._weighted(c) for c in draw_counts(self.sizes, resamples=resamples, seed=seed, name=name)]
        return {key: np.concatenate([block[key] for block in blocks]) for key in blocks[0]}

    def to_json(self) -> dict[str, Any]:
        """Return the items as text: each row of numbers is one string, which keeps the lines of a file few."""
        raise NotImplementedError

    def _weighted(self, counts: Array) -> Samples:
        """Return the scores (b,) if the items were repeated as counts (n, b) say."""
        raise NotImplementedError


@dataclass(frozen=True)
class Pairs(Items):
    """Scored pairs by subset: {name: (model's scores (n,), gold scores (n,))}."""

    subsets: dict[str, tuple[Array, Array]]
    headline: ClassVar[str] = "all spearman"

    @property
    def sizes(self) -> list[int]:
        """How many pairs each subset holds."""
        return [len(gold) for _, gold in self.subsets.values()]

    def targets(self) -> Array:
        """Return the gold scores of all subsets."""
        return self._joined()[1]

    def values(self) -> dict[str, float]:
        """Return 'all|mean|wmean METRIC' and 'SUBSET METRIC', correlations from -1 to 1."""
        values: dict[str, float] = {}
        for metric, (correlate, _) in _CORRELATIONS.items():
            each = np.array([correlate(*subset) for subset in self.subsets.values()])
            values |= self._named(metric, correlate(*self._joined()), each)
        return values

    def to_json(self) -> dict[str, Any]:
        """Return scores and gold scores by subset."""
        pairs = {name: {"scores": _row(s), "gold": _row(gold)} for name, (s, gold) in self.subsets.items()}
        return {"pairs": pairs}

    def _weighted(self, counts: Array) -> Samples:
        edges = np.cumsum(self.sizes)[:-1]
        samples: Samples = {}
        for metric, (_, correlate) in _CORRELATIONS.items():
            parts = zip(np.split(counts, edges), self.subsets.values(), strict=True)
            each = np.array([correlate(part, *subset) for part, subset in parts])
            joined = correlate(counts, *self._joined()) if len(each) > 1 else each[0]
            samples |= self._named(metric, joined, each)
        return samples

    def _joined(self) -> tuple[Array, Array]:
        scores, gold = zip(*self.subsets.values(), strict=True)
        return np.concatenate(scores), np.concatenate(gold)

    def _named(self, metric: str, everything: Any, each: Array) -> dict[str, Any]:
        """Name the aggregations of one metric, and its subsets where there is more than one."""
        weights = np.array(self.sizes, dtype=np.float64)
        named = {f"all {metric}": everything, f"mean {metric}": each.mean(axis=0)}
        named[f"wmean {metric}"] = np.average(each, axis=0, weights=weights)
        if len(each) > 1:
            named |= {f"{subset} {metric}": value for subset, value in zip(self.subsets, each, strict=True)}
        return {name: value if np.ndim(value) else float(value) for name, value in named.items()}


@dataclass(frozen=True)
class Predictions(Items):
    """Predicted and true classes: accuracy and, where there are two classes, F1 of class 1."""

    gold: Classes
    predicted: Classes
    headline: ClassVar[str] = "accuracy"

    def targets(self) -> Array:
        """Return the true classes."""
        return self.gold.astype(np.float64)

    def to_json(self) -> dict[str, Any]:
        """Return one digit per item."""
        return {"gold": _digits(self.gold), "predicted": _digits(self.predicted)}

    def _weighted(self, counts: Array) -> Samples:
        right = self.gold == self.predicted
        found, claimed, true = right & (self.gold == 1), self.predicted == 1, self.gold == 1
        sums = np.stack([right, found, claimed, true]).astype(np.float64) @ counts
        scores = {"accuracy": sums[0] / len(self.gold)}
        if self.gold.max() <= 1:
            scores["f1"] = 2 * sums[1] / np.maximum(sums[2] + sums[3], 1)
        return scores


@dataclass(frozen=True)
class Queries(Items):
    """Retrieval measures of each query, (n, 5) in the order of MEASURES; `asked` is the hash of queries and answers."""

    measures: Array
    asked: str = ""
    headline: ClassVar[str] = "mrr"

    def targets(self) -> Array:
        """Return zeros: `asked` stands for the right answers."""
        return np.zeros(len(self.measures))

    def values(self) -> dict[str, float]:
        """Return the mean of each measure, from 0 to 1."""
        return mean_measures(self.measures)

    def to_json(self) -> dict[str, Any]:
        """Return one row per measure, and what was asked."""
        return {"queries": [_row(column) for column in self.measures.T], "asked": self.asked}

    def _weighted(self, counts: Array) -> Samples:
        return dict(zip(MEASURES, self.measures.T @ counts / len(self.measures), strict=True))


@dataclass(frozen=True)
class Labelled(Items):
    """Scores (n,) of pairs that are alike (1) or not (0): average precision, and accuracy at the best threshold."""

    scores: Array
    gold: Classes
    headline: ClassVar[str] = "ap"

    def targets(self) -> Array:
        """Return the labels."""
        return self.gold.astype(np.float64)

    def to_json(self) -> dict[str, Any]:
        """Return one digit per label, and the scores."""
        return {"labels": _digits(self.gold), "scores": _row(self.scores)}

    def threshold(self) -> float:
        """Return the score at or above which calling pairs alike is right most often."""
        order, last = self._cuts()
        right = self._right(np.ones((len(self.gold), 1)))[:, 0]
        at = int(right.argmax())  # how many distinct scores, from the top, are called alike
        steps = np.concatenate([[np.inf], self.scores[order][last], [-np.inf]])
        upper, lower = steps[at], steps[at + 1]
        return float((upper + lower) / 2 if np.isfinite(upper + lower) else (lower if at == 0 else upper))

    def _weighted(self, counts: Array) -> Samples:
        order, last = self._cuts()
        found = np.cumsum(counts[order] * self.gold[order, None], axis=0)[last]
        claimed = np.cumsum(counts[order], axis=0)[last]
        newly = np.diff(found, axis=0, prepend=0)
        precision = found / np.maximum(claimed, 1)
        ap = (newly * precision).sum(axis=0) / np.maximum(found[-1], 1)
        return {"ap": ap, "accuracy": self._right(counts).max(axis=0) / len(self.gold)}

    def _right(self, counts: Array) -> Array:
        """Right answers (cuts + 1, b) if the pairs above each cut are called alike; the first cut is above all."""
        order, last = self._cuts()
        gain = np.cumsum(counts[order] * (2 * self.gold[order, None] - 1), axis=0)[last]
        unlike = (counts * (1 - self.gold[:, None])).sum(axis=0)
        right: Array = np.vstack([np.zeros((1, counts.shape[1])), gain]) + unlike
        return right

    def _cuts(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Pairs from the highest score down, and where runs of equal scores end."""
        order = np.argsort(-self.scores, kind="stable")
        ends = np.flatnonzero(np.append(np.diff(self.scores[order]) != 0, True))
        return order, ends


def items_from_json(document: dict[str, Any]) -> Items:
    """Rebuild items from what their to_json returned."""
    try:
        for key, build in _BUILDERS.items():
            if key in document:
                return build(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"the items of a result cannot be read: {error!r}. Evaluate again.") from error
    raise InputError(f"the items of a result are of no known kind: {', '.join(document) or 'none'}.")


def _row(numbers: Array) -> str:
    """Every digit: a rank can depend on the last one."""
    return " ".join(f"{number!r}" for number in numbers.tolist())


def _numbers(row: str) -> Array:
    return np.array(row.split(), dtype=np.float64)


def _digits(classes: Classes) -> str:
    return "".join(map(str, classes.tolist()))


def _classes(digits: str) -> Classes:
    return np.array([int(digit) for digit in digits], dtype=np.int64)


_BUILDERS: dict[str, Callable[[dict[str, Any]], Items]] = {
    "pairs": lambda d: Pairs({k: (_numbers(part["scores"]), _numbers(part["gold"])) for k, part in d["pairs"].items()}),
    "predicted": lambda d: Predictions(_classes(d["gold"]), _classes(d["predicted"])),
    "labels": lambda d: Labelled(_numbers(d["scores"]), _classes(d["labels"])),
    "queries": lambda d: Queries(np.stack([_numbers(row) for row in d["queries"]], axis=1), d["asked"]),
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
    items: Mapping[str, Items] = field(repr=False)
    samples: Mapping[str, Mapping[str, Array]] = field(repr=False)

    def find(self, *, metric: str, over: str, protocol: str) -> Score | None:
        """Return the score of this metric, over this, by this protocol, if it was computed."""
        key = (metric, over, protocol)
        return next((s for s in self.scores if (s.metric, s.over, s.protocol) == key), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the scores, what they were computed from, and the items."""
        fields = {name: value for name, value in vars(self).items() if name != "samples"}
        return fields | {"items": {name: items.to_json() for name, items in self.items.items()}}


@dataclass(frozen=True, kw_only=True, repr=False)
class Results(Displayed):
    """An evaluation of one model; `cells`, `subsets` and `beside` say what its tables show."""

    model: str
    fingerprint: str | None
    tasks: list[TaskResult]
    averages: list[Score]
    resamples: int
    seed: int
    seconds: float
    provenance: Mapping[str, Any] = field(default_factory=dict)
    cells: bool = False
    subsets: bool = False
    beside: str | None = None

    def grids(self) -> list[Grid]:
        """Return a table for STS, one for transfer, and one for each other task."""
        from twinpass.evaluation.tables import make_grids

        return make_grids(self)

    def records(self) -> list[dict[str, Any]]:
        """Return every score with all that says what it is."""
        places = [(task.task, task.kind, task.split, score) for task in self.tasks for score in task.scores]
        places += [("Avg.", "", "", score) for score in self.averages]
        columns = ("over", "metric", "protocol", "value", "low", "high", "n")
        return [
            {"model": self.model, "task": task, "kind": kind, "split": split} | {c: getattr(score, c) for c in columns}
            for task, kind, split, score in places
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the document that a result file holds; `compare` reads it."""
        document = {
            **self.provenance,
            "model": {"name": self.model, "fingerprint": self.fingerprint},
            "scale": SCALE,
            "confidence": {"level": LEVEL, "resamples": self.resamples, "seed": self.seed},
            "cells": {cell.name: list(papers_using(cell)) for cell in CELLS},
            "averages": self.averages,
            "tasks": [task.to_dict() for task in self.tasks],
            "seconds": self.seconds,
        }
        if self.beside is not None:
            from twinpass.evaluation.published import PUBLISHED

            document["beside"] = [row._asdict() | {"cell": row.cell.name if row.cell else None} for row in PUBLISHED]
        plain_document: dict[str, Any] = plain(document)
        return plain_document

    def to_text(self, form: str = "table") -> str:
        """Return the results as table, json, csv, markdown or latex."""
        return FORMATS[form](self).rstrip("\n")

    def save(self, path: str | Path) -> None:
        """Write the results to a .json (which `compare` reads), .csv, .md or .tex file."""
        path = Path(path)
        form = check_output(path)
        if form == "json":
            write_json(path, self.to_dict())
            return
        with writing(path) as aside:
            aside.write_text(self.to_text(form), encoding="utf-8")


FORMATS: Registry[Callable[[Results], str]] = Registry("format")
FORMATS.add("table", lambda results: to_text(results.grids()))
FORMATS.add("json", lambda results: json.dumps(results.to_dict(), indent=2, ensure_ascii=False, allow_nan=False))
FORMATS.add("csv", lambda results: results.to_csv())
FORMATS.add("markdown", lambda results: to_markdown(results.grids()))
FORMATS.add("latex", lambda results: to_latex(results.grids()))


def check_output(path: Path) -> str:
    """Return the format of a file that can be written, by its suffix."""
    if path.suffix not in SUFFIXES:
        raise OutputError(f"cannot write {path}: expected a name that ends in {', '.join(SUFFIXES)}.")
    check_writable(path)
    return SUFFIXES[path.suffix]


def average_scores(tasks: list[TaskResult]) -> list[Score]:
    """Return Avg. of the seven STS tasks in each cell, and of the seven transfer tasks, where all seven were scored."""
    by_name = {result.task: result for result in tasks}
    averages = []
    if by_name.keys() >= set(GROUPS["sts"]):
        years = [by_name[name] for name in GROUPS["sts"]]
        averages += [_sts_average(years, cell) for cell in cells_of(years)]
    if by_name.keys() >= set(GROUPS["transfer"]):
        averages.append(_transfer_average([by_name[name] for name in GROUPS["transfer"]]))
    return [score for score in averages if score]


def cells_of(tasks: list[TaskResult]) -> list[Cell]:
    """Return the cells of STS that these tasks have scores in: those of a regressor only if one was trained."""
    regressed = any("regressor" in task.items for task in tasks)
    return [cell for cell in CELLS if regressed or not cell.regressor]


def cell_score(result: TaskResult, cell: Cell) -> Score | None:
    """Return a task's score in a cell of STS; a year has no training pairs and keeps its cosine beside a regressor."""
    protocols = ["regressor", "no regressor"] if cell.regressor else ["no regressor"]
    found = (result.find(metric=cell.metric, over=cell.aggregation, protocol=name) for name in protocols)
    return next(filter(None, found), None)


def _sts_average(years: list[TaskResult], cell: Cell) -> Score | None:
    scores = [cell_score(result, cell) for result in years]
    if not all(scores):
        return None
    key = f"{cell.aggregation} {cell.metric}"
    kinds = ["regressor" if cell.regressor and "regressor" in r.items else "cosine" for r in years]
    samples = np.mean([r.samples[kind][key] for r, kind in zip(years, kinds, strict=True)], axis=0)
    return _average([s for s in scores if s], samples, cell.name)


def _transfer_average(results: list[TaskResult]) -> Score:
    samples = np.mean([result.samples["test"]["accuracy"] for result in results], axis=0)
    scores = [result.scores[0] for result in results]
    return _average(scores, samples, f"transfer, accuracy, {scores[0].protocol}, test")


def _average(scores: list[Score], samples: Array, protocol: str) -> Score:
    """The mean of values each rounded to two decimals, as in the tables of the paper."""
    low, high = interval(SCALE * samples)
    value = float(np.mean([round(score.value, 2) for score in scores]))
    count = sum(score.n for score in scores)
    return Score(metric=scores[0].metric, over="Avg.", protocol=protocol, value=value, low=low, high=high, n=count)
