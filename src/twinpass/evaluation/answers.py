"""A model's answers to a task, one per pair, text or query, and the scores they add up to.

They are enough to compute a score again, to resample it, and to compare two models; a result file keeps them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from twinpass.errors import InputError
from twinpass.evaluation.retrieval import MEASURES, mean_measures
from twinpass.evaluation.statistics import (
    Array,
    Sorted,
    draw_counts,
    pearson,
    resampled_pearson,
    resampled_spearman,
    spearman,
)

Classes = npt.NDArray[np.int64]
Samples = dict[str, Array]

# Of each metric: the correlation of two rows, what is done once with each row, and the resampled correlation of that.
_CORRELATIONS: dict[str, tuple[Callable[..., float], Callable[[Array], Any], Callable[..., Array]]] = {
    "spearman": (spearman, Sorted.of, resampled_spearman),
    "pearson": (pearson, np.asarray, resampled_pearson),
}


class Answers:
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
        if not resamples:
            return {key: np.empty(0) for key in self.values()}
        blocks = [self._weighted(c) for c in draw_counts(self.sizes, resamples=resamples, seed=seed, name=name)]
        return {key: np.concatenate([block[key] for block in blocks]) for key in blocks[0]}

    def to_json(self) -> dict[str, Any]:
        """Return the items as text: each row of numbers is one string, which keeps the lines of a file few."""
        raise NotImplementedError

    def _weighted(self, counts: Array) -> Samples:
        """Return the scores (b,) if the items were repeated as counts (n, b) say."""
        raise NotImplementedError


@dataclass(frozen=True)
class Pairs(Answers):
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
        for metric, (correlate, _, _) in _CORRELATIONS.items():
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
        for metric, (_, _, correlate) in _CORRELATIONS.items():
            joined, *subsets = self._prepared[metric]
            parts = zip(np.split(counts, edges), subsets, strict=True)
            each = np.array([correlate(part, *subset) for part, subset in parts])
            samples |= self._named(metric, correlate(counts, *joined) if len(each) > 1 else each[0], each)
        return samples

    @cached_property
    def _prepared(self) -> dict[str, list[list[Any]]]:
        """For each metric, what all resamples need of scores and gold scores: of all pairs, then of each subset."""
        rows = [self._joined(), *self.subsets.values()]
        return {
            metric: [[prepare(row) for row in two] for two in rows] for metric, (_, prepare, _) in _CORRELATIONS.items()
        }

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
class Predictions(Answers):
    """Predicted and true classes: accuracy and, where there are two classes, F1 of class 1."""

    gold: Classes
    predicted: Classes
    headline: ClassVar[str] = "accuracy"

    def targets(self) -> Array:
        """Return the true classes."""
        return self.gold.astype(np.float64)

    def to_json(self) -> dict[str, Any]:
        """Return one number per item."""
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
class Queries(Answers):
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
class Labelled(Answers):
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


def answers_from_json(document: dict[str, Any]) -> Answers:
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
    """One digit per item; where there are more than ten classes, a space before each number."""
    separator = " " if classes.max(initial=0) > 9 else ""
    return "".join(f"{separator}{number}" for number in classes.tolist())


def _classes(digits: str) -> Classes:
    return np.array([int(digit) for digit in (digits.split() if " " in digits else digits)], dtype=np.int64)


_BUILDERS: dict[str, Callable[[dict[str, Any]], Answers]] = {
    "pairs": lambda d: Pairs({k: (_numbers(part["scores"]), _numbers(part["gold"])) for k, part in d["pairs"].items()}),
    "predicted": lambda d: Predictions(_classes(d["gold"]), _classes(d["predicted"])),
    "labels": lambda d: Labelled(_numbers(d["scores"]), _classes(d["labels"])),
    "queries": lambda d: Queries(np.stack([_numbers(row) for row in d["queries"]], axis=1), d["asked"]),
}
