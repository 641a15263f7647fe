"""A map of sentences: their vectors in the plane of the two directions along which they differ most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinpass.analysis.geometry import Vectors
from twinpass.analysis.sample import some_rows
from twinpass.vectors import unit

MOST_POINTS = 600


@dataclass(frozen=True, kw_only=True)
class Map:
    """Points of the plane, one for each of some rows."""

    rows: NDArray[np.int64]
    points: NDArray[np.float64]  # (len(rows), 2)
    explained: tuple[float, float]  # share of the variance along each axis


def choose_points(
    total: int, positives: NDArray[np.int64] | None, *, most: int = MOST_POINTS, seed: int = 42
) -> NDArray[np.int64]:
    """Choose which rows a map shows, the same for every model; pairs that mean the same stay together."""
    if positives is None or not len(positives):
        return some_rows(total, most, seed=seed)
    pairs = positives[some_rows(len(positives), most // 4, seed=seed)]
    rest = np.setdiff1d(some_rows(total, most, seed=seed), pairs)
    return np.concatenate([np.unique(pairs), rest])[:most]


def draw_map(vectors: Vectors, rows: NDArray[np.int64]) -> Map:
    """Project unit vectors on their first two principal axes; the axes are those of all vectors (PCA).

    An axis points to where its largest coordinate is positive, so the same vectors always give the same map.
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
