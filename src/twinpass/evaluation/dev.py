"""Dev sets: what a training run is scored on while it runs.

A dev set is called with a function from texts to vectors and returns named numbers. The one under "score" decides
which model is best; `protocol` says in words what it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from twinpass.encoder.any_model import Encode
from twinpass.equations import POSITIVE_SHARE, alignment, uniformity
from twinpass.errors import InputError
from twinpass.evaluation.retrieval import mean_measures, pool_pairs
from twinpass.evaluation.statistics import cosine_scores, pearson, spearman
from twinpass.text.corpus import open_corpus

Vectors = NDArray[np.float32]


class ScoredPairs:
    """Pairs of sentences with a gold score: Spearman's correlation with the cosine, alignment, uniformity.

    With `geometry_over`, alignment and uniformity are measured on those pairs instead: Figure 2 of the paper follows
    all of STS-B, while the best model is chosen on its development set.
    """

    def __init__(
        self,
        pairs: Sequence[tuple[str, str]],
        gold: Sequence[float],
        *,
        source: str,
        geometry_over: ScoredPairs | None = None,
    ) -> None:
        if len(pairs) < 2 or len(set(gold)) < 2:
            raise InputError(f"{source}: a dev set needs at least two pairs with different scores.")
        self.pairs, self.gold = list(pairs), list(gold)
        self.positives = np.asarray(gold) > POSITIVE_SHARE * max(gold)
        self.protocol = f"Spearman x 100 of the cosine with the gold score, {len(self.pairs):,} pairs of {source}"
        self.geometry_over = geometry_over

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Encode every distinct sentence once and score."""
        spread = self.geometry_over or self
        texts = list(dict.fromkeys([*self.texts, *spread.texts]))
        encode = _looked_up(texts, encode(texts))
        left, right, _ = self._encode(encode)
        cosines = cosine_scores(left, right)
        return {
            "score": 100 * spearman(cosines, self.gold),
            "pearson": 100 * pearson(cosines, self.gold),
            **spread.geometry(encode),
        }

    def geometry(self, encode: Encode) -> dict[str, float]:
        """Return alignment of the positive pairs, and uniformity of all sentences."""
        left, right, vectors = self._encode(encode)
        return geometry(left[self.positives], right[self.positives], vectors)

    @property
    def texts(self) -> list[str]:
        """Every distinct sentence."""
        return list(dict.fromkeys(text for pair in self.pairs for text in pair))

    def cosines(self, encode: Encode) -> NDArray[np.float64]:
        """Return the cosine of each pair."""
        left, right, _ = self._encode(encode)
        return cosine_scores(left, right)

    def _encode(self, encode: Encode) -> tuple[Vectors, Vectors, Vectors]:
        """Return the vectors of both sides of the pairs, and those of the distinct sentences."""
        texts = self.texts
        row = {text: place for place, text in enumerate(texts)}
        vectors = encode(texts)
        left, right = (vectors[[row[pair[side]] for pair in self.pairs]] for side in (0, 1))
        return left, right, vectors


def _looked_up(texts: Sequence[str], vectors: Vectors) -> Encode:
    """Return a function that finds the vectors of these texts."""
    row = {text: place for place, text in enumerate(texts)}
    return lambda asked: vectors[[row[text] for text in asked]]


class PairRetrieval:
    """Pairs of texts: find each pair's second text among all distinct second texts, given its first.

    It is scored as the task `retrieval:` is: pairs that share a second text are not each other's errors, and a first
    text that occurs twice is one query with two answers.
    """

    def __init__(self, pairs: Sequence[tuple[str, str]], *, source: str, known: dict[str, float] | None = None) -> None:
        """Remember the pairs; `known` are the scores of the starting model, which are then not computed again."""
        if len(pairs) < 2:
            raise InputError(f"{source}: retrieval needs at least two pairs, got {len(pairs)}.")
        self.pairs, self.source, self.known = list(pairs), source, known
        self._asked = pool_pairs(self.pairs)
        self.protocol = f"R@1 x 100, each first text against the second texts of {len(self.pairs):,} pairs of {source}"

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Encode both sides and score."""
        if self.known is not None:
            known, self.known = self.known, None
            return known
        texts = [text for pair in self.pairs for text in pair]
        vectors = encode(texts)
        found = mean_measures(self._asked.measure(_looked_up(texts, vectors)))
        return {
            "score": 100 * found["r_at_1"],
            "r_at_5": 100 * found["r_at_5"],
            "mrr": 100 * found["mrr"],
            **geometry(vectors[0::2], vectors[1::2], vectors),
        }


def read_dev(source: str | Path, *, name: str | None = None) -> ScoredPairs | PairRetrieval:
    """Read pairs of texts: ScoredPairs where they have scores, else PairRetrieval."""
    corpus = open_corpus(source, pairs=True)
    if corpus.width != 2:
        raise InputError(
            f"{source}: a dev set expects two text columns (and a score, to correlate with), got {corpus.width}."
        )
    rows: list[Any] = [(row.texts, row.score) for row in corpus]
    pairs = [texts for texts, _ in rows]
    if not corpus.scored:
        return PairRetrieval(pairs, source=name or str(source))
    return ScoredPairs(pairs, [score for _, score in rows], source=name or str(source))


def geometry(left: Vectors, right: Vectors, everything: Vectors) -> dict[str, float]:
    """Return alignment (Eq. 2) of positive pairs, where there are any, and uniformity (Eq. 3) of all vectors."""
    aligned = float(alignment(torch.from_numpy(left), torch.from_numpy(right))) if len(left) else math.nan
    found = {"alignment": aligned, "uniformity": float(uniformity(torch.from_numpy(everything)))}
    return {name: value for name, value in found.items() if not math.isnan(value)}
