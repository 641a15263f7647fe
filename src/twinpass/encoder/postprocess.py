"""Maps that are fitted to vectors after training: whitening (Su et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinpass.errors import ConfigError

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Whitening:
    """Subtract a mean (d,), multiply by a matrix (d, k): the result has the identity as covariance."""

    mean: NDArray[np.float64]
    matrix: NDArray[np.float64]


def fit_whitening(vectors: Vectors, *, keep: int | None = None) -> Whitening:
    """Fit to vectors (n, d): mean mu, covariance's SVD U diag(s) U^T, W = U diag(1 / sqrt(s)), first `keep` columns.

    Directions in which the vectors do not vary are left out: there is nothing there to scale.
    """
    if len(vectors) < 2:
        raise ConfigError(f"whitening needs two vectors or more to be fitted, and got {len(vectors)}.")
    mean = vectors.mean(axis=0, dtype=np.float64)
    centred = vectors - mean
    directions, variances, _ = np.linalg.svd(centred.T @ centred / len(vectors))
    # Directions without variance come out as rounding noise; 1e-10 of the largest is far above it in float64.
    rank = int((variances > 1e-10 * variances[0]).sum())
    if keep is not None and not 1 <= keep <= len(variances):
        raise ConfigError(f"whitening keeps between 1 and {len(variances)} dimensions, not {keep}.")
    kept = min(rank, keep or rank)
    return Whitening(mean, directions[:, :kept] / np.sqrt(variances[:kept]))


def whiten(vectors: Vectors, whitening: Whitening) -> Vectors:
    """Return (x - mu) W for every row x."""
    return ((vectors - whitening.mean) @ whitening.matrix).astype(np.float32)
