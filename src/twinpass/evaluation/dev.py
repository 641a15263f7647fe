"""Dev sets: what a training run is scored on while it runs.

A dev set is called with a function from texts to vectors and returns numbers, the one to go by under "score".
Its `protocol` says in words what that number is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from twinpass.equations import alignment, uniformity
from twinpass.errors import InputError
from twinpass.evaluation.correlation import cosine_scores, pearson, spearman
from twinpass.evaluation.retrieval import score_retrieval
from twinpass.evaluation.sts import Encode

Vectors = NDArray[np.float32]

# Of a scale's top: STS-B pairs scored above 4 of 5 are positives (the paper, footnote to Figure 2).
POSITIVE_SHARE = 0.8


class ScoredPairs:
    """Pairs of sentences with a gold score: Spearman's correlation with the cosine, alignment, uniformity."""

    def __init__(self, pairs: Sequence[tuple[str, str]], gold: Sequence[float], *, source: str) -> None:
        if len(pairs) < 2 or len(set(gold)) < 2:
            raise InputError(f"{source}: a dev set needs at least two pairs with different scores.")
        self.pairs, self.gold = list(pairs), list(gold)
        self.positives = np.asarray(gold) > POSITIVE_SHARE * max(gold)
        self.protocol = (
            f"Spearman x 100 of the cosine with the gold score, {len(self.pairs):,} pairs of {source}"
        )

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Encode every distinct sentence once and score."""
        texts = list(dict.fromkeys(text for pair in self.pairs for text in pair))
        row = {text: place for place, text in enumerate(texts)}
        vectors = encode(texts)
        left, right = (vectors[[row[pair[side]] for pair in self.pairs]] for side in (0, 1))
        cosines = cosine_scores(left, right)
        return {
            "score": 100 * spearman(cosines, self.gold),
            "pearson": 100 * pearson(cosines, self.gold),
            **geometry(left[self.positives], right[self.positives], vectors),
        }


class PairRetrieval:
    """Pairs of texts: find each pair's second text among all second texts, given its first."""

    def __init__(
        self, pairs: Sequence[tuple[str, str]], *, source: str, known: dict[str, float] | None = None
    ) -> None:
        """Remember the pairs; `known` scores of the model as it starts are not computed a second time."""
        if len(pairs) < 2:
            raise InputError(f"{source}: retrieval needs at least two pairs, got {len(pairs)}.")
        self.pairs, self.source, self.known = list(pairs), source, known
        self.protocol = (
            f"R@1 x 100, each first text against the second texts of {len(self.pairs):,} pairs of {source}"
        )

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Encode both sides and score."""
        if self.known is not None:
            known, self.known = self.known, None
            return known
        vectors = encode([text for pair in self.pairs for text in pair])
        left, right = vectors[0::2], vectors[1::2]
        found = score_retrieval(left, right, range(len(self.pairs)))
        return {
            "score": 100 * found.r_at_1,
            "r_at_5": 100 * found.r_at_5,
            "mrr": 100 * found.mrr,
            **geometry(left, right, vectors),
        }


def geometry(left: Vectors, right: Vectors, everything: Vectors) -> dict[str, float]:
    """Return alignment (Eq. 2) of positive pairs, where there are any, and uniformity (Eq. 3) of all vectors."""
    aligned = float(alignment(torch.from_numpy(left), torch.from_numpy(right))) if len(left) else math.nan
    found = {"alignment": aligned, "uniformity": float(uniformity(torch.from_numpy(everything)))}
    return {name: value for name, value in found.items() if not math.isnan(value)}
