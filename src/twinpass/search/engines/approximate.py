"""Approximate search: faiss proposes candidates, which are then scored exactly.

The effort of a search (how much of the graph, or how many lists are looked at) is set when the index is built: the
least at which the recall on a sample reaches the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinpass.search.engines.exact import Floats, Rows, top

AUTO, EXACT, HNSW, IVF_PQ = "auto", "exact", "hnsw", "ivf-pq"
KINDS = (AUTO, EXACT, HNSW, IVF_PQ)  # in the order of the sizes they are for

# Of 384 dimensions on one core, an exact search of 40,000 takes 4.6 ms a query, so 200,000 take some 23 ms, and nothing
# is to be built; a graph answers in 0.4 ms and takes a minute to build at that size (benchmarks/search.py). Beyond two
# million its half-precision vectors and links want 2 GB of memory, and codes a twentieth of that.
HNSW_FROM = 200_000
IVF_PQ_FROM = 2_000_000
LEAST = {EXACT: 0, HNSW: 1_000, IVF_PQ: 10_000}  # fewer teach faiss nothing: 256 codes want 39 examples each

LINKS = 32  # of each node of the graph
BUILD_EFFORT = 80  # candidates considered for them
DIMENSIONS_PER_CODE = 8  # one byte stands for so many numbers
EXAMPLES_PER_LIST = 64  # of the vectors that the lists are learned from
REFINED = {HNSW: 1, IVF_PQ: 10}  # candidates that are scored exactly, for each that is wanted
EFFORTS = {HNSW: (64, 128, 256, 512), IVF_PQ: (8, 16, 32, 64, 128, 256)}
TARGET = 0.97  # of recall@10
SAMPLE = 500  # rows whose neighbours are looked for to measure it
BLOCK = 16_384  # vectors added together


def kind_for(rows: int, wanted: str) -> str:
    """Return how so many rows are searched: as wanted, or by size; exactly where there are too few to learn from."""
    if wanted == AUTO:
        return IVF_PQ if rows >= IVF_PQ_FROM else HNSW if rows >= HNSW_FROM else EXACT
    return wanted if rows >= LEAST[wanted] else EXACT


@dataclass
class Approximate:
    """A faiss index over the rows of a segment."""

    index: Any
    kind: str
    vectors: Floats
    effort: int = 0

    def top(self, queries: Floats, *, k: int, allowed: NDArray[np.bool_] | None = None) -> tuple[Floats, Rows]:
        """Return the inner products and rows (n, k) of the best that were found; a row of -1 stands for none."""
        k = min(k, len(self.vectors))
        wanted = min(k * REFINED[self.kind], len(self.vectors))
        _, candidates = self.index.search(queries, wanted, params=self._parameters(wanted, allowed))
        scores = np.full((len(queries), k), -np.inf, np.float32)
        rows = np.full((len(queries), k), -1, np.int64)
        for place, (query, found) in enumerate(zip(queries, candidates, strict=True)):
            found = found[found >= 0]
            exact = self.vectors[found] @ query
            order = np.argsort(-exact, kind="stable")[:k]
            scores[place, : len(order)], rows[place, : len(order)] = exact[order], found[order]
        return scores, rows

    def _parameters(self, wanted: int, allowed: NDArray[np.bool_] | None) -> Any:
        faiss = _faiss()
        chosen = {} if allowed is None else {"sel": faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))}
        if self.kind == HNSW:
            return faiss.SearchParametersHNSW(efSearch=max(self.effort, wanted), **chosen)
        return faiss.SearchParametersIVF(nprobe=self.effort, **chosen)

    def tune(self, *, seed: int = 0) -> dict[str, Any]:
        """Find the least effort that reaches the target, and return what was measured."""
        rows = np.sort(np.random.default_rng(seed).choice(len(self.vectors), min(SAMPLE, len(self.vectors)), False))
        queries = np.ascontiguousarray(self.vectors[rows])
        exact = without_self(*top(queries, self.vectors, k=11), rows)
        recall = 0.0
        for effort in EFFORTS[self.kind]:
            self.effort = effort
            recall = recall_at_10(without_self(*self.top(queries, k=11), rows), exact)
            if recall >= TARGET:
                break
        return {"effort": self.effort, "recall_at_10": round(recall, 4), "sample": len(rows)}

    def save(self, path: Path) -> None:
        """Write what searching needs, apart from the vectors themselves."""
        _faiss().write_index(self.index, str(path))


def load(path: Path, kind: str, vectors: Floats, effort: int) -> Approximate:
    """Read what `save` wrote."""
    return Approximate(_faiss().read_index(str(path)), kind, vectors, effort)


def make(
    kind: str, vectors: Floats, *, seed: int = 0, advance: Callable[[int], None] = lambda count: None
) -> Approximate:
    """Build an approximate index over vectors, which are read in blocks."""
    index = _graph(vectors) if kind == HNSW else _lists(vectors, seed)
    for block in _blocks(vectors):
        index.add(block)
        advance(len(block))
    return Approximate(index, kind, vectors)


def recall_at_10(found: Floats, exact: Floats) -> float:
    """Return the share of the ten best that were found, by their scores (n, 10), so that equals count as equal."""
    if not exact.shape[1]:
        return 1.0
    return float((found >= exact[:, -1:] - 1e-6).mean())


def without_self(scores: Floats, rows: Rows, own: Rows) -> Floats:
    """Return the ten best scores of each query (n, 11), leaving out the query's own row."""
    keep = rows != own[:, None]
    keep[keep.all(axis=1), -1] = False  # its own row was not found: the last goes instead
    kept: Floats = scores[keep].reshape(len(scores), -1)
    return kept


def _faiss() -> Any:
    """Import faiss late and untyped: it says of its own types what is not so."""
    import faiss

    return faiss


def _graph(vectors: Floats) -> Any:
    """Half precision halves the graph's memory; the candidates are scored exactly all the same."""
    faiss = _faiss()
    index = faiss.IndexHNSWSQ(vectors.shape[1], faiss.ScalarQuantizer.QT_fp16, LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = BUILD_EFFORT
    return index


def _lists(vectors: Floats, seed: int) -> Any:
    faiss = _faiss()
    rows, dimensions = vectors.shape
    lists = max(1, min(int(4 * rows**0.5), rows // EXAMPLES_PER_LIST))  # 4 times the root is faiss's own advice
    codes = max(size for size in range(1, max(1, dimensions // DIMENSIONS_PER_CODE) + 1) if not dimensions % size)
    coarse = faiss.IndexFlatIP(dimensions)
    index = faiss.IndexIVFPQ(coarse, dimensions, lists, codes, 8, faiss.METRIC_INNER_PRODUCT)
    index.own_fields, _ = True, coarse.this.disown()  # it outlives this function inside the index
    index.cp.seed = index.pq.cp.seed = seed + 1
    count = min(rows, max(lists * EXAMPLES_PER_LIST, LEAST[IVF_PQ]))
    chosen = np.sort(np.random.default_rng(seed).choice(rows, count, replace=False))
    index.train(np.ascontiguousarray(vectors[chosen]))
    return index


def _blocks(vectors: Floats) -> Iterator[Floats]:
    for start in range(0, len(vectors), BLOCK):
        yield np.ascontiguousarray(vectors[start : start + BLOCK])
