"""Exact search by cosine: every vector is compared."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twinpass.errors import ConfigError
from twinpass.vectors import unit

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]

GATHERED = 65_536  # chosen vectors copied together: 100 MB of 384 dimensions


def nearest(queries: Floats, documents: Floats, *, k: int) -> tuple[Floats, Rows]:
    """Return the cosines and the rows (n, k) of each query's k nearest documents, best first."""
    if not 1 <= k <= len(documents):
        raise ConfigError(f"k is {k}; expected 1 to {len(documents):,}, the number of documents.")
    return top(unit(queries), unit(documents), k=k)


def top(queries: Floats, vectors: Floats, *, k: int, chosen: Rows | None = None) -> tuple[Floats, Rows]:
    """Return the inner products and rows (n, at most k) of the best vectors, or of the best of the chosen rows.

    A memory-mapped array is not copied into memory first.
    """
    if chosen is None:
        return _knn(queries, vectors, k)
    found: tuple[Floats, Rows] = empty(len(queries))
    for start in range(0, len(chosen), GATHERED):
        rows = chosen[start : start + GATHERED]
        scores, places = _knn(queries, vectors[rows], k)
        found = best(k, found, (scores, rows[places]))
    return found


def best(k: int, *found: tuple[Floats, Rows]) -> tuple[Floats, Rows]:
    """Return the k best of several results (n, any), best first; of equal scores the earlier result."""
    scores, rows = (np.concatenate(columns, axis=1) for columns in zip(*found, strict=True))
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1)


def empty(queries: int) -> tuple[Floats, Rows]:
    """Return a result with nothing found."""
    return np.empty((queries, 0), np.float32), np.empty((queries, 0), np.int64)


def _knn(queries: Floats, vectors: Floats, k: int) -> tuple[Floats, Rows]:
    import faiss

    k = min(k, len(vectors))
    if not k or not len(queries):
        return np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
    scores, rows = faiss.knn(
        np.ascontiguousarray(queries, dtype=np.float32),
        np.ascontiguousarray(vectors, dtype=np.float32),
        k,
        metric=faiss.METRIC_INNER_PRODUCT,
    )
    order = np.lexsort((rows, -scores))  # faiss returns equal scores in any order
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1)
