"""Searching an index: by the vectors of the queries, by their words, or by both; equal texts are grouped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from twinpass.errors import ConfigError, InputError
from twinpass.registry import suggest
from twinpass.search.engines.exact import Floats, Rows
from twinpass.search.filters import Where, check_columns, parse
from twinpass.search.results import Hit, Hits, Results
from twinpass.search.segment import BATCH, check_vectors
from twinpass.search.snapshot import Groups, Snapshot
from twinpass.search.texts import OWN_VECTORS
from twinpass.vectors import unit

if TYPE_CHECKING:
    from twinpass.encoder.encoder import Encoder

DENSE, KEYWORD, HYBRID = MODES = ("dense", "keyword", "hybrid")
RANK = 60  # Cormack, Clarke and Büttcher, Reciprocal Rank Fusion outperforms Condorcet ..., SIGIR 2009
DEPTH = 100  # of each list that is fused, at least

Found = tuple[Floats, Rows]  # scores and rows of one query's texts, best first


def fuse(found: Sequence[Sequence[int] | Rows], k: int) -> tuple[Floats, Rows]:
    """Return the k best of several rankings: the score of a row is the sum of 1 / (60 + its rank) over the rankings.

    Of equal scores the smaller row comes first.
    """
    scores: dict[int, float] = {}
    for ranking in found:
        for rank, row in enumerate(ranking, start=1):
            scores[int(row)] = scores.get(int(row), 0.0) + 1 / (RANK + rank)
    best = sorted(scores, key=lambda row: (-scores[row], row))[:k]
    return np.array([scores[row] for row in best], np.float32), np.array(best, np.int64)


def check_mode(mode: str) -> None:
    """Refuse an unknown way of searching."""
    if mode not in MODES:
        hint = suggest(mode, MODES) if isinstance(mode, str) else ""
        raise ConfigError(f"no mode of search named {mode!r}.{hint} Known: {', '.join(MODES)}.")


def check_queries(queries: Sequence[str]) -> None:
    """Refuse queries of which one is empty, or no text."""
    for place, query in enumerate(queries):
        if not isinstance(query, str):
            raise InputError(f"query {place}: expected a text, got {query!r:.40} of type {type(query).__name__}.")
        if not query.strip():
            raise InputError("a query is empty; an empty text is near to nothing in particular.")


def _check_k(k: int) -> None:
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise ConfigError(f"k is {k!r}; expected a whole number of at least 1.")


def check_least(min_score: float | None) -> None:
    """Refuse a least score that is no number."""
    is_number = isinstance(min_score, (int, float, np.integer, np.floating)) and not isinstance(min_score, bool)
    if min_score is not None and (not is_number or np.isnan(min_score)):
        raise ConfigError(f"min_score is {min_score!r}; expected a number, such as 0.5, or None.")


class Searching:
    """The part of an Index that searches its snapshot."""

    _snapshot: Snapshot

    @property
    def encoder(self) -> Encoder:
        """The model that made the vectors."""
        raise NotImplementedError

    @property
    def model(self) -> dict[str, Any]:
        """The record of the model that made the vectors."""
        raise NotImplementedError

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the metadata columns."""
        raise NotImplementedError

    @overload
    def search(  # type: ignore[overload-overlap]  # a str is also an iterable of strings
        self,
        queries: str,
        k: int = 10,
        *,
        mode: str = DENSE,
        where: Where = None,
        min_score: float | None = None,
        group: bool | None = None,
    ) -> Hits: ...
    @overload
    def search(
        self,
        queries: Iterable[str] | Floats,
        k: int = 10,
        *,
        mode: str = DENSE,
        where: Where = None,
        min_score: float | None = None,
        group: bool | None = None,
    ) -> Results: ...
    def search(
        self,
        queries: str | Iterable[str] | Floats,
        k: int = 10,
        *,
        mode: str = DENSE,
        where: Where = None,
        min_score: float | None = None,
        group: bool | None = None,
    ) -> Hits | Results:
        """Return the k nearest texts of a query, best first; of several texts or of vectors, the hits of each.

        `mode` is dense: by cosine; keyword: by BM25, without the model; or hybrid: by both, their ranks fused. Fewer
        than k come back if fewer meet the filter `where`, such as "year >= 2020", or reach `min_score`. Equal texts are
        one hit with their count, unless `group` is False or the vectors are your own.
        """
        options: dict[str, Any] = {"mode": mode, "where": where, "min_score": min_score, "group": group}
        if isinstance(queries, np.ndarray) and queries.dtype.kind in "OU":  # of texts, or of a single one
            queries = queries.tolist()
        if isinstance(queries, str):
            return next(self.results([queries], k, **options))
        if not isinstance(queries, Iterable):
            raise InputError(f"expected a text, several texts or vectors as queries, got {queries!r:.40}.")
        given = queries if isinstance(queries, np.ndarray) else list(queries)
        if isinstance(given, list) and (not given or any(isinstance(query, str) for query in given)):
            return Results(list(self.results(given, k, **options)))
        try:
            vectors = np.asarray(given, dtype=np.float32)
        except (TypeError, ValueError):
            kinds = sorted({type(each).__name__ for each in given})
            raise InputError(f"expected texts or vectors of one size as queries, got {', '.join(kinds)}.") from None
        return Results([Hits(None, hits) for hits in self.search_vectors(vectors, k, **options)])

    def results(
        self,
        queries: Iterable[str],
        k: int = 10,
        *,
        mode: str = DENSE,
        where: Where = None,
        min_score: float | None = None,
        group: bool | None = None,
    ) -> Iterator[Hits]:
        """Yield the hits of each query, in constant memory however many there are."""
        if isinstance(queries, Sequence):
            check_queries(queries)
        _check_k(k)
        check_mode(mode)
        check_least(min_score)
        self._check_where(where)  # before the model is loaded
        options: dict[str, Any] = {"mode": mode, "where": where, "min_score": min_score, "group": group}
        return (
            hits
            for texts, vectors in self._encoded(queries, mode)
            for hits in map(Hits, texts, self.search_vectors(vectors, k, texts=texts, **options))
        )

    def _encoded(self, queries: Iterable[str], mode: str) -> Iterator[tuple[Sequence[str], Floats | None]]:
        """Return the queries in blocks with their vectors, if the mode needs any; the model is loaded at once."""
        if mode != KEYWORD:
            return ((texts, vectors) for texts, vectors, _ in self.encoder.encode_stream(queries, normalize=True))
        given = iter(queries)
        return ((texts, None) for texts in iter(lambda: list(islice(given, BATCH)), []))

    def search_vectors(
        self,
        vectors: Floats | None,
        k: int = 10,
        *,
        texts: Sequence[str] | None = None,
        mode: str = DENSE,
        where: Where = None,
        min_score: float | None = None,
        group: bool | None = None,
    ) -> list[list[Hit]]:
        """Return each query's k nearest texts, best first, as plain lists.

        The modes keyword and hybrid need the `texts` of the queries; keyword needs no vectors.
        """
        _check_k(k)
        check_mode(mode)
        check_least(min_score)
        if mode != DENSE and texts is None:
            raise ConfigError(f"a vector has no words: expected a text as the query with the mode {mode}.")
        snapshot, chosen = self._snapshot, parse(where)
        allowed = None if chosen is None else snapshot.meeting(chosen)
        groups: Groups | None = None
        if self._groups(group):
            groups = snapshot.groups if allowed is None else snapshot.groups_of(np.flatnonzero(allowed))
            if groups.trivial:
                groups = None
            else:  # search only the first of equal texts
                allowed = np.zeros(snapshot.manifest.rows, bool)
                allowed[groups.rows] = True
        if mode == DENSE:
            found = _by_vectors(snapshot, vectors, k, allowed)
        elif mode == KEYWORD:
            found = [snapshot.best_by_words(text, k, allowed) for text in texts or ()]
        else:
            depth = max(k, DEPTH)
            near = _by_vectors(snapshot, vectors, depth, allowed)
            same = (snapshot.best_by_words(text, depth, allowed) for text in texts or ())
            found = [fuse([rows, others], k) for (_, rows), (_, others) in zip(near, same, strict=True)]
        least = -np.inf if min_score is None else min_score
        return [
            [
                snapshot.hit(row, score, 1 if groups is None else groups.count(snapshot.digests[row]))
                for score, row in zip(scores.tolist(), rows.tolist(), strict=True)
                if score >= least
            ]
            for scores, rows in found
        ]

    def _groups(self, group: bool | None) -> bool:
        """Tell whether equal texts are one hit: not by themselves if vectors are the user's own, as labels may be."""
        return self.model["fingerprint"] != OWN_VECTORS["fingerprint"] if group is None else group

    def _check_where(self, where: Where) -> None:
        check_columns(parse(where), self.columns)


def _by_vectors(snapshot: Snapshot, vectors: Any, k: int, allowed: Any) -> list[Found]:
    queries = np.atleast_2d(np.asarray(vectors, dtype=np.float32))
    check_vectors(queries, dimensions=snapshot.manifest.dimensions)
    scores, rows = snapshot.nearest(unit(queries), k, allowed)
    return [(each[found >= 0], found[found >= 0]) for each, found in zip(scores, rows, strict=True)]
