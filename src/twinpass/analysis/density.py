"""How cosines of pairs are spread in five groups of gold score (appendix G)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import gaussian_kde

from twinpass.analysis.sample import Scale

GROUPS = 5
GRID = np.linspace(-1.0, 1.0, 201)


@dataclass(frozen=True, kw_only=True)
class Group:
    """The pairs whose gold score lies in (low, high]; the lowest group also holds its lower end."""

    low: float
    high: float
    pairs: int
    quartiles: tuple[float, float, float] | None  # of the cosine
    density: NDArray[np.float64] | None  # at GRID; None where the group has too few different cosines

    @property
    def name(self) -> str:
        """The interval in words, such as '4-5'."""
        return f"{self.low:g}–{self.high:g}"


def measure_densities(
    cosines: NDArray[np.float64], gold: NDArray[np.float64], scale: Scale | None = None
) -> list[Group]:
    """Cut the gold scale (by default the one these scores span) into five parts and estimate the density in each."""
    scale = scale or Scale(float(gold.min()), float(gold.max()))
    edges = np.linspace(scale.low, scale.high, GROUPS + 1)
    place = np.clip(np.searchsorted(edges, gold, side="left") - 1, 0, GROUPS - 1)
    return [_group(float(edges[group]), float(edges[group + 1]), cosines[place == group]) for group in range(GROUPS)]


def _group(low: float, high: float, cosines: NDArray[np.float64]) -> Group:
    # A kernel estimate needs a spread; one pair, or pairs all alike, have none.
    spread = len(cosines) > 1 and float(np.ptp(cosines)) > 1e-6
    quartiles = np.quantile(cosines, (0.25, 0.5, 0.75)) if len(cosines) else None
    return Group(
        low=low,
        high=high,
        pairs=len(cosines),
        quartiles=None if quartiles is None else (float(quartiles[0]), float(quartiles[1]), float(quartiles[2])),
        density=gaussian_kde(cosines)(GRID) if spread else None,
    )
