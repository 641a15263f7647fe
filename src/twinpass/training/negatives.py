"""False negatives: rows of a batch that only look like negatives because the same text occurs twice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
Mask = NDArray[np.bool_]


def false_negatives(passes: Sequence[Keys]) -> Mask:
    """Return (N, candidates), True where candidate j must not count against row i.

    `passes` holds one key per row and pass; equal keys mean equal texts. A candidate is left out if it is row i's
    own sentence or positive, or the positive of another row with the same sentence.
    """
    anchor, positive = passes[0], passes[min(1, len(passes) - 1)]
    means_the_same = _equal(anchor, positive) | _equal(positive, positive) | _equal(anchor, anchor)
    np.fill_diagonal(means_the_same, False)
    if len(passes) < 3:
        return means_the_same
    hard = passes[2]
    return np.concatenate([means_the_same, _equal(anchor, hard) | _equal(positive, hard)], axis=1)


def negatives_per_anchor(passes: Sequence[Keys], mask: Mask | None) -> float:
    """Return how many candidates the average row of the batch is told apart from."""
    rows = len(passes[0])
    candidates = rows - 1 + (rows if len(passes) == 3 else 0)
    return candidates - (0 if mask is None or rows == 0 else float(mask.sum()) / rows)


def _equal(left: Keys, right: Keys) -> Mask:
    same: Mask = left[:, None] == right[None, :]
    return same
