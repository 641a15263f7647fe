"""Arithmetic on vectors that several parts of the program need."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

F = TypeVar("F", np.float32, np.float64)


def unit(vectors: NDArray[F]) -> NDArray[F]:
    """Scale the rows of an array (n, d) to length one, keeping its precision; a zero row stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: NDArray[F] = vectors / np.maximum(lengths, 1e-12)
    return scaled
