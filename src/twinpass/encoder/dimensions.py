"""Shorter vectors: the first numbers of each, scaled to length one (Matryoshka; Kusupati et al., 2022)."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from twinpass.errors import ConfigError
from twinpass.vectors import unit

Vectors = NDArray[np.float32]


class UntrainedSizeWarning(UserWarning):
    """Vectors were shortened to a size that the model was not trained for."""


def shorten(vectors: Vectors, dimensions: int | None) -> Vectors:
    """Return the first numbers of vectors (n, d), scaled to length one; all of them as they are if none are cut."""
    if dimensions is None or dimensions >= vectors.shape[1]:
        return vectors
    return unit(vectors[:, :dimensions])


def check_size(dimensions: int, *, whole: int, name: str) -> None:
    """Refuse a size that a model of `whole` dimensions cannot have."""
    if not 1 <= dimensions <= whole:
        raise ConfigError(f"dimensions is {dimensions}; {name} has {whole}, so expected 1 to {whole}.")


def warn_untrained(sizes: Sequence[int], *, trained: Sequence[int], name: str, stacklevel: int = 3) -> None:
    """Warn of the sizes that a model was not trained for."""
    if strange := [size for size in sizes if size not in trained]:
        known = f"it was trained for {', '.join(map(str, trained))}" if trained else "it was trained for whole vectors"
        warnings.warn(
            f"{name} was not trained for {', '.join(map(str, strange))} dimensions ({known}), so short vectors lose "
            "more than they must. Train it with --matryoshka.",
            UntrainedSizeWarning,
            stacklevel=stacklevel,
        )


def shortened(fingerprint: str, dimensions: int | None) -> str:
    """Return the fingerprint of a model whose vectors are shortened."""
    if dimensions is None:
        return fingerprint
    return hashlib.sha256(f"{fingerprint} dimensions={dimensions}".encode()).hexdigest()
