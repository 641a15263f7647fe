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
KINDS = (AUTO, EXACT, HNSW, IVF_PQ)  # in the order of the sizes they are for

# With 384 dimensions on one core, an exact search of 40,000 takes 4.6 ms per query, so 200,000 take about 23 ms, and
# nothing has to be built; a graph answers in 0.4 ms and takes a minute to build at that size (benchmarks/search.py).
# Beyond two million its half-precision vectors and links need 2 GB of memory, and codes a twentieth of that.
HNSW_FROM = 200_000
IVF_PQ_FROM = 2_000_000
LEAST = {EXACT: 0, HNSW: 1_000, IVF_PQ: 10_000}  # faiss learns nothing from fewer: 256 codes need 39 examples each

LINKS = 32  # of each node of the graph
BUILD_EFFORT = 80  # candidates considered for them
DIMENSIONS_PER_CODE = 8  # numbers that one byte stands for
EXAMPLES_PER_LIST = 64  # vectors that each list is learned from
REFINED = {HNSW: 1, IVF_PQ: 10}  # candidates that are scored exactly, per requested neighbour
EFFORTS = {HNSW: (64, 128, 256, 512), IVF_PQ: (8, 16, 32, 64, 128, 256)}
TARGET = 0.97  # of recall@10
SAMPLE = 500  # rows to measure it on
BLOCK = 16_384  # vectors added together


def kind_for(rows: int, requested: str) -> str:
    """Return how this many rows are searched: as requested, or by size; exactly if there are too few to learn from."""
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
        index = _graph(vectors) if kind == HNSW else _lists(vectors, seed)
        for start in range(0, len(vectors), BLOCK):
            index.add(np.ascontiguousarray(vectors[start : start + BLOCK]))
        return cls(index, kind, vectors)

    @classmethod
    def load(cls, path: Path, kind: str, vectors: Floats, effort: int) -> Approximate:
        """Read what `save` wrote; raise ValueError if it belongs to other vectors."""
        index = _faiss().read_index(str(path))
        if (index.ntotal, index.d) != vectors.shape:
            raise ValueError(f"expected an index of {vectors.shape}, got {(index.ntotal, index.d)}")
        return cls(index, kind, vectors, effort)

    def save(self, path: Path) -> None:
        """Write what searching needs, apart from the vectors themselves."""
        _faiss().write_index(self.index, str(path))

    def top(self, queries: Floats, *, k: int, allowed: NDArray[np.bool_] | None = None) -> tuple[Floats, Rows]:
        """Return the inner products and rows (n, k) of the best that were found; a row of -1 means none."""
        k = min(k, len(self.vectors))
        count = min(k * REFINED[self.kind], len(self.vectors))
        _, candidates = self.index.search(queries, count, params=self._parameters(count, allowed))
        scores = np.full((len(queries), k), -np.inf, np.float32)
        rows = np.full((len(queries), k), -1, np.int64)
        for place, (query, found) in enumerate(zip(queries, candidates, strict=True)):
            found = found[found >= 0]
            exact = self.vectors[found] @ query
            order = np.argsort(-exact, kind="stable")[:k]
            scores[place, : len(order)], rows[place, : len(order)] = exact[order], found[order]
        return scores, rows

    def _parameters(self, count: int, allowed: NDArray[np.bool_] | None) -> Any:
        faiss = _faiss()
        chosen = {} if allowed is None else {"sel": faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))}
        if self.kind == HNSW:
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


def _graph(vectors: Floats) -> Any:
    """Half precision halves the graph's memory; the candidates are scored exactly anyway."""
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
