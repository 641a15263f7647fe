"""Clusters of an index's texts: k-means on the sphere, by faiss."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from twinpass.display import Displayed, Grid
from twinpass.errors import ConfigError
from twinpass.files import plain
from twinpass.search.engines.exact import Floats, top
from twinpass.search.segment import Ids
from twinpass.text.tables import check_table, joined, write_table

if TYPE_CHECKING:
    from twinpass.search.index import Index

ROUNDS = 25  # of k-means
ATTEMPTS = 3  # from different starts; the best is kept
EXAMPLES = 256  # for each cluster; more hardly change k-means
BLOCK = 16_384
NEAREST = "nearest to the centre"


@dataclass(frozen=True, repr=False)
class Clustering(Displayed):
    """For each id its cluster and the cosine with that cluster's centre; cluster 0 is the largest.

    `clusters` are {cluster, size, cohesion, representatives: [{id, text, cosine}]}: cohesion is the mean cosine, and
    the representatives are the texts nearest to the centre.
    """

    ids: Ids
    labels: Ids
    cosines: Floats
    clusters: Sequence[Mapping[str, Any]]  # {cluster, size, cohesion, representatives: [{id, text, cosine}]}
    model: Mapping[str, Any]
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """Return the clusters with their representatives as JSON can hold them; `records` has every text."""
        found = {"seed": self.seed, "model": self.model, "mean_cosine": self.cosines.mean(), "clusters": self.clusters}
        document: dict[str, Any] = plain({"texts": len(self.ids), **found})
        return document

    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary per text: its id, cluster and cosine with the centre."""
        columns = zip(self.ids.tolist(), self.labels.tolist(), self.cosines.tolist(), strict=True)
        return [{"id": each, "cluster": label, "cosine": round(cosine, 6)} for each, label, cosine in columns]

    def grids(self) -> Sequence[Grid]:
        """Return one row per cluster."""
        rows = []
        for each in self.clusters:
            texts = "\n".join(shown["text"] for shown in each["representatives"])
            rows.append((str(each["cluster"]), f"{each['size']:,}", f"{each['cohesion']:.3f}", texts))
        return [Grid("", ("cluster", "texts", "cohesion", NEAREST), rows, words=(NEAREST,))]


def find_clusters(
    index: Index, k: int, *, seed: int = 42, representatives: int = 3, output: str | os.PathLike[str] | None = None
) -> Clustering:
    """Sort the texts of an index into k clusters by their vectors' directions; write all texts to `output`.

    `output` is a .csv, .parquet or .jsonl file with the columns id, cluster, cosine and text, then the metadata.
    """
    if output is not None:
        check_table(output)
    ids = index.ids()
    if not 1 <= k <= len(ids):
        raise ConfigError(f"the number of clusters is {k}; expected 1 to {len(ids):,}, the number of texts.")
    centres = _centres(index, ids, k, seed)
    cosines, found = _assign(index, ids, centres)
    sizes = np.bincount(found, minlength=k)
    order = np.argsort(-sizes, kind="stable")
    labels = np.argsort(order)[found]
    clusters = [_describe(index, ids, cosines, labels == label, label, representatives) for label in range(k)]
    result = Clustering(ids, labels, cosines, clusters, index.model, seed)
    if output is not None:
        write_table(output, _rows(index, result), columns=("id", "cluster", "cosine", "text"))
    return result


def _rows(index: Index, found: Clustering) -> Iterator[dict[str, Any]]:
    records = found.records()
    for start in range(0, len(records), BLOCK):
        entries = index.entries(found.ids[start : start + BLOCK])
        for entry, record in zip(entries, records[start : start + BLOCK], strict=True):
            yield joined({**record, "text": entry.text}, entry.metadata)


def _centres(index: Index, ids: Ids, k: int, seed: int) -> Floats:
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


def _assign(index: Index, ids: Ids, centres: Floats) -> tuple[Floats, Ids]:
    found = [top(index.vectors(ids[at : at + BLOCK]), centres, k=1) for at in range(0, len(ids), BLOCK)]
    return np.concatenate([scores[:, 0] for scores, _ in found]), np.concatenate([rows[:, 0] for _, rows in found])


def _describe(
    index: Index, ids: Ids, cosines: Floats, members: NDArray[np.bool_], label: int, representatives: int
) -> dict[str, Any]:
    rows = np.flatnonzero(members)
    best = rows[np.argsort(-cosines[rows], kind="stable")][: 4 * representatives]
    shown: dict[str, dict[str, Any]] = {}  # equal texts once
    for hit, cosine in zip(index.entries(ids[best]), cosines[best].tolist(), strict=True):
        shown.setdefault(hit.text, {"id": hit.id, "text": hit.text, "cosine": round(cosine, 6)})
    cohesion = float(cosines[rows].mean()) if len(rows) else float("nan")
    chosen = [*shown.values()][:representatives]
    return {"cluster": label, "size": len(rows), "cohesion": cohesion, "representatives": chosen}
