"""Where vectors lie on the sphere: alignment, uniformity, the terms of Eq. 6, the bound of Eq. 7, anisotropy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata

from twinpass.analysis.sample import Graded
from twinpass.equations import alignment, asymptotic, jensen_bound, uniformity
from twinpass.vectors import unit

Vectors = NDArray[np.float32]
TEMPERATURE = 0.05  # Table D.1


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """The numbers of section 7 and section 5; what needs labels is None where there are none."""

    alignment: float | None  # Eq. 2, over positive pairs; lower is better
    uniformity: float  # Eq. 3, t = 2, over all pairs of sentences; lower is better
    positives_term: float | None  # Eq. 6, first term
    negatives_term: float  # Eq. 6, second term
    jensen_bound: float  # Eq. 7, never above the second term of Eq. 6
    anisotropy: float  # mean cosine of two different sentences
    spearman: float | None  # x 100, of the cosine with the gold score
    positives: int  # pairs behind alignment
    sentences: int

    @property
    def objective(self) -> float | None:
        """Both terms of Eq. 6 together, which contrastive training makes small."""
        return None if self.positives_term is None else self.positives_term + self.negatives_term


def measure_geometry(
    vectors: Vectors,
    *,
    positives: NDArray[np.int64] | None = None,
    graded: Graded | None = None,
    temperature: float = TEMPERATURE,
) -> Geometry:
    """Measure vectors (m, d) of distinct sentences; pairs are (n, 2) rows of them. No m x m matrix is held."""
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
    """Return the mean cosine over all pairs of different rows: what drawing random pairs would tend to.

    The cosines of all pairs add up to the squared length of the sum of the unit vectors, so nothing is drawn.
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
