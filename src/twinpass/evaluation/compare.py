"""Compare two models on the same items: paired bootstrap, and a plain word where no difference shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from twinpass.errors import InputError
from twinpass.evaluation.confidence import RESAMPLES, interval, two_sided_p
from twinpass.evaluation.correlation import Array
from twinpass.evaluation.itemfile import from_json
from twinpass.evaluation.items import Items, Labelled, Pairs, Predictions
from twinpass.evaluation.results import SCALE, Results
from twinpass.evaluation.tasks import GROUPS

SAME = "no difference shown"


class Judged(NamedTuple):
    """A model's name and the items behind its scores, by task."""

    name: str
    items: Mapping[str, Items]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """First minus second on one task, times 100, with its 95 % interval, p, and what that shows."""

    task: str
    metric: str
    first: float
    second: float
    difference: float
    low: float
    high: float
    p: float
    n: int
    verdict: str


def judged(results: Results) -> Judged:
    """Take the items of results: the cosine of STS, the test predictions of transfer, and so on."""
    tasks = [task for task in results.tasks if task.items]
    return Judged(results.model, {task.task: next(iter(task.items.values())) for task in tasks})


def read_judged(path: Path) -> Judged:
    """Read the items from a result file that `evaluate` wrote."""
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
        tasks = [task for task in document["tasks"] if task["items"]]
        items = {task["task"]: from_json(next(iter(task["items"].values()))) for task in tasks}
        return Judged(f"{document['model']['name']} ({path})", items)
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        raise InputError(
            f"{path} is no result file with items: {error!r}. Write one with: twinpass evaluate ... -o FILE.json"
        ) from error


def compare(first: Judged, second: Judged, *, resamples: int = RESAMPLES, seed: int = 42) -> list[Difference]:
    """Return the difference on each task both were scored on, then on the average of a whole group."""
    names = [name for name in first.items if name in second.items]
    if not names:
        raise InputError(
            f"{first.name} and {second.name} share no task: {_list(first)} against {_list(second)}. "
            "Evaluate both on the same tasks."
        )
    found: dict[str, _Found] = {}
    for name in names:
        _check_same(name, first, second)
        found[name] = _task(name, first.items[name], second.items[name], resamples=resamples, seed=seed)
    for group, members in GROUPS.items():
        if all(member in found for member in members):
            found[f"Avg. {group}"] = _mean([found[member] for member in members])
    return [_difference(name, entry, first, second) for name, entry in found.items()]


class _Found(NamedTuple):
    metric: str
    first: float
    second: float
    samples: Array
    n: int


def _task(name: str, first: Items, second: Items, *, resamples: int, seed: int) -> _Found:
    """Resample both alike: the same seed and name draw the same items for each."""
    key = first.headline
    one, two = (entry.samples(resamples=resamples, seed=seed, name=name)[key] for entry in (first, second))
    return _Found(key, first.values()[key], second.values()[key], one - two, _count(first))


def _mean(parts: list[_Found]) -> _Found:
    samples: Array = np.mean([part.samples for part in parts], axis=0)
    first, second = (float(np.mean([getattr(part, side) for part in parts])) for side in ("first", "second"))
    return _Found(parts[0].metric, first, second, samples, sum(part.n for part in parts))


def _difference(name: str, found: _Found, first: Judged, second: Judged) -> Difference:
    samples = found.samples[np.isfinite(found.samples)]
    low, high = interval(SCALE * samples)
    better = first.name if low > 0 else second.name if high < 0 else None
    return Difference(
        task=name,
        metric=found.metric,
        first=SCALE * found.first,
        second=SCALE * found.second,
        difference=SCALE * (found.first - found.second),
        low=low,
        high=high,
        p=two_sided_p(samples) if len(samples) else float("nan"),
        n=found.n,
        verdict=f"{better} is better" if better else SAME,
    )


def _check_same(name: str, first: Judged, second: Judged) -> None:
    """Pairs can be compared only where both models met the same ones."""
    one, two = first.items[name], second.items[name]
    golds = _gold(one), _gold(two)
    asked = getattr(one, "asked", None) == getattr(two, "asked", None)
    if not asked or golds[0].shape != golds[1].shape or not np.allclose(*golds):
        raise InputError(
            f"{name}: {first.name} and {second.name} were not scored on the same items "
            f"({_count(one):,} and {_count(two):,}). Evaluate both on the same data."
        )


def _gold(items: Items) -> Array:
    if isinstance(items, Pairs):
        return np.concatenate([gold for _, gold in items.subsets.values()])
    if isinstance(items, (Predictions, Labelled)):
        return items.gold.astype(np.float64)
    return np.zeros(len(items.measures))  # what was asked stands for the gold of queries


def _count(items: Items) -> int:
    return len(_gold(items))


def _list(judged_model: Judged) -> str:
    return ", ".join(judged_model.items) or "none"
