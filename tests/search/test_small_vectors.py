"""Vectors held as int8 or bits: candidates from small codes, scores from the vectors themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from twinpass.errors import ConfigError, InputError
from twinpass.search.engines import approximate
from twinpass.search.engines.approximate import Approximate, bits, kind_for
from twinpass.search.index import Block, Index

MODEL = {"name": "toy", "fingerprint": "f" * 64}
DIMENSIONS = 27  # not a multiple of eight


def vectors_of(count: int, *, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(9).normal(size=(30, DIMENSIONS))
    made = centres[rng.integers(30, size=count)] + rng.normal(size=(count, DIMENSIONS))
    return (made / np.linalg.norm(made, axis=1)[:, None]).astype(np.float32)


def block(count: int, *, seed: int = 0) -> Block:
    texts = [f"text {seed}.{row}" for row in range(count)]
    return Block(texts, vectors_of(count, seed=seed), [{"n": row} for row in range(count)])


def recall(index: Index, vectors: np.ndarray, queries: np.ndarray, keep: np.ndarray, **options) -> float:
    shares = []
    for query, hits in zip(queries, index.search(queries, 10, **options), strict=True):
        cosines = np.where(keep, vectors @ query / np.linalg.norm(query), -2)
        truth = np.argsort(-cosines)[:10]
        shares.append(len({hit.id for hit in hits} & {*truth.tolist()}) / 10)
        np.testing.assert_allclose([hit.score for hit in hits], cosines[[hit.id for hit in hits]], atol=1e-5)
    return float(np.mean(shares))


@pytest.mark.parametrize(
    ("storage", "kind", "engine", "smaller"),
    [("int8", "auto", "int8", 3), ("int8", "hnsw", "hnsw-int8", 0), ("binary", "auto", "binary", 15)],
)
def test_candidates_of_small_codes_are_scored_exactly(
    tmp_path: Path, storage: str, kind: str, engine: str, smaller: float
) -> None:
    vectors, folder = vectors_of(2_000), tmp_path / "index"
    index = Index.from_blocks(folder, [block(2_000)], model=MODEL, kind=kind, storage=storage)
    (segment,) = index.info()["segments"]
    assert segment["kind"] == engine and segment["recall_at_10"] >= 0.95 and not index.exact
    assert segment["memory"] * smaller < segment["memory_float32"] == 4 * 2_000 * DIMENSIONS
    assert "recall@10" in repr(index.info()) and f"vectors in {storage}" in repr(index.info())
    queries = vectors_of(30, seed=3)
    everything = np.ones(2_000, bool)
    assert recall(index, vectors, queries, everything) >= 0.93
    gone = np.arange(0, 400)
    index.remove(ids=gone)
    keep = np.arange(2_000) >= 400
    assert recall(index, vectors, queries, keep) >= 0.93  # among most of the rows
    assert recall(Index.open(folder), vectors, queries, keep & (np.arange(2_000) < 700), where="n < 700") == 1.0
    more = block(100, seed=5)
    index.add_blocks([more])  # searched exactly until they are joined
    assert [part["kind"] for part in index.info()["segments"]] == [engine, "exact"]
    assert [hits[0].text for hits in index.search(more.vectors[:5], 1)] == list(more.texts[:5])
    index.compact()
    (segment,) = index.info()["segments"]
    assert segment["kind"] == engine and segment["rows"] == 1_700 and Index.verify(folder).whole
    assert [hits[0].text for hits in index.search(more.vectors[:5], 1)] == list(more.texts[:5])


def test_damaged_codes_are_named_and_built_again(tmp_path: Path) -> None:
    for storage in ("int8", "binary"):
        folder = tmp_path / storage
        Index.from_blocks(folder, [block(1_000)], model=MODEL, storage=storage)
        path = folder / "segment-000001" / "engine.faiss"
        content = bytearray(path.read_bytes())
        content[-3] ^= 1
        path.write_bytes(content)
        assert [each.file for each in Index.verify(folder).damaged] == ["segment-000001/engine.faiss"]
        index = Index.open(folder)
        with pytest.raises(InputError, match=r"engine\.faiss is damaged.*twinpass index compact"):
            index.search(vectors_of(1))
        index.compact()
        assert Index.verify(folder).whole and index.search(vectors_of(1_000)[:1], 1)[0][0].id == 0


def test_bits_are_the_signs_and_are_compared_by_their_number() -> None:
    vectors = vectors_of(200)
    for row, code in zip(vectors, bits(vectors), strict=True):
        expected = [
            sum(1 << (7 - at % 8) for at in range(b, min(b + 8, DIMENSIONS)) if row[at] > 0) for b in (0, 8, 16, 24)
        ]
        assert code.tolist() == expected
    engine = Approximate.build("binary", vectors)
    allowed = np.arange(200) % 3 == 0
    query = vectors_of(1, seed=7)
    for mask in (None, allowed):
        found = engine._candidates(query, 20, mask)[0]
        differing = [int((a > 0) != (b > 0)) for row in vectors for a, b in zip(row, query[0], strict=True)]
        hamming = np.array(differing).reshape(200, DIMENSIONS).sum(axis=1)
        among = np.arange(200) if mask is None else np.flatnonzero(mask)
        assert sorted(hamming[found]) == sorted(hamming[among])[:20] and {*found} <= {*among}


def test_kinds_by_size_and_storage() -> None:
    assert kind_for(999, "auto", "int8") == kind_for(999, "auto", "binary") == "exact"
    assert kind_for(1_000, "auto", "int8") == kind_for(10**7, "exact", "int8") == "int8"
    assert kind_for(approximate.HNSW_FROM, "auto", "int8") == kind_for(1_000, "hnsw", "int8") == "hnsw-int8"
    assert kind_for(10**7, "auto", "binary") == "binary"


def test_a_growing_index_gets_its_codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approximate, "SMALL_FROM", 300)
    index = Index.from_blocks(tmp_path / "index", [block(250)], model=MODEL, storage="int8")
    assert [part["kind"] for part in index.info()["segments"]] == ["exact"]
    index.add_blocks([block(60, seed=1)])
    assert [part["kind"] for part in index.info()["segments"]] == ["int8"]


def test_what_does_not_go_together(tmp_path: Path) -> None:
    for options, message in (
        ({"storage": "int4"}, "no vectors of type 'int4'. Did you mean 'int8'"),
        ({"storage": "int8", "kind": "ivf-pq"}, "int8 need an index of the kind auto, exact or hnsw, got ivf-pq"),
        ({"storage": "binary", "kind": "hnsw"}, "binary need an index of the kind auto or exact, got hnsw"),
    ):
        with pytest.raises(ConfigError, match=message):
            Index.from_blocks(tmp_path / "index", [block(3)], model=MODEL, **options)
    with pytest.raises(ConfigError, match="Milvus holds vectors in float32, not in int8"):
        Index.build("docs", ["a"], vectors=np.ones((1, 2)), milvus=str(tmp_path / "m.db"), storage="int8")
