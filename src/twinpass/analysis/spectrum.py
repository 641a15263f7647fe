"""The singular spectrum of sentence vectors (appendix F), and how many directions they really use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinpass.analysis.geometry import Vectors
from twinpass.vectors import unit


@dataclass(frozen=True, kw_only=True)
class Spectrum:
    """Singular values of the matrix W of unit sentence vectors, largest first."""

    normalised: NDArray[np.float64]  # divided by the largest, as in the figure of appendix F
    effective_rank: float  # exp of the entropy of the singular values taken as a distribution
    largest_eigenvalue: float  # of W W^T; its trace is the number of sentences
    largest_share: float  # of that trace: 1 if all vectors are parallel, 1/d if none is favoured


def measure_spectrum(vectors: Vectors) -> Spectrum:
    """Decompose vectors (m, d), each scaled to length one as in section 5."""
    eigenvalues = _eigenvalues(unit(vectors).astype(np.float64))
    values = np.sqrt(eigenvalues)
    total = float(eigenvalues.sum())
    return Spectrum(
        normalised=values / values[0] if values[0] > 0 else values,
        effective_rank=effective_rank(values),
        largest_eigenvalue=float(eigenvalues[0]),
        largest_share=float(eigenvalues[0]) / total if total > 0 else 0.0,
    )


def _eigenvalues(units: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the eigenvalues of W W^T that are not zero by its shape, largest first."""
    # W^T W has the same ones, and the smaller of the two is many times cheaper than a decomposition of W.
    gram = units.T @ units if len(units) > units.shape[1] else units @ units.T
    found: NDArray[np.float64] = np.maximum(np.linalg.eigvalsh(gram)[::-1], 0.0)
    return found


def effective_rank(values: NDArray[np.float64]) -> float:
    """Return exp(-sum p log p) with p the singular values divided by their sum: between 1 and their number."""
    total = values.sum()
    if total <= 0:
        return 0.0
    shares = values[values > 0] / total
    return float(np.exp(-(shares * np.log(shares)).sum()))
