"""Everything that is measured of one model, and of several beside each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinpass.analysis.density import GRID, Group, measure_densities
from twinpass.analysis.geometry import TEMPERATURE, Geometry, Vectors, cosines, measure_geometry
from twinpass.analysis.map import Map, choose_points, draw_map
from twinpass.analysis.neighbours import Neighbours
from twinpass.analysis.sample import MOST_TEXTS, Sample, some_rows
from twinpass.analysis.spectrum import Spectrum, measure_spectrum
from twinpass.errors import ModelError

Encode = Callable[[Sequence[str]], NDArray[np.float32]]


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """What one model's vectors of a sample look like."""

    name: str
    fingerprint: str | None
    dimensions: int
    geometry: Geometry
    spectrum: Spectrum
    densities: list[Group] | None
    map: Map


def analyse(
    name: str,
    vectors: Vectors,
    sample: Sample,
    *,
    fingerprint: str | None = None,
    temperature: float = TEMPERATURE,
    seed: int = 42,
) -> Analysis:
    """Measure one model's vectors, a row for each text of the sample."""
    vectors = check_vectors(name, vectors, len(sample.texts))
    graded = sample.graded
    return Analysis(
        name=name,
        fingerprint=fingerprint,
        dimensions=vectors.shape[1],
        geometry=measure_geometry(vectors, positives=sample.positives, graded=graded, temperature=temperature),
        spectrum=measure_spectrum(vectors),
        densities=None
        if graded is None
        else measure_densities(cosines(vectors, graded.pairs), graded.gold, graded.scale),
        map=draw_map(vectors, choose_points(len(vectors), sample.positives, seed=seed)),
    )


def analyse_vectors(
    name: str, vectors: Vectors, *, most: int = MOST_TEXTS, seed: int = 42, source: str = "vectors"
) -> tuple[Analysis, Sample]:
    """Measure vectors of unknown texts, on a sample if they are many; the sample says its size."""
    rows = some_rows(len(vectors), most, seed=seed)
    names = [f"{source} {row}" for row in rows]
    sample = Sample(source=source, texts=names, rows=len(rows), of_rows=len(vectors))
    return analyse(name, np.asarray(vectors[rows], dtype=np.float32), sample, seed=seed), sample


def check_vectors(name: str, vectors: Vectors, texts: int) -> Vectors:
    """Return the vectors as float32, or say what is wrong with them."""
    if vectors.ndim != 2 or len(vectors) != texts:
        raise ModelError(f"{name} gave an array {vectors.shape} for {texts:,} texts; a row each is wanted.")
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        raise ModelError(
            f"{name} gave NaN or infinity for {len(bad):,} of {texts:,} texts (the first is text {bad[0]}). "
            "Check its weights, or encode in fp32."
        )
    return np.asarray(vectors, dtype=np.float32)


def to_document(sample: Sample, analyses: Sequence[Analysis], neighbours: Neighbours | None) -> dict[str, Any]:
    """Return everything measured as a JSON object."""
    return {
        "sample": {
            "source": sample.source,
            "sentences": len(sample.texts),
            "rows": sample.rows,
            "of_rows": sample.of_rows,
            "scale": sample.scale,
            "left_out": sample.left_out,
        },
        "models": [_model(analysis, sample) for analysis in analyses],
        "neighbours": None if neighbours is None else _neighbours(neighbours),
    }


def _model(analysis: Analysis, sample: Sample) -> Mapping[str, Any]:
    return {
        "name": analysis.name,
        "fingerprint": analysis.fingerprint,
        "dimensions": analysis.dimensions,
        "geometry": asdict(analysis.geometry) | {"objective": analysis.geometry.objective},
        "spectrum": asdict(analysis.spectrum),
        "densities": None
        if analysis.densities is None
        else {"cosine": GRID, "groups": [asdict(group) for group in analysis.densities]},
        "map": {
            "explained": analysis.map.explained,
            "points": [
                {"text": sample.texts[row], "x": x, "y": y}
                for row, (x, y) in zip(analysis.map.rows, analysis.map.points, strict=True)
            ],
        },
    }


def _neighbours(found: Neighbours) -> dict[str, Any]:
    agreement = [{"models": pair, "share": share} for pair, share in found.agreement.items()]
    comparisons = [
        {"query": each.query, "by_model": {name: [n._asdict() for n in near] for name, near in each.by_model.items()}}
        for each in found.comparisons
    ]
    return {
        "k": found.k,
        "queries": found.queries,
        "texts": found.texts,
        "agreement": agreement,
        "comparisons": comparisons,
    }
