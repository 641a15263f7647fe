"""Hard negatives: which of a query's neighbours are negatives, by rank, by margin against the positive, by text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from twinpass.errors import ConfigError
from twinpass.text.rows import text_key

Pair = tuple[str, str]

RANKS = (1, 50)
# Moreira et al. (2024, NV-Retriever) find a limit of 95 % of the positive's score best ("TopK-PercPos").
RELATIVE_MARGIN = 0.05

OWN = "the row's own positive"
OTHER = "another positive of the same query"
SAME = "the same text as the query"
EARLY = "before the first rank"
REPEAT = "a repeated text"
MARGIN = "too near: within the margin of the positive"
ABOVE = "above the highest cosine"
BELOW = "below the lowest cosine"


class Rules(NamedTuple):
    """Which of a query's neighbours are hard negatives, and how many are taken."""

    negatives: int = 1
    first: int = RANKS[0]
    last: int = RANKS[1]
    margin: float = 0.0
    relative_margin: float = RELATIVE_MARGIN
    lowest: float | None = None
    highest: float | None = None
    choose: str = "nearest"

    def check(self) -> Rules:
        """Return the rules, or raise ConfigError for one that is not possible."""
        _require(self.negatives >= 1, f"negatives is {self.negatives}; expected 1 or more.")
        wide = self.last - self.first + 1
        _require(1 <= self.first <= self.last, f"ranks are {self.first}-{self.last}; expected 1 <= first <= last.")
        _require(wide >= self.negatives, f"ranks {self.first}-{self.last} hold {wide}, not {self.negatives} negatives.")
        _require(0 <= self.margin <= 2, f"margin is {self.margin}; expected a difference of cosines, from 0 to 2.")
        _require(0 <= self.relative_margin < 1, f"relative_margin is {self.relative_margin}; expected 0 to below 1.")
        _require(self.choose in ("nearest", "random"), f"choose is {self.choose!r}; expected nearest or random.")
        low, high = self.lowest, self.highest
        _require(not any(math.isnan(each or 0) for each in (low, high)), "min_score and max_score must be numbers.")
        _require(low is None or high is None or low < high, f"min_score {low} is not below max_score {high}.")
        return self

    def limit(self, positive: float) -> float:
        """Return the cosine that a negative must not exceed, given the positive's: both margins hold."""
        return min(positive - self.margin, positive - self.relative_margin * abs(positive))

    def fault(self, cosine: float, positive: float) -> str:
        """Return why a neighbour of this cosine is no hard negative; empty if it is one."""
        if cosine > self.limit(positive):
            return MARGIN
        if self.highest is not None and cosine > self.highest:
            return ABOVE
        return BELOW if self.lowest is not None and cosine < self.lowest else ""


class Found(NamedTuple):
    """A hard negative: its text, its cosine with the query, and its rank among the texts that could be negatives."""

    text: str
    cosine: float
    rank: int


class Mining(NamedTuple):
    """What was found for one pair; not `complete` if more neighbours could add to it."""

    found: list[Found]
    cosine: float
    left_out: Counter[str]
    complete: bool


def negatives_of(
    pair: Pair, neighbours: Iterable[tuple[str, float]], *, cosine: float, positives: set[bytes], rules: Rules
) -> Mining:
    """Return the hard negatives of a pair among its query's neighbours, best first.

    `cosine` is the positive's, `positives` are the keys of every positive of the query.
    """
    query, own = map(key_of, pair)
    taken, left_out, seen = list[Found](), Counter[str](), set[bytes]()
    enough = rules.negatives if rules.choose == "nearest" else rules.last
    for text, near in neighbours:
        key = key_of(text)
        reason = OWN if key == own else SAME if key == query else OTHER if key in positives else ""
        reason = reason or (REPEAT if key in seen else "")
        if not reason:
            seen.add(key)
            if len(seen) > rules.last:
                return Mining(taken, cosine, left_out, complete=True)
            reason = EARLY if len(seen) < rules.first else rules.fault(near, cosine)
        if reason:
            left_out[reason] += 1
            continue
        taken.append(Found(text, near, rank=len(seen)))
        if len(taken) == enough or len(seen) == rules.last:
            return Mining(taken, cosine, left_out, complete=True)
    return Mining(taken, cosine, left_out, complete=False)


def key_of(text: str) -> bytes:
    """Return what equal texts share, whatever their case, spaces and punctuation."""
    return text_key(text) or text.encode("utf-8", "surrogatepass")


def _require(good: bool, message: str) -> None:
    if not good:
        raise ConfigError(message)
