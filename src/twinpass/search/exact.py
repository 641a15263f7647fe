"""Exact search in memory by cosine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twinpass.errors import ConfigError
from twinpass.vectors import unit

Floats = NDArray[np.float32]


def nearest(queries: Floats, documents: Floats, *, k: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return the cosines and the rows (n, k) of each query's k nearest documents, best first."""
    import faiss

    if not 1 <= k <= len(documents):
        raise ConfigError(f"k is {k}; it lies between 1 and the number of documents, {len(documents):,}.")
    index = faiss.IndexFlatIP(documents.shape[1])
    index.add(_as_faiss_wants(documents))
    cosines, rows = index.search(_as_faiss_wants(queries), k)
    return cosines, rows


def _as_faiss_wants(vectors: Floats) -> Floats:
    return np.ascontiguousarray(unit(vectors), dtype=np.float32)
