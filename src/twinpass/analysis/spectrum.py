"""What a decomposition of sentence vectors shows: the singular spectrum (appendix F) and a map of the sentences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinpass.analysis.sampling import Vectors, some_rows
from twinpass.vectors import unit

MOST_POINTS = 600  # on a map


@dataclass(frozen=True, kw_only=True)
class Spectrum:
    """Singular values of the matrix W of unit sentence vectors, largest first."""

    normalised: NDArray[np.float64]  # divided by the largest, as in the figure of appendix F
    effective_rank: float  # exp of the entropy of the singular values divided by their sum
    largest_eigenvalue: float  # of W W^T; its trace is the number of sentences
    largest_share: float  # of that trace: 1 if all vectors are parallel, 1/d if all directions are equal


def measure_spectrum(vectors: Vectors) -> Spectrum:
    """Decompose vectors (m, d), each scaled to length one as in section 5."""
    eigenvalues = _eigenvalues(unit(vectors).astype(np.float64))
    values = np.sqrt(eigenvalues)
    total = float(eigenvalues.sum())
    return Spectrum(
        normalised=values / values[0] if values[0] > 0 else values,
        effective_rank=effective_rank(values),
        largest_eigenvalue=float(eigenvalues[0]),
        largest_share=float(eigenvalues[0]) / total if total > 0 else 0.0,
    )


def _eigenvalues(units: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the eigenvalues of W W^T that its shape allows to be non-zero, largest first."""
    # W^T W has the same ones, and the smaller of the two matrices is much cheaper than a decomposition of W.
    gram = units.T @ units if len(units) > units.shape[1] else units @ units.T
    found: NDArray[np.float64] = np.maximum(np.linalg.eigvalsh(gram)[::-1], 0.0)
    return found


def effective_rank(values: NDArray[np.float64]) -> float:
    """Return exp(-sum p log p) with p the singular values divided by their sum: between 1 and their number."""
    total = values.sum()
    if total <= 0:
        return 0.0
    shares = values[values > 0] / total
    return float(np.exp(-(shares * np.log(shares)).sum()))


@dataclass(frozen=True, kw_only=True)
class Map:
    """Some rows as points on the first two principal components."""

    rows: NDArray[np.int64]
    points: NDArray[np.float64]  # (len(rows), 2)
    explained: tuple[float, float]  # share of the variance along each axis


def choose_points(
    total: int, positives: NDArray[np.int64] | None, *, most: int = MOST_POINTS, seed: int = 42
) -> NDArray[np.int64]:
    """Choose the rows that a map shows, the same for every model; both ends of a positive pair, if one is shown."""
    if positives is None or not len(positives):
        return some_rows(total, most, seed=seed)
    pairs = positives[some_rows(len(positives), most // 4, seed=seed)]
    rest = np.setdiff1d(some_rows(total, most, seed=seed), pairs)
    return np.concatenate([np.unique(pairs), rest])[:most]


def make_map(vectors: Vectors, rows: NDArray[np.int64]) -> Map:
    """Project unit vectors on the first two principal components (PCA) of all vectors.

    The largest coordinate of an axis is made positive, so the same vectors always give the same map.
    """
    units = unit(vectors).astype(np.float64)
    centred = units - units.mean(axis=0)
    variances, axes = np.linalg.eigh(centred.T @ centred)
    plane = axes[:, ::-1][:, :2]
    plane = plane * np.sign(plane[np.abs(plane).argmax(axis=0), range(plane.shape[1])])
    points = centred[rows] @ plane
    if points.shape[1] < 2:  # vectors of a single dimension lie on a line
        points = np.column_stack([points, np.zeros(len(points))])
    total = max(float(variances.sum()), 1e-30)
    first, second = [float(value) / total for value in [*variances[::-1], 0.0][:2]]
    return Map(rows=rows, points=points, explained=(first, second))
