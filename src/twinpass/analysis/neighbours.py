"""Nearest neighbours of the same queries by different models, side by side (Table 8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from twinpass.analysis.sampling import Vectors, some_rows
from twinpass.vectors import unit

MOST_QUERIES = 1_000  # sampled to measure how far models agree
BLOCK = 256  # queries compared with all texts at once


@dataclass(frozen=True)
class Neighbour:
    """A text near a query."""

    text: str
    cosine: float
    shared: bool  # whether another model found it too


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One query's neighbours by every model."""

    query: str
    by_model: dict[str, list[Neighbour]]


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """How far models agree on neighbours, and some queries on which they differ."""

    k: int
    queries: int
    texts: int
    agreement: dict[tuple[str, str], float]  # mean share of the k nearest that two models have in common
    comparisons: list[Comparison]


def compare_neighbours(
    texts: Sequence[str],
    vectors: Mapping[str, Vectors],
    *,
    queries: Sequence[int] | None = None,
    k: int = 3,
    show: int = 6,
    seed: int = 42,
) -> Neighbours:
    """Find the k nearest texts of each query by each model's vectors.

    Queries are positions in `texts`, and all are shown. By default at most 1,000 are sampled, and at most `show` of
    those on which the models differ are shown. A query is not its own neighbour.
    """
    asked = np.asarray(queries, dtype=np.int64) if queries else some_rows(len(texts), MOST_QUERIES, seed=seed)
    k = min(k, len(texts) - 1)
    found = {name: nearest(each, asked, k=k) for name, each in vectors.items()}
    rows = {name: [set(row.tolist()) for row in places] for name, (_, places) in found.items()}
    names = list(vectors)
    agreement = {
        (a, b): float(np.mean([len(x & y) / k for x, y in zip(rows[a], rows[b], strict=True)]))
        for place, a in enumerate(names)
        for b in names[place + 1 :]
    }
    shown = range(len(asked)) if queries else _differing(rows, len(asked), show, seed)
    return Neighbours(
        k=k,
        queries=len(asked),
        texts=len(texts),
        agreement=agreement,
        comparisons=[
            _compare(texts, asked[at], {name: (c[at].tolist(), r[at].tolist()) for name, (c, r) in found.items()})
            for at in shown
        ],
    )


def nearest(vectors: Vectors, queries: NDArray[np.int64], *, k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return cosines and rows (n, k) of the nearest other rows of each query row, best first."""
    units = torch.from_numpy(unit(vectors))
    cosines = np.empty((len(queries), k), dtype=np.float32)
    rows = np.empty((len(queries), k), dtype=np.int64)
    for start in range(0, len(queries), BLOCK):
        part = slice(start, start + BLOCK)
        own = torch.from_numpy(queries[part])
        scores = units[own] @ units.T
        scores[torch.arange(len(own)), own] = -torch.inf
        best = scores.topk(k, dim=1)
        cosines[part], rows[part] = best.values.numpy(), best.indices.numpy()
    return cosines, rows


def _differing(rows: Mapping[str, list[set[int]]], total: int, show: int, seed: int) -> list[int]:
    """Sample queries on which not all models have the same neighbours."""
    lists = list(rows.values())
    differ = [place for place in range(total) if any(each[place] != lists[0][place] for each in lists)]
    return [differ[place] for place in some_rows(len(differ), show, seed=seed)]


def _compare(texts: Sequence[str], query: int, found: Mapping[str, tuple[list[float], list[int]]]) -> Comparison:
    """Return one query's neighbours, from the cosines and the rows of its nearest by every model."""
    times = Counter(row for _, rows in found.values() for row in rows)
    by_model = {
        name: [Neighbour(texts[row], cosine, times[row] > 1) for cosine, row in zip(cosines, rows, strict=True)]
        for name, (cosines, rows) in found.items()
    }
    return Comparison(query=texts[query], by_model=by_model)
