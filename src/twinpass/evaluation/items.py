"""What a score was taken over, item by item: enough to score again, to resample, and to compare."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from twinpass.errors import InputError
from twinpass.evaluation.confidence import draw_counts, resampled_pearson, resampled_spearman
from twinpass.evaluation.correlation import Array, pearson, spearman
from twinpass.evaluation.retrieval import MEASURES

Samples = dict[str, Array]
_METRICS = {"spearman": (spearman, resampled_spearman), "pearson": (pearson, resampled_pearson)}


@dataclass(frozen=True)
class Pairs:
    """Scored pairs by subset: {name: (model's scores (n,), gold scores (n,))}."""

    subsets: dict[str, tuple[Array, Array]]

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
    """Retrieval measures of each query, (n, 5) in the order of MEASURES."""

    measures: Array

    def values(self) -> dict[str, float]:
        """Return the mean of each measure, from 0 to 1."""
        return dict(zip(MEASURES, self.measures.mean(axis=0).tolist(), strict=True))

    def samples(self, *, resamples: int, seed: int, name: str) -> Samples:
        """Return the resampled values under the names of values()."""
        n = len(self.measures)
        blocks = draw_counts([n], resamples=resamples, seed=seed, name=name)
        means = np.hstack([self.measures.T @ counts / n for counts in blocks])
        return dict(zip(MEASURES, means, strict=True))


Items = Pairs | Predictions | Queries


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


def to_json(items: Items) -> dict[str, Any]:
    """Return items as plain lists and numbers; scores keep seven digits, more than any rank needs."""
    if isinstance(items, Pairs):
        return {
            "pairs": {
                name: {"scores": [float(f"{s:.7g}") for s in scores], "gold": gold.tolist()}
                for name, (scores, gold) in items.subsets.items()
            }
        }
    if isinstance(items, Predictions):
        return {"gold": _digits(items.gold), "predicted": _digits(items.predicted)}
    return {"queries": [[float(f"{v:.7g}") for v in row] for row in items.measures]}


def from_json(document: dict[str, Any]) -> Items:
    """Rebuild items from what to_json returned."""
    try:
        for key, build in _BUILDERS.items():
            if key in document:
                return build(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"the items of a result cannot be read: {error!r}. Evaluate again.") from error
    raise InputError(f"the items of a result are of no kind known here: {', '.join(document) or 'none'}.")


def _digits(classes: npt.NDArray[np.int64]) -> str:
    return "".join(map(str, classes.tolist()))


def _classes(digits: str) -> npt.NDArray[np.int64]:
    return np.array([int(digit) for digit in digits], dtype=np.int64)


_BUILDERS: dict[str, Callable[[dict[str, Any]], Items]] = {
    "pairs": lambda d: Pairs(
        {name: (np.array(s["scores"], float), np.array(s["gold"], float)) for name, s in d["pairs"].items()}
    ),
    "predicted": lambda d: Predictions(_classes(d["gold"]), _classes(d["predicted"])),
    "queries": lambda d: Queries(np.array(d["queries"], float)),
}
