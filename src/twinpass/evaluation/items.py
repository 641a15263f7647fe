"""What a score was taken over, item by item: enough to score again, to resample, and to compare."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from twinpass.evaluation.confidence import draw_counts, resampled_pearson, resampled_spearman
from twinpass.evaluation.correlation import Array, pearson, spearman
from twinpass.evaluation.retrieval import MEASURES

Samples = dict[str, Array]
_METRICS = {"spearman": (spearman, resampled_spearman), "pearson": (pearson, resampled_pearson)}


@dataclass(frozen=True)
class Pairs:
    """Scored pairs by subset: {name: (model's scores (n,), gold scores (n,))}."""

    subsets: dict[str, tuple[Array, Array]]
    headline: ClassVar[str] = "all spearman"

    @property
    def sizes(self) -> list[int]:
        """How many pairs each subset holds."""
        return [len(gold) for _, gold in self.subsets.values()]

    def values(self) -> dict[str, float]:
        """Return 'all|mean|wmean METRIC' and 'SUBSET METRIC', correlations from -1 to 1."""
        values: dict[str, float] = {}
        for metric, (correlate, _) in _METRICS.items():
            each = np.array([correlate(*subset) for subset in self.subsets.values()])
            values |= _named(metric, correlate(*self._joined()), each, self)
        return values

    def samples(self, *, resamples: int, seed: int, name: str) -> Samples:
        """Return the resampled values under the names of values(); subsets are resampled apart."""
        blocks = draw_counts(self.sizes, resamples=resamples, seed=seed, name=name)
        return _joined_blocks(self._resampled(counts) for counts in blocks)

    def _resampled(self, counts: Array) -> Samples:
        edges = np.cumsum(self.sizes)[:-1]
        samples: Samples = {}
        for metric, (_, correlate) in _METRICS.items():
            parts = zip(np.split(counts, edges), self.subsets.values(), strict=True)
            each = np.array([correlate(part, *subset) for part, subset in parts])
            joined = correlate(counts, *self._joined()) if len(each) > 1 else each[0]
            samples |= _named(metric, joined, each, self)
        return samples

    def _joined(self) -> tuple[Array, Array]:
        scores, gold = zip(*self.subsets.values(), strict=True)
        return np.concatenate(scores), np.concatenate(gold)


@dataclass(frozen=True)
class Predictions:
    """Predicted and true classes of the scored items; F1 is of class 1, where there are two."""

    gold: npt.NDArray[np.int64]
    predicted: npt.NDArray[np.int64]
    headline: ClassVar[str] = "accuracy"

    def values(self) -> dict[str, float]:
        """Return accuracy and, for two classes, F1, from 0 to 1."""
        return {name: float(value[0]) for name, value in self._score(np.ones((len(self.gold), 1))).items()}

    def samples(self, *, resamples: int, seed: int, name: str) -> Samples:
        """Return the resampled values under the names of values()."""
        blocks = draw_counts([len(self.gold)], resamples=resamples, seed=seed, name=name)
        return _joined_blocks(self._score(counts) for counts in blocks)

    def _score(self, counts: Array) -> Samples:
        right = self.gold == self.predicted
        found, claimed, true = right & (self.gold == 1), self.predicted == 1, self.gold == 1
        sums = np.stack([right, found, claimed, true]).astype(np.float64) @ counts
        scores = {"accuracy": sums[0] / len(self.gold)}
        if self.gold.max() <= 1:
            scores["f1"] = 2 * sums[1] / np.maximum(sums[2] + sums[3], 1)
        return scores


@dataclass(frozen=True)
class Queries:
    """Retrieval measures of each query, (n, 5) in the order of MEASURES; asked tells sets of queries apart."""

    measures: Array
    asked: str = ""
    headline: ClassVar[str] = "mrr"

    def values(self) -> dict[str, float]:
        """Return the mean of each measure, from 0 to 1."""
        return dict(zip(MEASURES, self.measures.mean(axis=0).tolist(), strict=True))

    def samples(self, *, resamples: int, seed: int, name: str) -> Samples:
        """Return the resampled values under the names of values()."""
        n = len(self.measures)
        blocks = draw_counts([n], resamples=resamples, seed=seed, name=name)
        means = np.hstack([self.measures.T @ counts / n for counts in blocks])
        return dict(zip(MEASURES, means, strict=True))


@dataclass(frozen=True)
class Labelled:
    """Scores (n,) of pairs that are alike (1) or not (0); accuracy is at the threshold that suits them best."""

    scores: Array
    gold: npt.NDArray[np.int64]
    headline: ClassVar[str] = "ap"

    def values(self) -> dict[str, float]:
        """Return average precision and best accuracy, from 0 to 1."""
        return {name: float(value[0]) for name, value in self._score(np.ones((len(self.gold), 1))).items()}

    def samples(self, *, resamples: int, seed: int, name: str) -> Samples:
        """Return the resampled values under the names of values()."""
        blocks = draw_counts([len(self.gold)], resamples=resamples, seed=seed, name=name)
        return _joined_blocks(self._score(counts) for counts in blocks)

    def threshold(self) -> float:
        """Return the score from which on calling pairs alike is right most often."""
        order, last = self._cuts()
        right = self._right(np.ones((len(self.gold), 1)))[:, 0]
        at = int(right.argmax())  # how many distinct scores, from the top, are called alike
        steps = np.concatenate([[np.inf], self.scores[order][last], [-np.inf]])
        upper, lower = steps[at], steps[at + 1]
        return float((upper + lower) / 2 if np.isfinite(upper + lower) else (lower if at == 0 else upper))

    def _score(self, counts: Array) -> Samples:
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


Items = Pairs | Predictions | Queries | Labelled


def _named(metric: str, everything: Any, each: Array, pairs: Pairs) -> dict[str, Any]:
    """Name the aggregations (and the subsets, where there is more than one) of one metric."""
    weights = np.array(pairs.sizes, dtype=np.float64)
    named = {f"all {metric}": everything, f"mean {metric}": each.mean(axis=0)}
    named[f"wmean {metric}"] = np.average(each, axis=0, weights=weights)
    if len(each) > 1:
        named |= {f"{subset} {metric}": value for subset, value in zip(pairs.subsets, each, strict=True)}
    return {name: value if np.ndim(value) else float(value) for name, value in named.items()}


def _joined_blocks(blocks: Iterable[Samples]) -> Samples:
    parts = list(blocks)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
