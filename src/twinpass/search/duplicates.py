"""Near-duplicates: which texts to keep so that no two of them say nearly the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinpass.errors import ConfigError
from twinpass.search.exact import Floats
from twinpass.search.index import Index

BLOCK = 2_048  # rows compared with as many others at a time
NEIGHBOURS = 32  # looked at for each text of an approximate index
ROUNDING = 1e-6  # equal texts may differ by so much in their cosine with themselves

Kept = NDArray[np.int64]  # for each row the first kept row that it is near to: its own if it is kept


class Group(NamedTuple):
    """A kept text and those that are near it: ids, and the cosines of the others with the first."""

    kept: int
    others: tuple[int, ...]
    cosines: tuple[float, ...]


def near_duplicates(index: Index, threshold: float) -> list[Group]:
    """Return the groups of an index at a cosine, in the order of the kept texts.

    Rows are taken in order: one whose cosine with an earlier kept row reaches the threshold belongs to the first such
    row, every other row is kept. An approximate index looks at each row's nearest neighbours only.
    """
    if not 0 < threshold <= 1:
        raise ConfigError(f"the threshold is {threshold}; wanted a cosine above 0 and at most 1.")
    ids = index.ids()
    least = threshold - ROUNDING
    kept, cosines = _exactly(index, ids, least) if index.exact else _by_neighbours(index, ids, least)
    members = defaultdict(list)
    for row in np.flatnonzero(kept != np.arange(len(kept))).tolist():
        members[int(kept[row])].append(row)
    return [
        Group(int(ids[first]), tuple(ids[rows].tolist()), tuple(cosines[rows].tolist()))
        for first, rows in sorted(members.items())
    ]


def _exactly(index: Index, ids: Kept, least: float) -> tuple[Kept, Floats]:
    kept = np.arange(len(ids))
    cosines = np.ones(len(ids), np.float32)
    for start in range(0, len(ids), BLOCK):
        rows = np.arange(start, min(start + BLOCK, len(ids)))
        vectors = index.vectors(ids[rows])
        leaders = _settle_block(rows, vectors @ vectors.T, kept, cosines, least)
        for later in _blocks(start + BLOCK, len(ids)):
            _follow(later, index.vectors(ids[later]) @ vectors[leaders - start].T, leaders, kept, cosines, least)
    return kept, cosines


def _settle_block(rows: Kept, near: Floats, kept: Kept, cosines: Floats, least: float) -> Kept:
    """Decide which rows of a block are kept, given all their cosines (n, n); return those."""
    for place, row in enumerate(rows):
        if kept[row] == row:
            free = place + 1 + np.flatnonzero(kept[rows[place + 1 :]] == rows[place + 1 :])
            taken = free[near[place, free] >= least]
            kept[rows[taken]], cosines[rows[taken]] = row, near[place, taken]
    leaders: Kept = rows[kept[rows] == rows]
    return leaders


def _follow(later: Kept, near: Floats, leaders: Kept, kept: Kept, cosines: Floats, least: float) -> None:
    """Give each later row that is still free to the first of the leaders that it is near to."""
    if not len(leaders):
        return
    first = (near >= least).argmax(axis=1)
    score = near[np.arange(len(later)), first]
    taken = (score >= least) & (kept[later] == later)
    kept[later[taken]], cosines[later[taken]] = leaders[first[taken]], score[taken]


def _by_neighbours(index: Index, ids: Kept, least: float) -> tuple[Kept, Floats]:
    """Give each row to the first kept row that it, or an earlier neighbour of it, is near to."""
    kept = np.arange(len(ids))
    cosines = np.ones(len(ids), np.float32)
    for rows in _blocks(0, len(ids)):
        vectors = index.vectors(ids[rows])
        scores, found = index.nearest(vectors, NEIGHBOURS)
        places = np.searchsorted(ids, np.maximum(found, 0))
        for row, vector, near, these in zip(rows.tolist(), vectors, scores >= least, places, strict=True):
            firsts = np.unique(kept[these[near]])
            firsts = firsts[firsts < row]
            score = index.vectors(ids[firsts]) @ vector
            if (score >= least).any():
                best = int((score >= least).argmax())
                kept[row], cosines[row] = firsts[best], score[best]
    return kept, cosines


def _blocks(start: int, end: int) -> Iterator[Kept]:
    for first in range(start, end, BLOCK):
        yield np.arange(first, min(first + BLOCK, end))
