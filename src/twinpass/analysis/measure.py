"""What is measured of one model's sentence vectors.

Geometry: alignment, uniformity, both terms of Eq. 6, the bound of Eq. 7 and anisotropy. Beside it the singular spectrum
(appendix F), the densities of the cosines in five groups of gold score (appendix G), and a map of the sentences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import gaussian_kde, rankdata

from twinpass.analysis.sampling import Graded, Sample, Scale, Vectors, some_rows
from twinpass.equations import alignment, asymptotic, jensen_bound, uniformity
from twinpass.vectors import unit

TEMPERATURE = 0.05  # Table D.1
GROUPS = 5  # of gold scores
GRID = np.linspace(-1.0, 1.0, 201)  # cosines at which densities are estimated
MOST_POINTS = 600  # on a map


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
class Spectrum:
    """Singular values of the matrix W of unit sentence vectors, largest first."""

    normalised: NDArray[np.float64]  # divided by the largest, as in the figure of appendix F
    effective_rank: float  # exp of the entropy of the singular values divided by their sum
    largest_eigenvalue: float  # of W W^T; its trace is the number of sentences
    largest_share: float  # of that trace: 1 if all vectors are parallel, 1/d if all directions are equal


def measure_spectrum(vectors: Vectors) -> Spectrum:
    """Decompose vectors (m, d), each scaled to length one as in section 5."""
    units = unit(vectors).astype(np.float64)
    # W^T W has the non-zero eigenvalues of W W^T, and the smaller of the two is much cheaper than a decomposition of W.
    gram = units.T @ units if len(units) > units.shape[1] else units @ units.T
    eigenvalues = np.maximum(np.linalg.eigvalsh(gram)[::-1], 0.0)
    values = np.sqrt(eigenvalues)
    total = float(eigenvalues.sum())
    return Spectrum(
        normalised=values / values[0] if values[0] > 0 else values,
        effective_rank=effective_rank(values),
        largest_eigenvalue=float(eigenvalues[0]),
        largest_share=float(eigenvalues[0]) / total if total > 0 else 0.0,
    )


def effective_rank(values: NDArray[np.float64]) -> float:
    """Return exp(-sum p log p) with p the singular values divided by their sum: between 1 and their number."""
    total = values.sum()
    if total <= 0:
        return 0.0
    shares = values[values > 0] / total
    return float(np.exp(-(shares * np.log(shares)).sum()))


@dataclass(frozen=True, kw_only=True)
class Group:
    """The pairs with a gold score in (low, high]; the lowest group includes its lower end."""

    low: float
    high: float
    pairs: int
    quartiles: tuple[float, float, float] | None  # of the cosine
    density: NDArray[np.float64] | None  # at GRID; None if the group has fewer than two different cosines

    @property
    def name(self) -> str:
        """The interval, such as '4-5'."""
        return f"{self.low:g}–{self.high:g}"


def measure_densities(cosines: ArrayLike, gold: ArrayLike, scale: Scale | None = None) -> list[Group]:
    """Cut the gold scale (default: the range of these scores) into five equal parts; estimate the density in each.

    A score on a boundary belongs to the group below it: on a scale of 0 to 5 the groups are [0, 1], (1, 2], (2, 3],
    (3, 4] and (4, 5], so the top group holds exactly the positives of Eq. 2 (scores above 4).
    """
    cosines, gold = np.asarray(cosines, dtype=np.float64), np.asarray(gold, dtype=np.float64)
    scale = scale or Scale(float(gold.min()), float(gold.max()))
    edges = np.linspace(scale.low, scale.high, GROUPS + 1)
    place = np.clip(np.searchsorted(edges, gold, side="left") - 1, 0, GROUPS - 1)
    return [_group(float(edges[group]), float(edges[group + 1]), cosines[place == group]) for group in range(GROUPS)]


def _group(low: float, high: float, cosines: NDArray[np.float64]) -> Group:
    # A kernel estimate needs some variance: one pair, or pairs with equal cosines, have none.
    spread = len(cosines) > 1 and float(np.ptp(cosines)) > 1e-6
    quartiles = np.quantile(cosines, (0.25, 0.5, 0.75)) if len(cosines) else None
    return Group(
        low=low,
        high=high,
        pairs=len(cosines),
        quartiles=None if quartiles is None else (float(quartiles[0]), float(quartiles[1]), float(quartiles[2])),
        density=gaussian_kde(cosines)(GRID) if spread else None,
    )


@dataclass(frozen=True, kw_only=True)
class Map:
    """Some rows as points on the first two principal components."""

    rows: NDArray[np.int64]
    points: NDArray[np.float64]  # (len(rows), 2)
    explained: tuple[float, float]  # share of the variance along each axis


def choose_points(
    total: int, positives: NDArray[np.int64] | None, *, most: int = MOST_POINTS, seed: int = 42
) -> NDArray[np.int64]:
    """Choose the rows that a map shows, the same for every model; both ends of a positive pair, if one is shown."""
    if positives is None or not len(positives):
        return some_rows(total, most, seed=seed)
    pairs = positives[some_rows(len(positives), most // 4, seed=seed)]
    rest = np.setdiff1d(some_rows(total, most, seed=seed), pairs)
    return np.concatenate([np.unique(pairs), rest])[:most]


def make_map(vectors: Vectors, rows: NDArray[np.int64]) -> Map:
    """Project unit vectors on the first two principal components (PCA) of all vectors.

    The largest coordinate of an axis is made positive, so the same vectors always give the same map.
    """
    units = unit(vectors).astype(np.float64)
    centred = units - units.mean(axis=0)
    variances, axes = np.linalg.eigh(centred.T @ centred)
    plane = axes[:, ::-1][:, :2]
    plane = plane * np.sign(plane[np.abs(plane).argmax(axis=0), range(plane.shape[1])])
    points = centred[rows] @ plane
    if points.shape[1] < 2:  # vectors of a single dimension lie on a line
        points = np.column_stack([points, np.zeros(len(points))])
    total = max(float(variances.sum()), 1e-30)
    first, second = [float(value) / total for value in [*variances[::-1], 0.0][:2]]
    return Map(rows=rows, points=points, explained=(first, second))


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
        """Return the measures by name; the map has the texts of its points."""
        points = zip(self.map.rows, self.map.points, strict=True)
        return vars(self) | {
            "geometry": vars(self.geometry) | {"objective": self.geometry.objective},
            "densities": None if self.densities is None else {"cosine": GRID, "groups": self.densities},
            "map": {
                "explained": self.map.explained,
                "points": [{"text": sample.texts[row], "x": x, "y": y} for row, (x, y) in points],
            },
        }


def measure(name: str, vectors: Vectors, sample: Sample, *, fingerprint: str | None = None, seed: int = 42) -> Measures:
    """Measure one model's vectors, one row for each text of the sample."""
    graded = sample.graded
    groups = None if graded is None else measure_densities(cosines(vectors, graded.pairs), graded.gold, graded.scale)
    return Measures(
        name=name,
        fingerprint=fingerprint,
        dimensions=vectors.shape[1],
        geometry=measure_geometry(vectors, positives=sample.positives, graded=graded),
        spectrum=measure_spectrum(vectors),
        densities=groups,
        map=make_map(vectors, choose_points(len(vectors), sample.positives, seed=seed)),
    )
