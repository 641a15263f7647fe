"""Semantic textual similarity: cosine of two sentences against people's scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from twinpass.encoder.any_model import Encode
from twinpass.errors import InputError
from twinpass.evaluation.correlation import Array, cosine_scores, pearson, spearman
from twinpass.evaluation.features import text_features
from twinpass.evaluation.items import Pairs
from twinpass.evaluation.reading import Data, Rows, senteval_order
from twinpass.evaluation.regressor import regress

__all__ = ["Encode", "PairScores", "cosine_scores", "score_pairs", "score_sts", "spearman"]


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


def score_sts(encode: Encode, data: Data, *, split: str = "test", regressor: bool = False) -> dict[str, Pairs]:
    """Score a task's pairs by 'cosine' and, where it has training pairs and it is asked for, by 'regressor'."""
    scored = data.parts if data.task.protocol == "subsets" else {split: data.parts[split]}
    cosine = {name: (_cosines(encode, rows), np.array(rows.targets)) for name, rows in scored.items()}
    items = {"cosine": Pairs(cosine)}
    if regressor and data.task.protocol == "splits":
        train, dev, test = (_sorted_features(encode, data.parts[name]) for name in ("train", "dev", split))
        items["regressor"] = Pairs({split: (regress(train, dev, test[0]), test[1])})
    return items


def _cosines(encode: Encode, rows: Rows) -> Array:
    first, second = (encode(list(column)) for column in zip(*rows.texts, strict=True))
    return cosine_scores(first, second)


def _sorted_features(encode: Encode, rows: Rows) -> tuple[npt.NDArray[np.float32], Array]:
    """|u - v| beside u * v (n, 2d) and scores, in SentEval's order."""
    ordered = senteval_order([rows])
    return text_features(encode, ordered.texts), np.array(ordered.targets)
