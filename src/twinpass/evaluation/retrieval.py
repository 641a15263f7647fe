"""Retrieval: how high the relevant documents stand when ranked by cosine."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from twinpass.errors import InputError, ModelError
from twinpass.evaluation.correlation import Array, Floats, check_finite
from twinpass.vectors import unit

MEASURES = ("r_at_1", "r_at_5", "r_at_10", "mrr", "ndcg_at_10")
_DEPTHS = (1, 5, 10)
_BLOCK = 1 << 24  # similarities held at a time
# Equal documents differ by rounding alone; within this distance a rival counts as standing above.
_TIE = 1e-6


class RetrievalScores(NamedTuple):
    """Means over n queries (0 to 1): recall at 1, 5 and 10, reciprocal rank, and nDCG at 10."""

    r_at_1: float
    r_at_5: float
    r_at_10: float
    mrr: float
    ndcg_at_10: float
    n: int


def score_retrieval(
    query_vectors: Floats, document_vectors: Floats, relevant: Sequence[int | Collection[int]]
) -> RetrievalScores:
    """Rank documents (m, d) by cosine for each query (n, d); relevant[i] is one document's row or several."""
    return mean_scores(query_values(query_vectors, document_vectors, relevant))


def mean_scores(values: Array) -> RetrievalScores:
    """Average the measures of each query, (n, 5) as query_values returns them."""
    r1, r5, r10, mrr, ndcg = values.mean(axis=0).tolist()
    return RetrievalScores(r1, r5, r10, mrr, ndcg, len(values))


def query_values(query_vectors: Floats, document_vectors: Floats, relevant: Sequence[int | Collection[int]]) -> Array:
    """Return the measures of each query, (n, 5) in the order of MEASURES."""
    wanted = [_as_rows(rows, len(document_vectors), i) for i, rows in enumerate(relevant)]
    if len(wanted) != len(query_vectors) or not wanted:
        raise InputError(f"each query wants its documents: {len(query_vectors)} queries, {len(wanted)} answers.")
    queries, documents = _finite_unit(query_vectors), _finite_unit(document_vectors)
    if queries.shape[1] != documents.shape[1]:
        raise ModelError(f"queries have {queries.shape[1]} dimensions and documents {documents.shape[1]}.")
    rows = max(1, _BLOCK // len(documents))
    values = [
        _measure(_ranks(similarities, wanted[start + i]))
        for start in range(0, len(queries), rows)
        for i, similarities in enumerate(queries[start : start + rows] @ documents.T)
    ]
    return np.array(values)


def _ranks(similarities: Floats, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Ranks (from 1) of the relevant rows; ties go against the model, so that equal vectors win nothing."""
    own = np.sort(similarities[rows])[::-1]
    floor = own - _TIE
    above = np.array([np.count_nonzero(similarities >= f) for f in floor])
    friends = np.array([np.count_nonzero(own >= f) for f in floor])
    ranks: npt.NDArray[np.intp] = above - friends + np.arange(1, len(own) + 1)
    return ranks


def _measure(ranks: npt.NDArray[np.intp]) -> list[float]:
    recalls = [float(np.mean(ranks <= depth)) for depth in _DEPTHS]
    gain = np.sum(1 / np.log2(1 + ranks[ranks <= 10]))
    ideal = np.sum(1 / np.log2(2 + np.arange(min(len(ranks), 10))))
    return [*recalls, float(1 / ranks.min()), float(gain / ideal)]


def _finite_unit(vectors: Floats) -> npt.NDArray[np.float32]:
    check_finite(vectors)
    return unit(np.asarray(vectors, dtype=np.float32))


def _as_rows(rows: int | Collection[int], documents: int, query: int) -> npt.NDArray[np.intp]:
    given = [rows] if isinstance(rows, (int, np.integer)) else sorted(set(rows))
    if not given or min(given) < 0 or max(given) >= documents:
        raise InputError(
            f"query {query} wants the rows of its relevant documents, from 0 to {documents - 1}: got {given}."
        )
    return np.asarray(given, dtype=np.intp)
