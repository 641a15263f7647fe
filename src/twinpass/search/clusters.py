"""Clusters of an index's texts: k-means on the sphere, by faiss; how many there are; and their most typical words."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from twinpass.display import Displayed, Grid
from twinpass.errors import ConfigError, InputError
from twinpass.files import plain
from twinpass.search.engines.exact import Floats, top
from twinpass.search.keywords import words_of
from twinpass.search.segment import Ids
from twinpass.text.tables import check_table, joined, write_table

if TYPE_CHECKING:
    from twinpass.search.index import Index

ROUNDS = 25  # of k-means
ATTEMPTS = 3  # from different starts; the best is kept
EXAMPLES = 256  # for each cluster; more hardly change k-means
BLOCK = 16_384
TRIED = (*range(2, 11), 12, 15, 20, 25, 30)  # numbers of clusters, when none is given
SAMPLE = 1_000  # texts that the number is chosen on: all pairs of them are compared
SHOWN_WORDS = 5  # of each cluster
COUNTED = 2_000  # texts whose words are counted for each cluster: those nearest to its centre
TYPICAL = 2  # times as frequent inside a cluster as outside: what all clusters have, such as "the", is not typical
NEAREST = "nearest to the centre"


@dataclass(frozen=True, repr=False)
class Clustering(Displayed):
    """For each id its cluster and the cosine with that cluster's centre; cluster 0 is the largest.

    `clusters` are {cluster, size, cohesion, words, representatives: [{id, text, cosine}]}: cohesion is the mean cosine,
    words are the most typical ones, and the representatives are the texts nearest to the centre. If the number of
    clusters was chosen, `silhouettes` says by what: the mean silhouette for each number that was tried.
    """

    ids: Any  # an array, as Index.ids returns it
    labels: Ids
    cosines: Floats
    clusters: Sequence[Mapping[str, Any]]
    model: Mapping[str, Any]
    seed: int
    silhouettes: Mapping[int, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the clusters with their representatives as JSON can hold them; `records` has every text."""
        found = {"seed": self.seed, "model": self.model, "mean_cosine": self.cosines.mean(), "clusters": self.clusters}
        chosen = {"silhouettes": {str(k): value for k, value in self.silhouettes.items()}} if self.silhouettes else {}
        document: dict[str, Any] = plain({"texts": len(self.ids), **found, **chosen})
        return document

    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary per text: its id, its cluster with its words, and the cosine with the centre."""
        words = [", ".join(each["words"]) for each in self.clusters]
        columns = zip(self.ids.tolist(), self.labels.tolist(), self.cosines.tolist(), strict=True)
        return [
            {"id": each, "cluster": label, "words": words[label], "cosine": round(cosine, 6)}
            for each, label, cosine in columns
        ]

    def grids(self) -> Sequence[Grid]:
        """Return one row per cluster."""
        rows = []
        for each in self.clusters:
            texts = "\n".join(shown["text"] for shown in each["representatives"])
            words = ", ".join(each["words"])
            rows.append((str(each["cluster"]), f"{each['size']:,}", f"{each['cohesion']:.3f}", words, texts))
        notes = []
        if self.silhouettes:
            tried, k = [*self.silhouettes], len(self.clusters)
            value = (
                f"mean silhouette of {self.silhouettes[k]:.3f}" if k in self.silhouettes else "no silhouette above 0"
            )
            notes.append(f"{k} clusters were chosen among {tried[0]} to {tried[-1]}: {value}; -k sets their number")
        columns = ("cluster", "texts", "cohesion", "words", NEAREST)
        return [Grid("", columns, rows, notes=notes, words=("words", NEAREST))]


def find_clusters(
    index: Index,
    k: int | None,
    *,
    seed: int = 42,
    representatives: int = 3,
    output: str | os.PathLike[str] | None = None,
) -> Clustering:
    """Sort the texts of an index into k clusters by their vectors' directions; write all texts to `output`.

    Without k, the number is chosen: see `choose_number`. There are fewer than k if fewer texts are different. `output`
    is a .csv, .parquet or .jsonl file with the columns id, cluster, words, cosine and text, then the metadata.
    """
    if output is not None:
        check_table(output)
    ids = index.numbers()
    if not len(ids):
        raise InputError("the index is empty: expected texts to sort into clusters. Add some first.")
    silhouettes: dict[int, float] = {}
    if k is None:
        k, silhouettes = choose_number(index.vectors_numbered(_some(ids, SAMPLE, seed)), seed)
    if not 1 <= k <= len(ids):
        raise ConfigError(f"the number of clusters is {k}; expected 1 to {len(ids):,}, the number of texts.")
    centres = _centres(index.vectors_numbered(_some(ids, k * EXAMPLES, seed)), k, seed)
    cosines, found = _assign(index, ids, centres)
    sizes = np.bincount(found, minlength=k)
    k = int(np.count_nonzero(sizes))  # fewer than asked for, if there are fewer different texts
    order = np.argsort(-sizes, kind="stable")
    labels = np.argsort(order)[found]
    clusters = [_describe(index, ids, cosines, labels == label, label, representatives) for label in range(k)]
    for each, words in zip(clusters, _words(index, ids, cosines, labels, k), strict=True):
        each["words"] = words
    result = Clustering(index.ids(), labels, cosines, clusters, index.model, seed, silhouettes)
    if output is not None:
        write_table(output, _rows(index, ids, result), columns=("id", "cluster", "words", "cosine", "text"))
    return result


def _rows(index: Index, numbers: Ids, found: Clustering) -> Iterator[dict[str, Any]]:
    records = found.records()
    for start in range(0, len(records), BLOCK):
        entries = index.entries_numbered(numbers[start : start + BLOCK])
        for entry, record in zip(entries, records[start : start + BLOCK], strict=True):
            yield joined({**record, "text": entry.text}, entry.metadata)


def _some(ids: Ids, most: int, seed: int) -> Ids:
    """Return at most this many ids, drawn by the seed, ascending."""
    chosen: Ids = np.sort(np.random.default_rng(seed).choice(ids, min(len(ids), most), replace=False))
    return chosen


def _centres(vectors: Floats, k: int, seed: int) -> Floats:
    import faiss

    library: Any = faiss
    means = library.Kmeans(
        vectors.shape[1],
        k,
        niter=ROUNDS,
        nredo=ATTEMPTS,
        spherical=True,
        seed=1 + seed % (2**31 - 1),  # faiss holds it in 31 bits
        min_points_per_centroid=1,
        max_points_per_centroid=max(EXAMPLES, -(-len(vectors) // k)),
    )
    means.train(vectors)
    centres: Floats = means.centroids
    return centres


def choose_number(vectors: Floats, seed: int) -> tuple[int, dict[int, float]]:
    """Return the number of clusters with the highest mean silhouette, and the silhouette of each number tried.

    The vectors are clustered with each number in turn; of equal silhouettes the smaller number is taken. It is 1 if
    no silhouette is above 0, or if there are fewer than three different vectors.
    """
    distinct = len(np.unique(vectors.round(6), axis=0))
    distances = 1 - vectors @ vectors.T
    found = {}
    for k in (number for number in TRIED if number < distinct):
        _, rows = top(vectors, _centres(vectors, k, seed), k=1)
        found[k] = round(silhouette(distances, rows[:, 0]), 6)
    best = max(found, key=lambda k: (found[k], -k), default=1)
    return (best if found and found[best] > 0 else 1), found


def silhouette(distances: Floats, labels: Ids) -> float:
    """Return the mean silhouette (Rousseeuw, 1987) of points with these distances (n, n).

    For a point it is (b - a) / max(a, b): a is its mean distance to the others of its cluster, b the least mean
    distance to another cluster; 0 if it is alone.
    """
    members = labels[:, None] == np.unique(labels)  # (n, clusters)
    sums, sizes = distances.astype(np.float64) @ members, members.sum(axis=0)
    if len(sizes) < 2:
        return 0.0
    own = members.argmax(axis=1)
    points = np.arange(len(labels))
    within = sums[points, own] / np.maximum(sizes[own] - 1, 1)
    means = sums / sizes
    means[points, own] = np.inf
    between = means.min(axis=1)
    larger = np.maximum(within, between)
    values = np.where((sizes[own] > 1) & (larger > 0), (between - within) / np.where(larger > 0, larger, 1), 0.0)
    return float(values.mean())


def _words(index: Index, ids: Ids, cosines: Floats, labels: Ids, k: int) -> list[list[str]]:
    """Return the most typical words of each cluster, counted in the texts nearest to its centre."""
    counts = []
    for label in range(k):
        rows = np.flatnonzero(labels == label)
        rows = rows[np.argsort(-cosines[rows], kind="stable")][:COUNTED]
        entries = index.entries_numbered(ids[rows])
        counts.append(Counter(word for entry in entries for word in words_of(entry.text)))
    return typical_words(counts)


def typical_words(counts: Sequence[Mapping[str, int]], most: int = SHOWN_WORDS) -> list[list[str]]:
    """Return the words of each class with the highest class-based tf-idf (Grootendorst, BERTopic, 2022), best first.

    It is tf * ln(1 + A / f): tf is how often the class has the word, f how often all classes have it, and A the
    average number of words of a class. A word must be twice as frequent in its class as in the others, and have a
    letter.
    """
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    sizes = [sum(each.values()) for each in counts]
    average, all_words = sum(sizes) / max(1, len(sizes)), sum(sizes)
    found = []
    for each, size in zip(counts, sizes, strict=True):
        weights = {
            word: count * math.log(1 + average / total[word])
            for word, count in each.items()
            if any(letter.isalpha() for letter in word) and (len(word) > 1 or not word.isascii())
            if count * (all_words - size) >= TYPICAL * (total[word] - count) * size
        }
        found.append(sorted(weights, key=lambda word: (-weights[word], word))[:most])
    return found


def _assign(index: Index, ids: Ids, centres: Floats) -> tuple[Floats, Ids]:
    found = [top(index.vectors_numbered(ids[at : at + BLOCK]), centres, k=1) for at in range(0, len(ids), BLOCK)]
    return np.concatenate([scores[:, 0] for scores, _ in found]), np.concatenate([rows[:, 0] for _, rows in found])


def _describe(
    index: Index, ids: Ids, cosines: Floats, members: NDArray[np.bool_], label: int, representatives: int
) -> dict[str, Any]:
    rows = np.flatnonzero(members)
    best = rows[np.argsort(-cosines[rows], kind="stable")][: 4 * representatives]
    shown: dict[str, dict[str, Any]] = {}  # equal texts once
    for hit, cosine in zip(index.entries_numbered(ids[best]), cosines[best].tolist(), strict=True):
        shown.setdefault(hit.text, {"id": hit.id, "text": hit.text, "cosine": round(cosine, 6)})
    cohesion = float(cosines[rows].mean())
    chosen = [*shown.values()][:representatives]
    return {"cluster": label, "size": len(rows), "cohesion": cohesion, "representatives": chosen}
