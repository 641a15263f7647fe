"""Dev sets against naive computations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from twinpass.errors import InputError
from twinpass.evaluation.dev import PairRetrieval, ScoredPairs

PAIRS = [(f"left {i}", f"right {i}") for i in range(12)] + [("left 0", "right 3")]
GOLD = [5.0, 4.5, 4.0, 3.0, 2.5, 2.0, 1.0, 0.5, 0.0, 4.8, 3.3, 1.7, 2.2]


def encode(texts) -> np.ndarray:
    return np.stack([np.random.default_rng(list(text.encode())).normal(size=6) for text in texts]).astype(np.float32)


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def test_scored_pairs_equal_naive_loops() -> None:
    found = ScoredPairs(PAIRS, GOLD, source="made up")(encode)
    cosines = [float(unit(encode([a])[0]) @ unit(encode([b])[0])) for a, b in PAIRS]
    assert found["score"] == pytest.approx(100 * stats.spearmanr(cosines, GOLD).statistic, abs=1e-4)
    assert found["pearson"] == pytest.approx(100 * stats.pearsonr(cosines, GOLD).statistic, abs=1e-4)
    positives = [(a, b) for (a, b), gold in zip(PAIRS, GOLD, strict=True) if gold > 4]
    assert len(positives) == 3
    distances = [float(((unit(encode([a])[0]) - unit(encode([b])[0])) ** 2).sum()) for a, b in positives]
    assert found["alignment"] == pytest.approx(np.mean(distances), abs=1e-5)
    texts = sorted({text for pair in PAIRS for text in pair})
    kernels = [
        math.exp(-2 * float(((unit(encode([a])[0]) - unit(encode([b])[0])) ** 2).sum()))
        for a in texts
        for b in texts
        if a != b
    ]
    assert found["uniformity"] == pytest.approx(math.log(np.mean(kernels)), abs=1e-4)


def test_each_distinct_text_is_asked_for_once() -> None:
    asked: list[str] = []
    ScoredPairs(PAIRS, GOLD, source="made up")(lambda texts: (asked.extend(texts), encode(texts))[1])
    assert len(asked) == len(set(asked)) == 24


def test_pair_retrieval_equals_naive_loops() -> None:
    pairs = PAIRS[:12]
    found = PairRetrieval(pairs, source="made up")(encode)
    ranks = []
    for query, answer in pairs:
        scores = {b: float(unit(encode([query])[0]) @ unit(encode([b])[0])) for _, b in pairs}
        ranks.append(1 + sum(score > scores[answer] for score in scores.values()))
    assert found["score"] == pytest.approx(100 * np.mean([rank == 1 for rank in ranks]))
    assert found["r_at_5"] == pytest.approx(100 * np.mean([rank <= 5 for rank in ranks]))
    assert found["mrr"] == pytest.approx(100 * np.mean([1 / rank for rank in ranks]))


def test_nothing_to_score_is_refused() -> None:
    with pytest.raises(InputError, match="different scores"):
        ScoredPairs(PAIRS, [1.0] * len(PAIRS), source="flat.csv")
    with pytest.raises(InputError, match="at least two pairs"):
        PairRetrieval(PAIRS[:1], source="one.csv")
