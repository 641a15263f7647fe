"""Near-duplicates and clusters of an index, against loops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from twinpass.errors import ConfigError
from twinpass.search import duplicates
from twinpass.search.clusters import find_clusters
from twinpass.search.duplicates import find_duplicates
from twinpass.search.engines import approximate
from twinpass.search.index import Block, Index

MODEL = {"name": "toy", "fingerprint": "f" * 64}


def index_of(folder: Path, vectors: np.ndarray, **options) -> Index:
    texts = [f"text {row}" for row in range(len(vectors))]
    return Index.from_blocks(folder / "index", [Block(texts, vectors.astype(np.float32))], model=MODEL, **options)


def bunches(count: int, rows: int, *, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(count, 12))
    return centres[rng.integers(count, size=rows)] + rng.normal(size=(rows, 12)) / 4


def naive_groups(vectors: np.ndarray, threshold: float) -> dict[int, list[int]]:
    lengths = np.linalg.norm(vectors, axis=1)
    kept: dict[int, list[int]] = {}
    for row in range(len(vectors)):
        for first in kept:
            if vectors[row] @ vectors[first] / lengths[row] / lengths[first] >= threshold:
                kept[first].append(row)
                break
        else:
            kept[row] = []
    return {first: others for first, others in kept.items() if others}


def groups_of(index: Index, threshold: float) -> dict[int, list[int]]:
    groups = find_duplicates(index, threshold).groups
    return {group["kept"]["id"]: [other["id"] for other in group["others"]] for group in groups}


def test_groups_equal_a_loop(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(duplicates, "BLOCK", 16)  # several blocks, so that groups reach across them
    vectors = bunches(9, 100)
    index = index_of(tmp_path, vectors)
    found = groups_of(index, 0.9)
    assert found == naive_groups(vectors, 0.9) and len(found) > 5
    index.remove(ids=[0])
    found = groups_of(index, 0.9)
    assert found == {a + 1: [b + 1 for b in others] for a, others in naive_groups(vectors[1:], 0.9).items()}


def test_groups_of_an_approximate_index(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(approximate, "LEAST", {"exact": 0, "hnsw": 100, "ivf-pq": 10_000})
    vectors = bunches(60, 400, seed=3)
    index = index_of(tmp_path, vectors, kind="hnsw")
    groups = find_duplicates(index, 0.95).groups
    truth = naive_groups(vectors, 0.95)
    lengths = np.linalg.norm(vectors, axis=1)
    for group in groups:
        kept, others = group["kept"]["id"], [other["id"] for other in group["others"]]
        cosines = vectors[others] @ vectors[kept] / lengths[others] / lengths[kept]
        np.testing.assert_allclose([other["cosine"] for other in group["others"]], cosines, atol=1e-5)
        assert min(cosines) >= 0.95 - 1e-5
    found, wanted = (sum(map(len, others)) for others in ([each["others"] for each in groups], truth.values()))
    assert not index.exact and found >= 0.95 * wanted > 0


def test_equal_vectors_are_duplicates_at_one(tmp_path: Path) -> None:
    index = index_of(tmp_path, np.array([[0.3, 0.7], [0.1, 0.9], [0.6, 1.4]]))
    (group,) = find_duplicates(index, 1.0).groups
    (other,) = group["others"]
    assert (group["kept"]["id"], other["id"]) == (0, 2) and other["cosine"] == pytest.approx(1.0, abs=1e-6)
    with pytest.raises(ConfigError, match=r"threshold is 1\.5"):
        find_duplicates(index, 1.5)


def test_clusters_find_the_bunches(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], [50, 30, 10])
    vectors = np.eye(8)[truth] + rng.normal(size=(90, 8)) / 20
    found = find_clusters(index_of(tmp_path, vectors), 3, seed=1, representatives=2)
    assert found.labels.tolist() == truth.tolist()  # the largest comes first
    assert [each["size"] for each in found.clusters] == [50, 30, 10]
    centre = (vectors[:50] / np.linalg.norm(vectors[:50], axis=1)[:, None]).mean(axis=0)
    cosines = vectors[:50] @ centre / np.linalg.norm(vectors[:50], axis=1) / np.linalg.norm(centre)
    np.testing.assert_allclose(found.cosines[:50], cosines, atol=1e-4)
    assert found.clusters[0]["representatives"][0]["id"] == cosines.argmax()
    assert found.clusters[0]["cohesion"] == pytest.approx(cosines.mean(), abs=1e-4)
    with pytest.raises(ConfigError, match="number of clusters is 91"):
        find_clusters(index_of(tmp_path, vectors, overwrite=True), 91)
