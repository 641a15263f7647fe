"""The distribution of the cosines of pairs in five groups of gold score (appendix G)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import gaussian_kde

from twinpass.analysis.sampling import Scale

GROUPS = 5
GRID = np.linspace(-1.0, 1.0, 201)


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
