"""What an evaluation found: every score with its protocol and its interval, and what it was taken over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from twinpass.evaluation.confidence import LEVEL, interval
from twinpass.evaluation.correlation import Array
from twinpass.evaluation.itemfile import to_json
from twinpass.evaluation.items import Items
from twinpass.evaluation.protocols import CELLS, Cell, papers_using
from twinpass.evaluation.tasks import GROUPS

SCALE = 100.0  # scores are given as published: correlations and shares times 100


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
    """The scores of one task, the one to go by first, with the items and resampled values behind them."""

    task: str
    kind: str
    split: str
    scores: list[Score]
    items: Mapping[str, Items]
    samples: Mapping[str, Mapping[str, Array]] = field(repr=False)
    files: Mapping[str, str | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    licence: str = ""
    citation: str = ""
    seconds: float = 0.0

    def find(self, *, metric: str, over: str, protocol: str) -> Score | None:
        """Return the score of this metric, over this, by this protocol, if it was taken."""
        wanted = (metric, over, protocol)
        return next((s for s in self.scores if (s.metric, s.over, s.protocol) == wanted), None)


@dataclass(frozen=True, kw_only=True)
class Results:
    """An evaluation of one model."""

    model: str
    fingerprint: str | None
    tasks: list[TaskResult]
    averages: list[Score]
    resamples: int
    seed: int
    seconds: float


def cell_score(result: TaskResult, cell: Cell) -> Score | None:
    """Return a task's score in a cell; a year without training pairs keeps its cosine beside a regressor."""
    for protocol in (["regressor"] if cell.regressor else []) + ["no regressor"]:
        score = result.find(metric=cell.metric, over=cell.aggregation, protocol=protocol)
        if score:
            return score
    return None


def average_scores(tasks: list[TaskResult]) -> list[Score]:
    """Return Avg. of the seven STS tasks in each cell, and of the seven transfer tasks, where all seven are there."""
    by_name = {result.task: result for result in tasks}
    averages = []
    if by_name.keys() >= set(GROUPS["sts"]):
        years = [by_name[name] for name in GROUPS["sts"]]
        regressed = any("regressor" in result.items for result in years)
        averages += [_sts_average(years, cell) for cell in CELLS if regressed or not cell.regressor]
    if by_name.keys() >= set(GROUPS["transfer"]):
        averages.append(_transfer_average([by_name[name] for name in GROUPS["transfer"]]))
    return [score for score in averages if score]


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
    """The mean of values each rounded to two decimals, as the tables of the paper have it."""
    low, high = interval(SCALE * samples)
    value = float(np.mean([round(score.value, 2) for score in scores]))
    count = sum(score.n for score in scores)
    return Score(metric=scores[0].metric, over="Avg.", protocol=protocol, value=value, low=low, high=high, n=count)


def to_document(results: Results, *, items: bool = True) -> dict[str, Any]:
    """Return the results as a JSON object; with items, two such files can be compared pair by pair."""
    return {
        "model": {"name": results.model, "fingerprint": results.fingerprint},
        "scale": SCALE,
        "confidence": {"level": LEVEL, "resamples": results.resamples, "seed": results.seed},
        "cells": {cell.name: list(papers_using(cell)) for cell in CELLS},
        "averages": [asdict(score) for score in results.averages],
        "tasks": [_task_document(result, items) for result in results.tasks],
        "seconds": results.seconds,
    }


def _task_document(result: TaskResult, items: bool) -> dict[str, Any]:
    document = {
        "task": result.task,
        "kind": result.kind,
        "split": result.split,
        "scores": [asdict(score) for score in result.scores],
        "files": dict(result.files),
        "licence": result.licence,
        "citation": result.citation,
        "notes": result.notes,
        "seconds": result.seconds,
    }
    if items:
        document["items"] = {name: to_json(entry) for name, entry in result.items.items()}
    return document
