"""What the indexed corpus looks like, measured once, when somebody first asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from twinpass.search.index import Index
from twinpass.service.batching import Vectors
from twinpass.service.problems import Refusal

SAMPLE = 2_000  # vectors: all pairs of them take well under a second
SEED = 42
BINS = 50


class Once:
    """A look at the index that is taken in a thread when first asked for, and remembered."""

    def __init__(self, look: Callable[[Index], Mapping[str, Any]]) -> None:
        self.look = look
        self._seen: asyncio.Task[Mapping[str, Any]] | None = None

    async def get(self, index: Index) -> Mapping[str, Any]:
        """Return what was seen; those who ask while somebody looks wait for the same."""
        if self._seen is None:
            self._seen = asyncio.create_task(asyncio.to_thread(self.look, index))
        try:
            return await asyncio.shield(self._seen)
        except Exception:
            self._seen = None
            raise


def describe(index: Index) -> Mapping[str, Any]:
    """Return what clients may know of the index; where it lies and who made it is not theirs."""
    info = index.info()
    shown = ("distinct", "dimensions", "kind", "columns")
    model = {"model": info["model"]["name"], "fingerprint": info["model"]["fingerprint"]}
    return {"count": info["rows"], **{name: info[name] for name in shown}, **model}


def measure(index: Index) -> Mapping[str, Any]:
    """Return uniformity, spectrum and cosines of a sample of the indexed vectors."""
    from twinpass.analysis.measure import measure_geometry
    from twinpass.analysis.sampling import some_rows
    from twinpass.analysis.spectrum import measure_spectrum

    ids = index.ids()
    if len(ids) < 2:
        raise Refusal(404, "the index holds fewer than two texts: there is nothing to measure.")
    sample = index.vectors(ids[some_rows(len(ids), SAMPLE, seed=SEED)])
    geometry, spectrum = measure_geometry(sample), measure_spectrum(sample)
    return {
        "uniformity": geometry.uniformity,
        "alignment": geometry.alignment,
        "anisotropy": geometry.anisotropy,
        "effective_rank": spectrum.effective_rank,
        "singular_values": spectrum.normalised.tolist(),
        "cosines": cosine_histogram(sample),
        "sample": len(sample),
        "of": len(ids),
    }


def cosine_histogram(vectors: Vectors) -> dict[str, Any]:
    """Count the cosines of all pairs of different rows."""
    from twinpass.vectors import unit

    units = unit(vectors)
    cosines = (units @ units.T)[np.triu_indices(len(units), k=1)].clip(-1, 1)
    counts, edges = np.histogram(cosines, bins=BINS, range=(-1, 1))
    return {"edges": edges.round(6).tolist(), "counts": counts.tolist()}
