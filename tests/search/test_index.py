"""The saved index against loops over plain arrays: search, filters, additions, removals, joins."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twinpass.errors import ConfigError, InputError, ModelError, OutputError
from twinpass.search import index as index_module
from twinpass.search.engines import approximate
from twinpass.search.index import Block, Index
from twinpass.search.manifest import Manifest, Part, locked, read_manifest
from twinpass.search.writer import first_to_join

MODEL = {"name": "toy", "fingerprint": "f" * 64}
DIMENSIONS = 16


def make_rows(count: int, *, seed: int = 0) -> tuple[list[str], np.ndarray, list[dict]]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(20, DIMENSIONS))
    vectors = centres[rng.integers(20, size=count)] + rng.normal(size=(count, DIMENSIONS)) / 2
    texts = [f"text {seed}.{row}" for row in range(count)]
    return texts, vectors.astype(np.float32), [{"n": row, "kind": "ab"[row % 2]} for row in range(count)]


def in_blocks(texts, vectors, metadata=None, *, size: int = 7) -> Iterator[Block]:
    for at in range(0, len(texts), size):
        part = slice(at, at + size)
        yield Block(texts[part], vectors[part], metadata[part] if metadata else None)


def naive(vectors: np.ndarray, query: np.ndarray, k: int, keep=lambda row: True) -> list[int]:
    def cosine(row: int) -> float:
        other = vectors[row]
        return float(query @ other / np.sqrt(query @ query) / np.sqrt(other @ other))

    return sorted(filter(keep, range(len(vectors))), key=cosine, reverse=True)[:k]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "index"


def test_search_equals_a_loop_over_all_vectors(folder: Path) -> None:
    texts, vectors, metadata = make_rows(60)
    index = Index.from_blocks(folder, in_blocks(texts, vectors, metadata), model=MODEL)
    queries = make_rows(5, seed=1)[1]
    for query, hits in zip(queries, index.search(queries, 4), strict=True):
        rows = naive(vectors, query, 4)
        assert [hit.id for hit in hits] == rows
        assert [hit.text for hit in hits] == [texts[row] for row in rows]
        assert [hit.metadata for hit in hits] == [metadata[row] for row in rows]
        cosine = query @ vectors[rows[0]] / np.linalg.norm(query) / np.linalg.norm(vectors[rows[0]])
        assert hits[0].score == pytest.approx(cosine, abs=1e-6)


def test_a_single_vector_is_a_query_and_k_may_exceed_the_rows(folder: Path) -> None:
    texts, vectors, _ = make_rows(3)
    index = Index.from_blocks(folder, in_blocks(texts, vectors), model=MODEL)
    (hits,) = index.search(vectors[1], 50)
    assert len(hits) == 3 and hits[0].id == 1 and hits[0].metadata == {}
    assert len(index.search(vectors[1], 50, min_score=np.float32(0.9999))[0]) == 1


@pytest.mark.parametrize(
    ("queries", "options", "message"),
    [
        (None, {}, "expected a text, several texts or vectors as queries, got None"),
        (5, {}, "expected a text, several texts or vectors as queries, got 5"),
        (["a", 3], {}, "query 1: expected a text, got 3 of type int"),
        ([object()], {}, "expected texts or vectors of one size as queries, got object"),
        (["a", " "], {}, "a query is empty"),
        ("a", {"k": "3"}, "k is '3'; expected a whole number of at least 1"),
        ("a", {"k": 0}, "k is 0; expected a whole number"),
        ("a", {"mode": None}, "no mode of search named None. Known: dense, keyword, hybrid"),
        ("a", {"where": 5}, "expected a filter such as"),
        ("a", {"min_score": "x"}, "min_score is 'x'; expected a number, such as 0.5, or None"),
        (np.ones((1, DIMENSIONS), np.float32), {"min_score": np.nan}, "min_score is nan; expected a number"),
        (np.array(None), {}, "expected a text, several texts or vectors as queries, got None"),
    ],
)
def test_mistakes_of_a_search_are_explained(folder: Path, queries: Any, options: Any, message: str) -> None:
    texts, vectors, _ = make_rows(3)
    index = Index.from_blocks(folder, in_blocks(texts, vectors), model=MODEL)
    with pytest.raises((ConfigError, InputError), match=message):
        index.search(queries, **options)


def test_conditions_and_least_score(folder: Path) -> None:
    texts, vectors, metadata = make_rows(60)
    index = Index.from_blocks(folder, in_blocks(texts, vectors, metadata), model=MODEL)
    query = vectors[8]
    (hits,) = index.search(query, 5, where=["n>=10", "kind=a"])
    assert [hit.id for hit in hits] == naive(vectors, query, 5, lambda row: row >= 10 and row % 2 == 0)
    (hits,) = index.search(query, 60, min_score=0.5)
    assert hits and all(hit.score >= 0.5 for hit in hits)
    assert len(hits) == sum(hit.score >= 0.5 for hit in index.search(query, 60)[0])
    with pytest.raises(ConfigError, match=r"no metadata column named 'kin'. Did you mean 'kind'"):
        index.search(query, where="kin=a")


def test_ids_last_through_additions_removals_and_joins(folder: Path) -> None:
    texts, vectors, metadata = make_rows(40)
    index = Index.from_blocks(folder, in_blocks(texts[:25], vectors[:25], metadata[:25]), model=MODEL)
    assert index.add_blocks(in_blocks(texts[25:], vectors[25:], metadata[25:])).added == 15
    gone = {3, 26, 30, 31}
    assert index.remove(ids=[3]) + index.remove(texts=[texts[26]]) + index.remove(where=["n>29", "n<32"]) == 4
    expected = [row for row in range(40) if row not in gone]
    query = vectors[30]
    for _ in ("marked", "joined"):
        assert index.ids().tolist() == expected and len(index) == 36
        (hits,) = index.search(query, 6)
        assert [hit.id for hit in hits] == naive(vectors, query, 6, lambda row: row not in gone)
        np.testing.assert_allclose(
            index.vectors([2, 39]), vectors[[2, 39]] / np.linalg.norm(vectors[[2, 39]], axis=1)[:, None], atol=1e-6
        )
        index.compact()
    assert [part["rows"] for part in index.info()["segments"]] == [36] and index.info()["removed"] == 0
    index.add_blocks([Block(["new"], vectors[:1])])
    assert index.ids()[-1] == 40  # an id is never given again
    with pytest.raises(InputError, match="no row with the id 3"):
        index.vectors([3])


def test_another_reader_keeps_its_view_until_it_looks_again(folder: Path) -> None:
    texts, vectors, _ = make_rows(20)
    index = Index.from_blocks(folder, in_blocks(texts, vectors), model=MODEL)
    reader = Index.open(folder)
    index.remove(ids=list(range(10)))  # half of it: the segments are joined and the old files are gone
    assert len(reader) == 20 and reader.search(vectors[0], 1)[0][0].id == 0
    assert reader.refresh() and len(reader) == 10 and not reader.refresh()


def test_refresh_reads_nothing_while_nothing_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, vectors, _ = make_rows(20)
    index = Index.from_blocks(folder, in_blocks(texts, vectors), model=MODEL)
    reader = Index.open(folder)
    index.add_blocks([Block(["new"], vectors[:1])])
    before = reader._snapshot.segments[0]
    assert reader.refresh() and len(reader) == 21
    assert reader._snapshot.segments[0] is before  # with the graph and the columns that it has read
    monkeypatch.setattr(index_module, "open_snapshot", None)
    assert not reader.refresh() and not reader.refresh()


def test_refresh_sees_an_index_that_was_deleted_and_built_again(folder: Path) -> None:
    texts, vectors, _ = make_rows(20)
    reader = Index.from_blocks(folder, in_blocks(texts, vectors), model=MODEL)
    shutil.rmtree(folder)
    with pytest.raises(InputError, match="is not an index"):
        reader.refresh()
    others = [text.upper() for text in texts]
    Index.from_blocks(folder, in_blocks(others, vectors), model=MODEL)  # as many rows, and the same number of changes
    assert reader.refresh() and reader.search(vectors[3], 1)[0][0].text == others[3]


def test_threads_search_while_another_refreshes(folder: Path) -> None:
    texts, vectors, _ = make_rows(40)
    writer = Index.from_blocks(folder, in_blocks(texts[:20], vectors[:20]), model=MODEL)
    reader, done = Index.open(folder), threading.Event()

    def look() -> int:
        looks = 0
        while not done.is_set() or not looks:
            hits = reader.search(vectors[:20], 1)
            ids = reader.ids()
            assert [found[0].text for found in hits] == texts[:20]
            assert reader.vectors().shape[1] == DIMENSIONS and len(ids) >= 20 and reader.info()["rows"] >= 20
            looks += 1
        return looks

    with ThreadPoolExecutor(3) as pool:
        looking = [pool.submit(look) for _ in range(3)]
        try:
            for row in range(20, 40):
                writer.add_blocks([Block([texts[row]], vectors[row : row + 1])])
                assert reader.refresh()
        finally:
            done.set()
        assert all(each.result() for each in looking)
    assert len(reader) == 40


def test_repeated_texts(folder: Path) -> None:
    vectors = make_rows(4)[1]
    index = Index.from_blocks(folder, [Block(["a", "b", "a", "c"], vectors)], model=MODEL)
    assert (len(index), index.info()["distinct"]) == (4, 3)
    index = Index.from_blocks(folder, [Block(["a", "b", "a", "c"], vectors)], model=MODEL, unique=True, overwrite=True)
    assert [hit.text for hit in index.entries(index.ids())] == ["a", "b", "c"]
    written = index.add_blocks([Block(["c", "d"], vectors[:2]), Block(["d"], vectors[:1])], unique=True)
    assert (written.added, written.skipped) == (1, 2)
    index.remove(texts=["a"])
    assert index.add_blocks([Block(["a"], vectors[:1])], unique=True).added == 1
    nothing = index.add_blocks([Block(["a"], vectors[:1])], unique=True)
    assert (nothing.added, len(index)) == (0, 4)
    assert {path.name for path in folder.iterdir()} >= read_manifest(folder).names


@pytest.mark.parametrize(("kind", "least"), [("hnsw", 0.95), ("ivf-pq", 0.9)])
def test_approximate_search_finds_nearly_all(kind: str, least: float, folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(approximate, "LEAST", {"exact": 0, "hnsw": 100, "ivf-pq": 1_000})
    texts, vectors, metadata = make_rows(3_000)
    index = Index.from_blocks(folder, in_blocks(texts, vectors, metadata, size=512), model=MODEL, kind=kind)
    (segment,) = index.info()["segments"]
    assert segment["kind"] == kind and segment["recall_at_10"] >= least and not index.exact
    queries = vectors[::100] + np.random.default_rng(1).normal(size=(30, DIMENSIONS)).astype(np.float32) / 4
    index.remove(where="n<500")
    removed = set(range(500))

    def recall(where: str | None, keep) -> float:
        found = index.search(queries, 10, where=where)
        return np.mean(
            [
                len({hit.id for hit in hits} & set(naive(vectors, query, 10, keep))) / 10
                for query, hits in zip(queries, found, strict=True)
            ]
        )

    assert recall(None, lambda row: row not in removed) >= least
    assert recall("kind!=b", lambda row: row not in removed and row % 2 == 0) == 1.0  # few enough to be exact
    (hits,) = index.search(vectors[700], 1)
    assert hits[0].id == 700 and hits[0].score == pytest.approx(1.0, abs=1e-6)


def test_additions_join_the_graph_when_they_are_many(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(approximate, "LEAST", {"exact": 0, "hnsw": 100, "ivf-pq": 10_000})
    texts, vectors, _ = make_rows(400)
    index = Index.from_blocks(folder, in_blocks(texts[:300], vectors[:300]), model=MODEL, kind="hnsw")
    index.add_blocks(in_blocks(texts[300:350], vectors[300:350]))
    assert [part["kind"] for part in index.info()["segments"]] == ["hnsw", "exact"]
    assert index.search(vectors[320], 1)[0][0].id == 320
    index.add_blocks(in_blocks(texts[350:], vectors[350:]))
    assert [part["kind"] for part in index.info()["segments"]] == ["hnsw", "exact", "exact"]
    index.add_blocks([Block(["one more"], vectors[:1])])
    assert [part["kind"] for part in index.info()["segments"]] == ["hnsw"]


def manifest_of(*rows: int, kind: str = "auto", first: str = "exact", removed: int = 0) -> Manifest:
    parts = tuple(Part(name=str(place), rows=count, kind="exact") for place, count in enumerate(rows))
    parts = (Part(name="0", rows=rows[0], kind=first), *parts[1:])
    return Manifest(model=MODEL, dimensions=2, kind=kind, parts=parts, removed_rows=removed)


def test_which_segments_are_joined() -> None:
    assert first_to_join(manifest_of(1000, 10, 10)) is None
    assert first_to_join(manifest_of(1000, *[10] * 8)) == 1  # the small ones, not the large one
    assert first_to_join(manifest_of(10, *[10] * 8)) == 0
    assert first_to_join(manifest_of(1000, removed=251)) == 0
    assert first_to_join(manifest_of(10_000, 3_000, kind="hnsw", first="hnsw")) is None
    assert first_to_join(manifest_of(10_000, 4_000, kind="hnsw", first="hnsw")) == 0
    assert first_to_join(manifest_of(approximate.HNSW_FROM - 1, 1)) == 0  # now large enough for a graph
    assert first_to_join(manifest_of(approximate.HNSW_FROM + 9, first="hnsw", removed=10)) is None


def test_kinds_by_size() -> None:
    assert approximate.kind_for(10, "auto") == "exact"
    assert approximate.kind_for(approximate.HNSW_FROM, "auto") == "hnsw"
    assert approximate.kind_for(approximate.IVF_PQ_FROM, "auto") == "ivf-pq"
    assert approximate.kind_for(10, "hnsw") == "exact" and approximate.kind_for(5_000, "hnsw") == "hnsw"


def test_recall_counts_equal_scores_as_equal() -> None:
    exact = np.array([[0.9, 0.8], [0.5, 0.4]], np.float32)
    assert approximate.recall_at_10(exact, exact) == 1.0
    assert approximate.recall_at_10(np.array([[0.9, 0.1], [0.5, 0.4]], np.float32), exact) == 0.75
    scores, rows = np.array([[1.0, 0.9, 0.8], [0.7, 0.6, 0.5]]), np.array([[4, 1, 2], [1, 2, 3]])
    assert approximate.without_self(scores, rows, np.array([4, 9])).tolist() == [[0.9, 0.8], [0.7, 0.6]]


def test_everything_can_be_removed_and_added_again(folder: Path) -> None:
    texts, vectors, _ = make_rows(5)
    index = Index.from_blocks(folder, in_blocks(texts, vectors), model=MODEL)
    assert index.remove(ids=range(5)) == 5
    assert (
        len(index) == 0
        and index.search(vectors[0]).to_dict() == {"results": [{"query": None, "hits": []}]}
        and index.info()["rows"] == 0
    )
    index.add_blocks(in_blocks(texts, vectors))
    assert index.ids().tolist() == [5, 6, 7, 8, 9]


def test_another_model_is_refused_with_both_names(folder: Path) -> None:
    texts, vectors, _ = make_rows(2)
    index = Index.from_blocks(folder, in_blocks(texts, vectors), model=MODEL)
    index.check_model(name="moved", fingerprint="f" * 64)
    with pytest.raises(ModelError, match=r"built with the model toy \(f+\), not with other \(0+\)"):
        index.check_model(name="other", fingerprint="0" * 64)


def test_only_one_writes_at_a_time(folder: Path) -> None:
    texts, vectors, _ = make_rows(2)
    index = Index.from_blocks(folder, in_blocks(texts, vectors), model=MODEL)
    with locked(folder):
        with pytest.raises(OutputError, match=r"another process \(process \d+\) is writing"):
            index.remove(ids=[0])
        assert index.search(vectors[0], 1)[0][0].id == 0
    assert index.remove(ids=[0]) == 1


def test_a_failed_build_leaves_nothing(folder: Path) -> None:
    texts, vectors, _ = make_rows(2)

    def failing() -> Iterator[Block]:
        yield Block(texts, vectors)
        raise RuntimeError("the model fell over")

    with pytest.raises(RuntimeError, match="fell over"):
        Index.from_blocks(folder, failing(), model=MODEL)
    assert not folder.exists()
    index = Index.from_blocks(folder, in_blocks(texts, vectors), model=MODEL)
    before = sorted(folder.rglob("*"))
    for attempt in (
        lambda: index.add_blocks(failing()),
        lambda: Index.from_blocks(folder, failing(), model=MODEL, overwrite=True),
    ):
        with pytest.raises(RuntimeError, match="fell over"):
            attempt()
        assert sorted(folder.rglob("*")) == before and len(Index.open(folder)) == 2


def test_what_cannot_be_indexed(folder: Path, tmp_path: Path) -> None:
    texts, vectors, _ = make_rows(2)
    with pytest.raises(InputError, match="there is no text"):
        Index.from_blocks(folder, [], model=MODEL)
    with pytest.raises(InputError, match="non-finite"):
        Index.from_blocks(folder, [Block(texts, np.full((2, 3), np.nan, np.float32))], model=MODEL)
    with pytest.raises(InputError, match=r"shape \(2, 16\), got \(1, 16\)"):
        Index.from_blocks(folder, [Block(texts, vectors[:1])], model=MODEL)
    with pytest.raises(ConfigError, match=r"no kind of index named 'hsnw'. Did you mean 'hnsw'"):
        Index.from_blocks(folder, in_blocks(texts, vectors), model=MODEL, kind="hsnw")
    with pytest.raises(ConfigError, match="no fingerprint"):
        Index.from_blocks(folder, in_blocks(texts, vectors), model={"name": "x"})
    with pytest.raises(OutputError, match="no folder"):
        Index.from_blocks(tmp_path / "a" / "b", in_blocks(texts, vectors), model=MODEL)
    assert not folder.exists()


def test_a_folder_of_something_else_is_left_alone(folder: Path) -> None:
    texts, vectors, _ = make_rows(2)
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"holds thesis\.txt"):
        Index.from_blocks(folder, in_blocks(texts, vectors), model=MODEL, overwrite=True)
    with pytest.raises(InputError, match="is not an index"):
        Index.open(folder)
    assert [path.name for path in folder.iterdir() if path.name != "lock"] == ["thesis.txt"]


def test_an_index_is_replaced_only_when_asked(folder: Path) -> None:
    texts, vectors, _ = make_rows(3)
    Index.from_blocks(folder, in_blocks(texts, vectors), model=MODEL)
    with pytest.raises(OutputError, match=r"holds an index already.*--overwrite"):
        Index.from_blocks(folder, in_blocks(texts, vectors), model=MODEL)
    assert len(Index.from_blocks(folder, in_blocks(texts[:1], vectors[:1]), model=MODEL, overwrite=True)) == 1


def test_damage_is_one_readable_error(folder: Path) -> None:
    texts, vectors, _ = make_rows(3)
    Index.from_blocks(folder, in_blocks(texts, vectors), model=MODEL)
    manifest = json.loads((folder / "index.json").read_text())
    (folder / "index.json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(InputError, match="expected format 1 to 3, got 99"):
        Index.open(folder)
    (folder / "index.json").write_text(json.dumps({**manifest, "parts": [{"name": "segment-9"}]}))
    with pytest.raises(InputError, match="damaged"):
        Index.open(folder)
    (folder / "index.json").write_text(json.dumps(manifest))
    (folder / "segment-000001" / "ids.i64").unlink()
    with pytest.raises(InputError, match=r"ids\.i64 is damaged: it is missing"):
        Index.open(folder)


def test_a_query_of_another_length_is_refused(folder: Path) -> None:
    texts, vectors, _ = make_rows(3)
    index = Index.from_blocks(folder, in_blocks(texts, vectors), model=MODEL)
    with pytest.raises(InputError, match=r"shape \(1, 16\), got \(1, 4\)"):
        index.search(np.ones(4, np.float32))
    with pytest.raises(ConfigError, match="k is 0"):
        index.search(vectors, 0)
    with pytest.raises(ConfigError, match="expected one of ids, texts and where"):
        index.remove(ids=[1], texts=["x"])
