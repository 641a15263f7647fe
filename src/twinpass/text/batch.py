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
    for rows, count in bands:
        batches += np.array_split(order[start : start + rows], count)
        start += rows
    return batches


def _cheapest_bands(
    sizes: NDArray[np.int64], counts: NDArray[np.int64], token_budget: int, batch_cost: float
) -> list[tuple[int, int]]:
    """Group neighbouring lengths (descending) into bands of (rows, batches) by dynamic programming."""
    n = len(sizes)
    rows_from = np.concatenate([[0], np.cumsum(counts)])
    best = np.zeros(n + 1)  # best[i]: least cost of all lengths from i on
    bands: list[tuple[int, int, int]] = [(0, 0, 0)] * n  # the band from i on: rows, batches, where the next one starts
    for i in range(n - 1, -1, -1):
        rows = rows_from[i + 1 :] - rows_from[i]
        batches = -(-rows // max(1, token_budget // max(int(sizes[i]), 1)))
        cost = rows * sizes[i] + batch_cost * batches + best[i + 1 :]
        choice = int(np.argmin(cost))
        best[i], bands[i] = cost[choice], (int(rows[choice]), int(batches[choice]), i + 1 + choice)
    chosen, i = [], 0
    while i < n:
        chosen.append(bands[i][:2])
        i = bands[i][2]
    return chosen
