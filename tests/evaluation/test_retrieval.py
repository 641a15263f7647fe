import numpy as np
import pytest

from twinpass.errors import InputError
from twinpass.evaluation.retrieval import MEASURES, mean_measures, measure_queries, pool_pairs


def score_retrieval(queries, documents, relevant):
    return mean_measures(measure_queries(queries, documents, relevant))


def naive(queries, documents, relevant):
    """The definitions, one query at a time, every rival of equal score standing above."""
    totals = np.zeros(5)
    for query, rows in zip(queries, relevant, strict=True):
        cosines = [d @ query / (np.linalg.norm(d) * np.linalg.norm(query)) for d in documents]
        order = sorted(range(len(documents)), key=lambda i: (-cosines[i], i in rows))
        hits = [1 if i in rows else 0 for i in order]
        recalls = [sum(hits[:k]) / len(rows) for k in (1, 5, 10)]
        gain = sum(h / np.log2(2 + r) for r, h in enumerate(hits[:10]))
        ideal = sum(1 / np.log2(2 + r) for r in range(min(len(rows), 10)))
        totals += [*recalls, 1 / (1 + hits.index(1)), gain / ideal]
    return totals / len(queries)


@pytest.mark.parametrize("most", [1, 12])
def test_measures_equal_the_definitions(most):
    rng = np.random.default_rng(most)
    queries, documents = rng.normal(size=(30, 5)), rng.normal(size=(50, 5))
    relevant = [set(rng.choice(50, rng.integers(1, most + 1), replace=False).tolist()) for _ in range(30)]
    scores = score_retrieval(queries, documents, relevant)
    np.testing.assert_allclose(list(scores.values()), naive(queries, documents, relevant), atol=1e-12)
    assert tuple(scores) == MEASURES and len(measure_queries(queries, documents, relevant)) == 30


def test_one_row_per_query_may_be_a_number():
    eye = np.eye(4, dtype=np.float32)
    assert list(score_retrieval(eye, eye, [0, 1, 2, 3]).values()) == [1, 1, 1, 1, 1]


def test_equal_vectors_win_nothing():
    same = np.ones((40, 8), dtype=np.float32)
    scores = score_retrieval(same, same, range(40))
    assert scores["r_at_10"] == 0 and scores["mrr"] == pytest.approx(1 / 40)


def test_blocks_do_not_change_the_result(monkeypatch):
    rng = np.random.default_rng(0)
    queries, documents = rng.normal(size=(20, 4)), rng.normal(size=(30, 4))
    whole = score_retrieval(queries, documents, range(20))
    monkeypatch.setattr("twinpass.evaluation.retrieval._BLOCK", 70)
    assert score_retrieval(queries, documents, range(20)) == pytest.approx(whole)


@pytest.mark.parametrize("relevant", [[0, 9], [0, []], [0, -1]])
def test_rows_that_do_not_exist_are_refused(relevant):
    with pytest.raises(InputError, match="query 1: expected the rows"):
        score_retrieval(np.eye(2), np.eye(2), relevant)


def test_counts_must_agree():
    with pytest.raises(InputError, match="2 queries, 1 answers"):
        score_retrieval(np.eye(2), np.eye(2), [0])


def test_equal_documents_are_one_and_a_repeated_query_has_several_answers():
    assert pool_pairs([("a", "x"), ("b", "x"), ("a", "y")]) == (["a", "b"], ["x", "y"], [[0, 1], [0]])
