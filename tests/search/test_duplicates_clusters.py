"""Near-duplicates and clusters of an index, against loops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from twinpass.errors import ConfigError, InputError
from twinpass.search import duplicates
from twinpass.search.clusters import choose_number, find_clusters, silhouette, typical_words
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


def naive_silhouette(vectors: np.ndarray, labels: np.ndarray) -> float:
    def distance(a: int, b: int) -> float:
        return 1 - float(vectors[a] @ vectors[b])

    values = []
    for point in range(len(labels)):
        others = {label: [p for p in range(len(labels)) if labels[p] == label and p != point] for label in set(labels)}
        own = others.pop(labels[point])
        if not own:
            values.append(0.0)
            continue
        a = sum(distance(point, other) for other in own) / len(own)
        b = min(sum(distance(point, other) for other in group) / len(group) for group in others.values())
        values.append((b - a) / max(a, b))
    return sum(values) / len(values)


def test_silhouette_equals_its_definition() -> None:
    rng = np.random.default_rng(4)
    vectors = rng.normal(size=(25, 5))
    vectors /= np.linalg.norm(vectors, axis=1)[:, None]
    for labels in (rng.integers(3, size=25), np.array([0] * 24 + [1]), np.arange(25) % 7):
        assert silhouette(1 - vectors @ vectors.T, labels) == pytest.approx(naive_silhouette(vectors, labels), abs=1e-9)
    assert silhouette(1 - vectors @ vectors.T, np.zeros(25, int)) == 0


def test_the_number_of_clusters_is_chosen(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(4, size=120)
    vectors = np.eye(8)[truth] + rng.normal(size=(120, 8)) / 20
    index = index_of(tmp_path, vectors)
    found = index.cluster()
    assert len(found.clusters) == 4 and len({*zip(truth.tolist(), found.labels.tolist(), strict=True)}) == 4
    again = index.cluster()
    assert again.labels.tolist() == found.labels.tolist() and again.to_dict() == found.to_dict()
    assert max(found.silhouettes, key=found.silhouettes.get) == 4 and "4 clusters were chosen among 2" in repr(found)
    assert "silhouettes" in found.to_dict() and "silhouettes" not in index.cluster(4).to_dict()


def test_few_or_equal_texts_are_one_cluster(tmp_path: Path) -> None:
    for count in (1, 2):
        assert choose_number(np.eye(count, 4, dtype=np.float32), 0) == (1, {})
    assert choose_number(np.ones((9, 4), np.float32) / 2, 0) == (1, {})
    index = index_of(tmp_path, np.eye(2, 4))
    assert [each["size"] for each in index.cluster().clusters] == [2]


def test_more_clusters_than_different_texts_leave_none_empty(tmp_path: Path) -> None:
    index = index_of(tmp_path, np.repeat(np.eye(2, 4), 3, axis=0))
    found = find_clusters(index, 5)
    assert [each["size"] for each in found.clusters] == [3, 3] and {*found.labels.tolist()} == {0, 1}
    assert all(each["cohesion"] == pytest.approx(1) for each in found.clusters)


@pytest.mark.parametrize("k", [None, 1])
def test_an_emptied_index_has_no_clusters(tmp_path: Path, k: int | None) -> None:
    index = index_of(tmp_path, np.eye(2, 4))
    index.remove(ids=[0, 1])
    with pytest.raises(InputError, match="the index is empty: expected texts"):
        find_clusters(index, k)


def naive_typical(counts: list[dict], most: int) -> list[list[str]]:
    vocabulary = {word for each in counts for word in each}
    words = sum(sum(each.values()) for each in counts)
    found = []
    for each in counts:
        scored = []
        size = sum(each.values())
        for word in vocabulary:
            tf, f = each.get(word, 0), sum(other.get(word, 0) for other in counts)
            outside = (f - tf) / (words - size) if words > size else 0
            if tf and tf / size >= 2 * outside:
                scored.append((-tf * np.log(1 + words / len(counts) / f), word))
        found.append([word for _, word in sorted(scored)[:most]])
    return found


def test_typical_words_equal_their_formula() -> None:
    rng = np.random.default_rng(5)
    counts = [{f"w{word}": int(rng.integers(1, 9)) for word in rng.choice(30, 20, replace=False)} for _ in range(4)]
    assert typical_words(counts, 6) == naive_typical(counts, 6)
    assert typical_words([{"the": 9, "cat": 4, "4": 9}, {"the": 8, "dog": 3, "a": 9}, {}]) == [["cat"], ["dog"], []]


def test_clusters_are_named(tmp_path: Path) -> None:
    texts = ["the cat sat", "the cat ran", "my cat", "the rain fell", "rain and snow", "the rain stops"]
    vectors = np.eye(2, 4, dtype=np.float32)[[0, 0, 0, 1, 1, 1]]
    index = Index.from_blocks(tmp_path / "index", [Block(texts, vectors)], model=MODEL)
    found = index.cluster(2, output=tmp_path / "clusters.csv")
    assert {each["words"][0] for each in found.clusters} == {"cat", "rain"}
    assert not any("the" in each["words"] for each in found.clusters)
    assert found.records()[0]["words"].startswith("cat") and "rain" in repr(found)
    assert (tmp_path / "clusters.csv").read_text().splitlines()[0] == "id,cluster,words,cosine,text"
