"""Do two columns order the rows alike? Kendall's tau."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import kendalltau


@dataclass(frozen=True)
class Agreement:
    """Kendall's tau-b over so many rows, with the p-value of no association at all."""

    tau: float
    p: float
    rows: int

    @property
    def words(self) -> str:
        """What tau says, in so many words."""
        if self.tau == 1.0:
            return "the paper's ordering"
        if self.tau == -1.0:
            return "the paper's ordering upside down"
        degree = "mostly" if self.tau >= 0.6 else "partly" if self.tau >= 0.2 else "not"
        return "not the paper's ordering" if degree == "not" else f"{degree} the paper's ordering"


def order_agreement(ours: Sequence[float | None], paper: Sequence[float | None]) -> Agreement | None:
    """Compare over the rows that have both numbers; fewer than three, or one with no order, say nothing."""
    pairs = zip(ours, paper, strict=True)
    both = [(a, b) for a, b in pairs if a is not None and b is not None and not math.isnan(a)]
    if len(both) < 3 or len({a for a, _ in both}) == 1 or len({b for _, b in both}) == 1:
        return None
    found = kendalltau(*zip(*both, strict=True))
    return Agreement(float(found.statistic), float(found.pvalue), len(both))
