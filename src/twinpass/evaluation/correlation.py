"""Cosine scores of pairs and their correlation with gold scores."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from twinpass.errors import ModelError

Floats = npt.NDArray[np.floating]
Array = npt.NDArray[np.float64]

_ROWS = 8192  # pairs taken to float64 at a time, so that wide vectors do not double in memory


def cosine_scores(u: Floats, v: Floats) -> Array:
    """Return the cosine of each row of u (n, d) with the same row of v (n, d); a zero vector scores 0."""
    if u.shape != v.shape or u.ndim != 2:
        raise ModelError(f"expected the two sides of the pairs in one shape (n, d), got {u.shape} and {v.shape}.")
    check_finite(u)
    check_finite(v)
    blocks = [_cosine(u[i : i + _ROWS], v[i : i + _ROWS]) for i in range(0, len(u), _ROWS)]
    return np.concatenate(blocks) if blocks else np.zeros(0)


def check_finite(vectors: Floats) -> None:
    """Raise ModelError where a vector holds a non-finite value."""
    # One sum finds NaN and infinity without a boolean matrix; rows are looked at only when it does.
    if np.isfinite(vectors.sum(dtype=np.float64)):
        return
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        raise ModelError(
            f"the model returned vectors with NaN or infinity for {len(bad)} of {len(vectors)} texts "
            f"(the first is text {bad[0]}). Check its weights, or encode in fp32."
        )


def pearson(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Return Pearson's correlation of two (n,) arrays, NaN where one of them does not vary."""
    x, y = _paired(a, b)
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    x, y = x - x.mean(), y - y.mean()
    return float(np.clip((x @ y) / np.sqrt((x @ x) * (y @ y)), -1.0, 1.0))


def spearman(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Return Spearman's correlation of two (n,) arrays, ties sharing the mean of their ranks."""
    x, y = _paired(a, b)
    return pearson(rankdata(x), rankdata(y))


def _paired(a: npt.ArrayLike, b: npt.ArrayLike) -> tuple[Array, Array]:
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1:
        raise ValueError(f"expected two equally long rows of numbers, got {x.shape} and {y.shape}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("expected finite numbers only, got NaN or infinity")
    return x, y


def _cosine(u: Floats, v: Floats) -> Array:
    u, v = u.astype(np.float64), v.astype(np.float64)
    norms = np.sqrt(np.einsum("ij,ij->i", u, u) * np.einsum("ij,ij->i", v, v))
    dots: Array = np.einsum("ij,ij->i", u, v)
    np.divide(dots, norms, out=dots, where=norms > 0)
    return dots
