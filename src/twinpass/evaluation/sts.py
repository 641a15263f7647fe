"""Semantic textual similarity: cosine of two sentences against people's scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from twinpass.errors import InputError
from twinpass.evaluation.correlation import cosine_scores, pearson, spearman

__all__ = ["Encode", "PairScores", "cosine_scores", "score_pairs", "spearman"]

Encode = Callable[[Sequence[str]], npt.NDArray[np.float32]]


class PairScores(NamedTuple):
    """Correlations (-1 to 1, NaN where nothing varies) over n scored pairs."""

    spearman: float
    pearson: float
    n: int


def score_pairs(encode: Encode, pairs: Sequence[tuple[str, str]], gold: Sequence[float]) -> PairScores:
    """Correlate the cosine of each pair of sentences with its gold score."""
    if len(pairs) != len(gold) or not pairs:
        raise InputError(f"scored pairs are wanted: got {len(pairs)} pairs and {len(gold)} scores.")
    # One call with every text: an encoder that encodes each distinct text once can do so here.
    vectors = encode([text for pair in pairs for text in pair])
    scores = cosine_scores(vectors[0::2], vectors[1::2])
    return PairScores(spearman(scores, gold), pearson(scores, gold), len(gold))
