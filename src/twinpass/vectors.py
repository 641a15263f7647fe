"""Arithmetic on vectors that several parts of the program need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from twinpass.errors import ModelError

F = TypeVar("F", np.float32, np.float64)


def unit(vectors: NDArray[F]) -> NDArray[F]:
    """Scale the rows of an array (n, d) to length one, keeping its precision; a zero row stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: NDArray[F] = vectors / np.maximum(lengths, 1e-12)
    return scaled


def check_finite(
    vectors: NDArray[Any], texts: Sequence[str], *, model: str, position: Callable[[int], int] = int
) -> None:
    """Refuse vectors (n, d) of these texts if one holds NaN or infinity, naming the first such text.

    `position` tells from a row the number under which the caller knows its text.
    """
    # One sum finds NaN and infinity without a matrix of answers; rows are looked at only when it does.
    if np.isfinite(vectors.sum(dtype=np.float64)):
        return
    wrong = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(wrong):
        first = int(wrong[0])
        raise ModelError(
            f"{model} returned NaN or infinity for {len(wrong):,} of {len(vectors):,} texts, the first of them "
            f"{texts[first][:80]!r} (text {position(first):,}, counted from 0). Check its weights, or encode in fp32."
        )
