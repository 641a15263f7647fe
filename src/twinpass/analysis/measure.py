"""What is measured of one model's sentence vectors.

Geometry: alignment, uniformity, both terms of Eq. 6, the bound of Eq. 7 and anisotropy. Beside it the spectrum and the
map (spectrum.py) and the cosine densities (density.py).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata

from twinpass.analysis.density import GRID, Group, measure_densities
from twinpass.analysis.sampling import Graded, Sample, Vectors
from twinpass.analysis.spectrum import Map, Spectrum, choose_points, make_map, measure_spectrum
from twinpass.equations import alignment, asymptotic, jensen_bound, uniformity
from twinpass.vectors import unit

TEMPERATURE = 0.05  # Table D.1


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """The numbers of sections 5 and 7; those that need labels are None if there are no labels."""

    alignment: float | None  # Eq. 2, over positive pairs; lower is better
    uniformity: float  # Eq. 3, t = 2, over all pairs of sentences; lower is better
    positives_term: float | None  # Eq. 6, first term
    negatives_term: float  # Eq. 6, second term
    jensen_bound: float  # Eq. 7, never above the second term of Eq. 6
    anisotropy: float  # mean cosine of two different sentences
    spearman: float | None  # x 100, of the cosine with the gold score
    positives: int  # pairs that alignment is taken over
    sentences: int

    @property
    def objective(self) -> float | None:
        """The sum of both terms of Eq. 6, which contrastive training minimises."""
        return None if self.positives_term is None else self.positives_term + self.negatives_term


def measure_geometry(
    vectors: Vectors,
    *,
    positives: NDArray[np.int64] | None = None,
    graded: Graded | None = None,
    temperature: float = TEMPERATURE,
) -> Geometry:
    """Measure vectors (m, d) of distinct sentences; pairs are (n, 2) rows of them. Never holds an m x m matrix."""
    data = torch.from_numpy(np.ascontiguousarray(vectors, dtype=np.float32))
    paired = positives is not None and len(positives) > 0
    left, right = (data[positives[:, side]] if positives is not None else data[:0] for side in (0, 1))
    with torch.inference_mode():
        terms = asymptotic(left, right, data, temperature=temperature)
        return Geometry(
            alignment=float(alignment(left, right)) if paired else None,
            uniformity=float(uniformity(data)),
            positives_term=float(terms.positives) if paired else None,
            negatives_term=float(terms.negatives),
            jensen_bound=float(jensen_bound(data.double(), temperature=temperature)),
            anisotropy=mean_cosine(vectors),
            spearman=None if graded is None else _spearman(vectors, graded),
            positives=len(left),
            sentences=len(vectors),
        )


def mean_cosine(vectors: Vectors) -> float:
    """Return the mean cosine over all pairs of different rows.

    The sum of all cosines is the squared length of the sum of the unit vectors, so no pairs need to be sampled.
    """
    units = unit(vectors)
    total = units.sum(axis=0, dtype=np.float64)
    own = float((units.astype(np.float64) ** 2).sum())
    return float((total @ total - own) / (len(units) * (len(units) - 1)))


def cosines(vectors: Vectors, pairs: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the cosine of each pair of rows; with a zero vector it is 0."""
    units = unit(vectors)
    found: NDArray[np.float64] = (units[pairs[:, 0]] * units[pairs[:, 1]]).sum(axis=1, dtype=np.float64)
    return found


def _spearman(vectors: Vectors, graded: Graded) -> float | None:
    found = cosines(vectors, graded.pairs)
    if np.ptp(found) == 0 or np.ptp(graded.gold) == 0:
        return None
    return 100 * float(np.corrcoef(rankdata(found), rankdata(graded.gold))[0, 1])


@dataclass(frozen=True, kw_only=True)
class Measures:
    """All measures of one model's vectors of a sample."""

    name: str
    fingerprint: str | None
    dimensions: int
    geometry: Geometry
    spectrum: Spectrum
    densities: list[Group] | None
    map: Map

    def to_dict(self, sample: Sample) -> dict[str, Any]:
        """Return the measures as a JSON object; the map has the texts of its points."""
        groups = None if self.densities is None else [asdict(group) for group in self.densities]
        points = zip(self.map.rows, self.map.points, strict=True)
        return {
            "name": self.name,
            "fingerprint": self.fingerprint,
            "dimensions": self.dimensions,
            "geometry": asdict(self.geometry) | {"objective": self.geometry.objective},
            "spectrum": asdict(self.spectrum),
            "densities": None if groups is None else {"cosine": GRID, "groups": groups},
            "map": {
                "explained": self.map.explained,
                "points": [{"text": sample.texts[row], "x": x, "y": y} for row, (x, y) in points],
            },
        }


def measure(name: str, vectors: Vectors, sample: Sample, *, fingerprint: str | None = None, seed: int = 42) -> Measures:
    """Measure one model's vectors, one row for each text of the sample."""
    graded = sample.graded
    return Measures(
        name=name,
        fingerprint=fingerprint,
        dimensions=vectors.shape[1],
        geometry=measure_geometry(vectors, positives=sample.positives, graded=graded),
        spectrum=measure_spectrum(vectors),
        densities=None
        if graded is None
        else measure_densities(cosines(vectors, graded.pairs), graded.gold, graded.scale),
        map=make_map(vectors, choose_points(len(vectors), sample.positives, seed=seed)),
    )
