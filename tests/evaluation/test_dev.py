"""Dev sets against naive computations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from twinpass.errors import InputError
from twinpass.evaluation.dev import PairRetrieval, ScoredPairs, read_dev
from twinpass.evaluation.evaluate import evaluate

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


def test_pairs_that_share_an_answer_are_not_each_others_errors() -> None:
    """The dev set is scored by the rule of the task `retrieval:`."""
    pairs = [("a", "one"), ("b", "one"), ("c", "two"), ("d", "three")]
    places = {"a": 0, "b": 0, "one": 0, "c": 1, "two": 1, "d": 2, "three": 2}
    found = PairRetrieval(pairs, source="made up")(
        lambda texts: np.eye(3, dtype=np.float32)[[places[t] for t in texts]]
    )
    assert (found["score"], found["r_at_5"], found["mrr"]) == (100, 100, 100)


def test_the_dev_set_and_the_task_give_the_same_scores(tmp_path) -> None:
    pairs = [*PAIRS, ("left 5", "right 2"), ("left 20", "right 1"), ("left 21", "right 1")]
    path = tmp_path / "pairs.csv"
    path.write_text("query,answer\n" + "".join(f"{a},{b}\n" for a, b in pairs))
    found = read_dev(path)(encode)
    task = {s.metric: s.value for s in evaluate(encode, f"retrieval:{path}", resamples=100).tasks[0].scores}
    expected = {"score": task["r_at_1"], "r_at_5": task["r_at_5"], "mrr": task["mrr"]}
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_a_dev_set_with_decimal_commas_is_scored_and_one_with_words_for_scores_refused(tmp_path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("sentence1;sentence2;score\na cat;a dog;3,5\na man;a sea;1,25\n")
    dev = read_dev(path)
    assert isinstance(dev, ScoredPairs) and dev.gold == [3.5, 1.25]
    path.write_text("sentence1,sentence2,score\na cat,a dog,high\na man,a sea,low\n")
    with pytest.raises(InputError, match=r"expected numbers in column 'score', got 'high'"):
        read_dev(path)


def test_nothing_to_score_is_refused() -> None:
    with pytest.raises(InputError, match="different scores"):
        ScoredPairs(PAIRS, [1.0] * len(PAIRS), source="flat.csv")
    with pytest.raises(InputError, match="at least two pairs"):
        PairRetrieval(PAIRS[:1], source="one.csv")


def test_geometry_over_other_pairs_is_measured_on_them_and_texts_are_encoded_once():
    """Figure 2 follows all of STS-B while the best model is chosen on its dev set."""
    every = ScoredPairs([("a", "b"), ("c", "d"), ("a", "e")], [5.0, 0.0, 4.5], source="all")
    dev = ScoredPairs([("a", "b"), ("c", "d")], [5.0, 0.0], source="dev", geometry_over=every)
    seen = []

    def encode(texts):
        seen.extend(texts)
        return np.stack([np.array([ord(text), 10.0, 1.0], dtype=np.float32) for text in texts])

    found = dev(encode)
    assert sorted(seen) == ["a", "b", "c", "d", "e"]
    alone = ScoredPairs(dev.pairs, dev.gold, source="dev")(encode)
    assert found["score"] == alone["score"] and found["alignment"] != alone["alignment"]
    assert {"alignment": found["alignment"], "uniformity": found["uniformity"]} == every.geometry(encode)
