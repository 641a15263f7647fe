"""Approximate search: faiss proposes candidates, which are then scored exactly.

The effort of a search (how much of the graph, or how many lists are searched) is set when the index is built: the
least at which the recall on a sample reaches the target.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinpass.search.engines.exact import Floats, Rows, top

AUTO, EXACT, HNSW, IVF_PQ = "auto", "exact", "hnsw", "ivf-pq"
KINDS = (AUTO, EXACT, HNSW, IVF_PQ)  # what a user may ask for
FLOAT32, INT8, BINARY = STORAGES = ("float32", "int8", "binary")  # what the vectors are held as in memory
HNSW_INT8 = "hnsw-int8"
ENGINES = (EXACT, INT8, BINARY, HNSW, HNSW_INT8, IVF_PQ)  # what searches a segment, in the order of sizes

# With 384 dimensions on one core, an exact search of 40,000 takes 4.6 ms per query, so 200,000 take about 23 ms, and
# nothing has to be built; a graph answers in 0.4 ms and takes a minute to build at that size (benchmarks/search.py).
# Beyond two million its half-precision vectors and links need 2 GB of memory, and codes a twentieth of that.
HNSW_FROM = 200_000
IVF_PQ_FROM = 2_000_000
SMALL_FROM = 1_000  # texts from which small vectors are used: fewer take no memory worth saving
LEAST = {EXACT: 0, HNSW: 1_000, IVF_PQ: 10_000}  # faiss learns nothing from fewer: 256 codes need 39 examples each

LINKS = 32  # of each node of the graph
BUILD_EFFORT = 80  # candidates considered for them
DIMENSIONS_PER_CODE = 8  # numbers that one byte stands for
EXAMPLES_PER_LIST = 64  # vectors that each list is learned from
REFINED = {HNSW: 1, HNSW_INT8: 2, IVF_PQ: 10}  # candidates that are scored exactly, per requested neighbour
GRAPH_EFFORTS = (64, 128, 256, 512)
# Of the graph, the candidates it looks at; of lists, how many are searched; of codes, the candidates per neighbour.
EFFORTS = {
    HNSW: GRAPH_EFFORTS,
    HNSW_INT8: GRAPH_EFFORTS,
    IVF_PQ: (8, 16, 32, 64, 128, 256),
    INT8: (2, 4, 8, 16),
    BINARY: (4, 8, 16, 32, 64, 128),
}
TRAINED = 65_536  # vectors that the range of int8 is learned from
TARGET = 0.97  # of recall@10
SAMPLE = 500  # rows to measure it on
BLOCK = 16_384  # vectors added together


def kind_for(rows: int, requested: str, storage: str = FLOAT32) -> str:
    """Return how this many rows are searched: as requested, or by size; exactly if there are too few to learn from."""
    if storage != FLOAT32:
        graph = rows >= HNSW_FROM if requested == AUTO else requested == HNSW
        return EXACT if rows < SMALL_FROM else BINARY if storage == BINARY else HNSW_INT8 if graph else INT8
    if requested == AUTO:
        return IVF_PQ if rows >= IVF_PQ_FROM else HNSW if rows >= HNSW_FROM else EXACT
    return requested if rows >= LEAST[requested] else EXACT


@dataclass
class Approximate:
    """A faiss index over the rows of a segment."""

    index: Any
    kind: str
    vectors: Floats
    effort: int = 0

    @classmethod
    def build(cls, kind: str, vectors: Floats, *, seed: int = 0) -> Approximate:
        """Build an index over vectors, which are read in blocks."""
        index = _lists(vectors, seed) if kind == IVF_PQ else _codes(kind, vectors, seed)
        for start in range(0, len(vectors), BLOCK):
            block = np.ascontiguousarray(vectors[start : start + BLOCK])
            index.add(bits(block) if kind == BINARY else block)
        return cls(index, kind, vectors)

    @classmethod
    def load(cls, path: Path, kind: str, vectors: Floats, effort: int) -> Approximate:
        """Read what `save` wrote; raise ValueError if it belongs to other vectors."""
        faiss = _faiss()
        index = (faiss.read_index_binary if kind == BINARY else faiss.read_index)(str(path))
        rows, dimensions = vectors.shape
        expected = (rows, -(-dimensions // 8) * 8 if kind == BINARY else dimensions)
        if (index.ntotal, index.d) != expected:
            raise ValueError(f"expected an index of {expected}, got {(index.ntotal, index.d)}")
        return cls(index, kind, vectors, effort)

    def save(self, path: Path) -> None:
        """Write what searching needs, apart from the vectors themselves."""
        faiss = _faiss()
        (faiss.write_index_binary if self.kind == BINARY else faiss.write_index)(self.index, str(path))

    def top(self, queries: Floats, *, k: int, allowed: NDArray[np.bool_] | None = None) -> tuple[Floats, Rows]:
        """Return the inner products and rows (n, k) of the best that were found; a row of -1 means none."""
        k = min(k, len(self.vectors))
        count = min(k * REFINED.get(self.kind, self.effort), len(self.vectors))
        candidates = self._candidates(queries, count, allowed)
        scores = np.full((len(queries), k), -np.inf, np.float32)
        rows = np.full((len(queries), k), -1, np.int64)
        for place, (query, found) in enumerate(zip(queries, candidates, strict=True)):
            found = found[found >= 0]
            exact = self.vectors[found] @ query
            order = np.argsort(-exact, kind="stable")[:k]
            scores[place, : len(order)], rows[place, : len(order)] = exact[order], found[order]
        return scores, rows

    def _candidates(self, queries: Floats, count: int, allowed: NDArray[np.bool_] | None) -> Rows:
        """Return rows (n, count) that are probably the nearest; -1 means none."""
        faiss, found = _faiss(), None
        if self.kind != BINARY:
            _, found = self.index.search(queries, count, params=self._parameters(count, allowed))
        elif allowed is None:
            _, found = self.index.search(bits(queries), count)
        else:  # by the number of bits that differ, among the codes of the allowed rows
            rows = np.flatnonzero(allowed)
            codes = faiss.vector_to_array(self.index.xb).reshape(len(self.vectors), -1)[rows]
            _, places = faiss.knn_hamming(bits(queries), codes, min(count, len(rows)))
            found = np.where(places < 0, -1, rows[places])
        candidates: Rows = found
        return candidates

    def _parameters(self, count: int, allowed: NDArray[np.bool_] | None) -> Any:
        faiss = _faiss()
        chosen = {} if allowed is None else {"sel": faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))}
        if self.kind == INT8:
            return faiss.SearchParameters(**chosen)
        if self.kind != IVF_PQ:
            return faiss.SearchParametersHNSW(efSearch=max(self.effort, count), **chosen)
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


def recall_at_10(found: Floats, exact: Floats) -> float:
    """Return the share of the ten best that were found, by their scores (n, 10), so that ties count as equal."""
    if not exact.shape[1]:
        return 1.0
    return float((found >= exact[:, -1:] - 1e-6).mean())


def without_self(scores: Floats, rows: Rows, own: Rows) -> Floats:
    """Return the ten best scores of each query (n, 11), without the query's own row."""
    keep = rows != own[:, None]
    keep[keep.all(axis=1), -1] = False  # if its own row was not found, drop the last
    kept: Floats = scores[keep].reshape(len(scores), -1)
    return kept


def _faiss() -> Any:
    """Import faiss late and untyped: its own type annotations are wrong."""
    import faiss

    return faiss


def bits(vectors: Floats) -> NDArray[np.uint8]:
    """Return the signs of vectors (n, d) as bits (n, d / 8)."""
    return np.packbits(vectors > 0, axis=1)


def _codes(kind: str, vectors: Floats, seed: int) -> Any:
    """Return an empty index that holds small vectors, in a graph or in a row; candidates are scored exactly anyway."""
    faiss = _faiss()
    rows, dimensions = vectors.shape
    if kind == BINARY:
        return faiss.IndexBinaryFlat(-(-dimensions // 8) * 8)
    types = faiss.ScalarQuantizer
    if kind == INT8:
        index = faiss.IndexScalarQuantizer(dimensions, types.QT_8bit, faiss.METRIC_INNER_PRODUCT)
    else:
        code = types.QT_fp16 if kind == HNSW else types.QT_8bit
        index = faiss.IndexHNSWSQ(dimensions, code, LINKS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = BUILD_EFFORT
    if kind != HNSW:
        chosen = np.sort(np.random.default_rng(seed).choice(rows, min(rows, TRAINED), replace=False))
        index.train(np.ascontiguousarray(vectors[chosen]))
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
