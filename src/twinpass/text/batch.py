"""Cutting texts into batches with little padding and few forward passes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Cost of one more batch in padded tokens: the fixed work of a forward pass, measured on small encoders.
BATCH_COST = 64.0


def cut(lengths: NDArray[np.int64], *, token_budget: int, batch_cost: float = BATCH_COST) -> list[NDArray[np.int64]]:
    """Return index arrays, longest texts first, that minimise padded tokens plus a cost for each batch.

    No batch holds more than `token_budget` padded tokens, unless a single text does.
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    if lengths.size == 0:
        return []
    order = np.argsort(-lengths, kind="stable")
    sizes, counts = np.unique(-lengths, return_counts=True)
    bands = _cheapest_bands(-sizes, counts, token_budget, batch_cost)
    batches: list[NDArray[np.int64]] = []
    start = 0
    for longest, rows in bands:
        band = order[start : start + rows]
        batches += np.array_split(band, _batches_needed(longest, rows, token_budget))
        start += rows
    return batches


def padded_tokens(lengths: NDArray[np.int64], batches: list[NDArray[np.int64]]) -> int:
    """Return how many tokens the batches hold, padding included."""
    return int(sum(len(batch) * lengths[batch].max() for batch in batches))


def _cheapest_bands(
    sizes: NDArray[np.int64], counts: NDArray[np.int64], token_budget: int, batch_cost: float
) -> list[tuple[int, int]]:
    """Group neighbouring lengths (descending) into bands of (longest, rows) by dynamic programming."""
    n = len(sizes)
    rows_from = np.concatenate([[0], np.cumsum(counts)])
    best = np.zeros(n + 1)  # best[i]: least cost of all lengths from i on
    end = np.zeros(n, dtype=np.int64)
    for i in range(n - 1, -1, -1):
        rows = rows_from[i + 1 :] - rows_from[i]
        fit = max(1, token_budget // max(int(sizes[i]), 1))
        cost = rows * sizes[i] + batch_cost * -(-rows // fit) + best[i + 1 :]
        choice = int(np.argmin(cost))
        best[i], end[i] = cost[choice], i + 1 + choice
    bands = []
    i = 0
    while i < n:
        bands.append((int(sizes[i]), int(rows_from[end[i]] - rows_from[i])))
        i = int(end[i])
    return bands


def _batches_needed(longest: int, rows: int, token_budget: int) -> int:
    fit = max(1, token_budget // max(longest, 1))
    return -(-rows // fit)
