"""Clusters of an index's texts: k-means on the sphere, by faiss."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinpass.errors import ConfigError
from twinpass.search.exact import Floats, top
from twinpass.search.index import Hit, Index

ROUNDS = 25  # of k-means
ATTEMPTS = 3  # from other beginnings; the best is kept
EXAMPLES = 256  # for each cluster; more teach k-means little
BLOCK = 16_384


class Cluster(NamedTuple):
    """A cluster: how many texts, their mean cosine with its centre, and the texts nearest to that."""

    size: int
    cohesion: float
    representatives: list[Hit]


class Clustering(NamedTuple):
    """For each id of the index its cluster and the cosine with that cluster's centre; the largest cluster is 0."""

    ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    cosines: Floats
    clusters: list[Cluster]


def cluster(index: Index, k: int, *, seed: int = 0, representatives: int = 3) -> Clustering:
    """Sort the texts of an index into k clusters by their vectors' directions."""
    ids = index.ids()
    if not 1 <= k <= len(ids):
        raise ConfigError(f"the number of clusters is {k}; wanted 1 to the number of texts, {len(ids):,}.")
    centres = _centres(index, ids, k, seed)
    cosines, found = _assign(index, ids, centres)
    sizes = np.bincount(found, minlength=k)
    order = np.argsort(-sizes, kind="stable")
    labels = np.argsort(order)[found]
    clusters = [_describe(index, ids, cosines, labels == label, representatives) for label in range(k)]
    return Clustering(ids, labels, cosines, clusters)


def _centres(index: Index, ids: NDArray[np.int64], k: int, seed: int) -> Floats:
    import faiss

    count = min(len(ids), k * EXAMPLES)
    chosen = np.sort(np.random.default_rng(seed).choice(ids, count, replace=False))
    library: Any = faiss
    means = library.Kmeans(
        index.dimensions,
        k,
        niter=ROUNDS,
        nredo=ATTEMPTS,
        spherical=True,
        seed=1 + seed % (2**31 - 1),  # faiss holds it in 31 bits
        min_points_per_centroid=1,
        max_points_per_centroid=EXAMPLES,
    )
    means.train(index.vectors(chosen))
    centres: Floats = means.centroids
    return centres


def _assign(index: Index, ids: NDArray[np.int64], centres: Floats) -> tuple[Floats, NDArray[np.int64]]:
    found = [top(index.vectors(ids[at : at + BLOCK]), centres, k=1) for at in range(0, len(ids), BLOCK)]
    return np.concatenate([scores[:, 0] for scores, _ in found]), np.concatenate([rows[:, 0] for _, rows in found])


def _describe(
    index: Index, ids: NDArray[np.int64], cosines: Floats, members: NDArray[np.bool_], representatives: int
) -> Cluster:
    rows = np.flatnonzero(members)
    if not len(rows):
        return Cluster(0, float("nan"), [])
    best = rows[np.argsort(-cosines[rows], kind="stable")]
    entries = index.entries(ids[best[: 4 * representatives]])
    hits = [hit._replace(score=float(score)) for hit, score in zip(entries, cosines[best], strict=False)]
    distinct = list({hit.text: hit for hit in reversed(hits)}.values())[::-1]  # of equal texts one is enough
    return Cluster(len(rows), float(cosines[rows].mean()), distinct[:representatives])
