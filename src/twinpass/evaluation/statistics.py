"""Cosines of pairs, their correlation with gold scores, and the bootstrap behind every interval.

The bootstrap says how far a score would move if other items of the same kind had been drawn. A resample is a row of
counts: how often each item was drawn. Sums over a resample are then one matrix product, and its ranks are running sums
in an order that is sorted once, so thousands of resamples cost seconds. The same seed draws the same counts for every
model, which is what pairs two models in a comparison.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from twinpass.errors import ModelError

Floats = npt.NDArray[np.floating]
Array = npt.NDArray[np.float64]

RESAMPLES = 2000
LEVEL = 0.95
_ROWS = 8192  # pairs taken to float64 at a time, so that wide vectors do not double in memory
_CELLS = 1 << 17  # counts held at a time, few enough to fit in the processor's cache


def cosine_scores(u: Floats, v: Floats) -> Array:
    """Return the cosine of each row of u (n, d) with the same row of v (n, d); a zero vector scores 0."""
    if u.shape != v.shape or u.ndim != 2:
        raise ModelError(f"expected the two sides of the pairs in one shape (n, d), got {u.shape} and {v.shape}.")
    scores = np.zeros(len(u))
    for start in range(0, len(u), _ROWS):
        a, b = (side[start : start + _ROWS].astype(np.float64) for side in (u, v))
        dots, a2, b2 = (np.einsum("ij,ij->i", *two) for two in ((a, b), (a, a), (b, b)))
        norms = np.sqrt(a2 * b2)
        np.divide(dots, norms, out=scores[start : start + _ROWS], where=norms > 0)
    return scores


def pearson(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Return Pearson's correlation of two (n,) arrays, NaN where one of them does not vary."""
    x, y = _paired(a, b)
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    x, y = x - x.mean(), y - y.mean()
    return float(np.clip((x @ y) / np.sqrt((x @ x) * (y @ y)), -1.0, 1.0))


def spearman(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Return Spearman's correlation of two (n,) arrays, ties sharing the mean of their ranks."""
    x, y = _paired(a, b)
    return pearson(rankdata(x), rankdata(y))


def _paired(a: npt.ArrayLike, b: npt.ArrayLike) -> tuple[Array, Array]:
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1:
        raise ValueError(f"expected two equally long rows of numbers, got {x.shape} and {y.shape}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("expected finite numbers only, got NaN or infinity")
    return x, y


def draw_counts(sizes: Sequence[int], *, resamples: int, seed: int, name: str) -> Iterator[Array]:
    """Yield blocks (n, b) of counts; each stratum of the n = sum(sizes) items is resampled separately.

    What is drawn depends on the task's name, of a user's file without its folder: how a path is spelt changes nothing.
    """
    kind, colon, path = name.partition(":")
    own = f"{kind}{colon}{PurePath(path).name}" if colon else name
    rng = np.random.default_rng([seed, zlib.crc32(own.encode())])
    block = max(16, _CELLS // sum(sizes))
    for start in range(0, resamples, block):
        columns = min(block, resamples - start)
        yield np.vstack([_counts(rng, size, columns) for size in sizes])


def _counts(rng: np.random.Generator, size: int, columns: int) -> Array:
    drawn = rng.integers(0, size, (columns, size)) + size * np.arange(columns)[:, None]
    counts = np.bincount(drawn.ravel(), minlength=columns * size)
    return np.ascontiguousarray(counts.reshape(columns, size).T, dtype=np.float64)


def interval(samples: Array) -> tuple[float, float]:
    """Return the percentile interval of resampled scores, NaN where all of them are NaN."""
    samples = samples[np.isfinite(samples)]
    if not len(samples):
        return float("nan"), float("nan")
    low, high = np.quantile(samples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def two_sided_p(differences: Array) -> float:
    """Return how often resampled differences fall on the rarer side of zero, doubled."""
    below, above = np.count_nonzero(differences <= 0), np.count_nonzero(differences >= 0)
    return float(min(1.0, 2 * (min(below, above) + 1) / (len(differences) + 1)))


def resampled_pearson(counts: Array, x: Array, y: Array) -> Array:
    """Return Pearson's correlation of x and y (n,) in each resample of counts (n, b)."""
    x, y = x - x.mean(), y - y.mean()
    sums = np.stack([x, y, x * x, y * y, x * y]) @ counts / counts.sum(axis=0)
    mean_x, mean_y, xx, yy, xy = sums
    return _ratio(xy - mean_x * mean_y, xx - mean_x**2, yy - mean_y**2)


class Sorted(NamedTuple):
    """What sorting (n,) values once tells for all resamples: equal values are a group."""

    order: npt.NDArray[np.intp]  # (n,) items by value
    group: npt.NDArray[np.intp]  # (n,) of each item, by value
    lasts: npt.NDArray[np.intp]  # (groups,) where in the order each group ends

    @classmethod
    def of(cls, values: Array) -> Sorted:
        """Sort values."""
        _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
        return cls(np.argsort(group, kind="stable"), group, np.cumsum(sizes) - 1)

    def ranks(self, counts: Array) -> tuple[Array, Array]:
        """Return how often each group was drawn, and its rank less the mean rank, (groups, b) each.

        Equal values share the mean of their ranks; the mean rank is the same with ties or without.
        """
        drawn = counts[self.order]
        ranks = np.cumsum(drawn, axis=0)
        if len(self.lasts) < len(self.order):
            ranks = ranks[self.lasts]
            drawn = np.diff(ranks, axis=0, prepend=0)
        middle = (ranks[-1] + 1) / 2
        ranks -= drawn / 2
        ranks += 0.5 - middle
        return drawn, ranks


def resampled_spearman(counts: Array, x: Sorted, y: Sorted) -> Array:
    """Return Spearman's correlation of two sorted rows of values in each resample of counts (n, b)."""
    (drawn_x, a), (drawn_y, b) = x.ranks(counts), y.ranks(counts)
    counted_a = drawn_x * a
    spread_a, spread_b = np.einsum("ij,ij->j", counted_a, a), np.einsum("ij,ij,ij->j", drawn_y, b, b)
    if len(a) == len(counts):  # no two values of x are equal: its order is one of items
        return _ratio(np.einsum("ij,ij->j", counted_a, b[y.group[x.order]]), spread_a, spread_b)
    return _ratio(np.einsum("ij,ij,ij->j", counts, a[x.group], b[y.group]), spread_a, spread_b)


def _ratio(covariance: Array, spread_x: Array, spread_y: Array) -> Array:
    """Correlation, NaN where a resample does not vary (up to rounding)."""
    product = spread_x * spread_y
    varies = np.minimum(spread_x, spread_y) > 1e-12
    ratio: Array = np.full_like(covariance, np.nan)
    np.divide(covariance, np.sqrt(product, where=varies, out=np.ones_like(product)), out=ratio, where=varies)
    return ratio
