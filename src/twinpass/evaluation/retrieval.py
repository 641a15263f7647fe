"""Retrieval: how high the relevant documents rank by cosine. The task and the dev set are both scored here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from twinpass.encoder.any_model import Encode
from twinpass.errors import InputError, ModelError
from twinpass.evaluation.statistics import Array, Floats
from twinpass.vectors import unit

MEASURES = ("r_at_1", "r_at_5", "r_at_10", "mrr", "ndcg_at_10")
_DEPTHS = (1, 5, 10)
_BLOCK = 1 << 24  # similarities held at a time
# Equal vectors differ by rounding alone; another document within this distance counts as ranked above.
_TIE = 1e-6


class RetrievalSet(NamedTuple):
    """Queries, documents, and for each query the rows of its relevant documents."""

    queries: list[str]
    documents: list[str]
    relevant: list[list[int]]

    def measure(self, encode: Encode) -> Array:
        """Return the measures of each query, (n, 5) in the order of MEASURES."""
        return measure_queries(encode(self.queries), encode(self.documents), self.relevant)

    def digest(self) -> str:
        """Return a hash of what is asked: only equal sets may be compared."""
        return hashlib.sha256(json.dumps(self).encode()).hexdigest()


def pool_pairs(pairs: Sequence[tuple[str, str]]) -> RetrievalSet:
    """Take the distinct second texts as documents; a first text that occurs twice is one query with two answers."""
    documents = {text: row for row, text in enumerate(dict.fromkeys(text for _, text in pairs))}
    relevant: dict[str, list[int]] = {}
    for query, document in pairs:
        relevant.setdefault(query, []).append(documents[document])
    return RetrievalSet(list(relevant), list(documents), list(relevant.values()))


def read_folder(folder: Path) -> RetrievalSet:
    """Read queries.jsonl and corpus.jsonl (_id, text, perhaps title) and qrels/test.tsv (query, document, score)."""
    entries = _entries(folder / "corpus.jsonl")
    documents = {entry["_id"]: f"{entry.get('title') or ''} {entry['text']}".strip() for entry in entries}
    queries = {entry["_id"]: str(entry["text"]) for entry in _entries(folder / "queries.jsonl")}
    rows = {name: row for row, name in enumerate(documents)}
    relevant: dict[str, list[int]] = {}
    for place, fields in _judgements(folder / "qrels" / "test.tsv"):
        query, document, score = fields
        if query not in queries or document not in rows:
            raise InputError(f"{place}: no query {query!r} or no document {document!r} in {folder}.")
        if float(score) > 0:
            relevant.setdefault(query, []).append(rows[document])
    return RetrievalSet([queries[name] for name in relevant], list(documents.values()), list(relevant.values()))


def mean_measures(measures: Array) -> dict[str, float]:
    """Return the mean over the queries of each measure, by name."""
    return dict(zip(MEASURES, measures.mean(axis=0).tolist(), strict=True))


def measure_queries(queries: Floats, documents: Floats, relevant: Sequence[int | Collection[int]]) -> Array:
    """Rank documents (m, d) by cosine for each query (n, d) and return the measures (n, 5) of each query.

    relevant[i] is the row of query i's document, or the rows of several.
    """
    answers = [_as_rows(rows, len(documents), i) for i, rows in enumerate(relevant)]
    if len(answers) != len(queries) or not answers:
        raise InputError(f"expected one answer per query, got {len(queries)} queries, {len(answers)} answers.")
    queries, documents = (unit(np.asarray(side, dtype=np.float32)) for side in (queries, documents))
    if queries.shape[1] != documents.shape[1]:
        raise ModelError(f"queries have {queries.shape[1]} dimensions and documents {documents.shape[1]}.")
    rows = max(1, _BLOCK // len(documents))
    values = [
        _measure(_ranks(similarities, answers[start + i]))
        for start in range(0, len(queries), rows)
        for i, similarities in enumerate(queries[start : start + rows] @ documents.T)
    ]
    return np.array(values)


def _ranks(similarities: Floats, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Ranks (from 1) of the relevant rows; other documents of equal score rank above: equal vectors win nothing."""
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


def _as_rows(rows: int | Collection[int], documents: int, query: int) -> npt.NDArray[np.intp]:
    given = [rows] if isinstance(rows, (int, np.integer)) else sorted(set(rows))
    if not given or min(given) < 0 or max(given) >= documents:
        raise InputError(
            f"query {query}: expected the rows of its relevant documents, from 0 to {documents - 1}, got {given}."
        )
    return np.asarray(given, dtype=np.intp)


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in _numbered(path):
        try:
            entry = json.loads(line)
            entry["_id"], entry["text"]
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{path}:{number}: expected a JSON object with _id and text.") from None
        yield entry


def _judgements(path: Path) -> Iterator[tuple[str, list[str]]]:
    for number, line in _numbered(path):
        fields = line.rstrip("\n").split("\t")
        if number == 1 and fields[-1].strip() == "score":
            continue
        if len(fields) != 3 or not fields[2].strip().lstrip("-").isdigit():
            raise InputError(f"{path}:{number}: expected query, document and a whole number, tab-separated.")
        yield f"{path}:{number}", fields


def _numbered(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8") as stream:
            yield from enumerate(stream, start=1)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}.") from error
