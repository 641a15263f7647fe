"""The index by its public calls: texts and files in, answers out; in a folder and on Milvus."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.tiny import make_checkpoint

from twinpass import Encoder, Index
from twinpass.errors import ConfigError, InputError, ModelError
from twinpass.search.results import Hits, Results

TEXTS = ["the cat sat on the mat", "a dog", "water and oil", "the cat sat on the mat"]
NOTES = [{"year": 2019}, {"year": 2021}, {"year": 2022}, {"year": 2023}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "model"
    bare = make_checkpoint(tmp_path_factory.mktemp("bare") / "model")
    Encoder.load(bare, pooler="avg", device="cpu").save(folder)
    return folder


@pytest.fixture(scope="module")
def encoder(model: Path) -> Encoder:
    return Encoder.load(model, device="cpu")


@pytest.fixture(params=["folder", "milvus"])
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A path to build at, and the options that say where; the calls are the same for both."""
    if request.param == "folder":
        yield str(tmp_path / "docs"), {}
        return
    pytest.importorskip("pymilvus", reason="needs pymilvus (extra [milvus])")
    pytest.importorskip("milvus_lite", reason="needs milvus-lite (extra [milvus])")
    file = str(tmp_path / "test.db")
    yield "docs", {"milvus": file}
    from milvus_lite.server_manager import server_manager_instance

    server_manager_instance.release_server(file)


def test_every_call_from_texts_to_answers(encoder: Encoder, there: tuple[str, dict[str, str]]) -> None:
    path, place = there
    index = Index.build(path, TEXTS, encoder=encoder, metadata=NOTES, kind="exact", **place)
    hits = index.search("a dog", k=2, where="year>=2020")
    assert isinstance(hits, Hits) and len(hits) == 2 and (hits[0].id, hits[0].text) == (1, "a dog")
    assert hits[0].score == pytest.approx(1.0, abs=1e-5) and hits[0].metadata == {"year": 2021}
    answers = index.search(["water and oil", "a dog"], k=1)
    assert index.search(np.array(["water and oil", "a dog"]), k=1).records() == answers.records()
    one = index.search(np.array("a dog"), k=2, where="year>=2020")
    assert isinstance(one, Hits) and one.records() == hits.records()
    assert isinstance(answers, Results) and [hits[0].id for hits in answers] == [2, 1]
    by_vectors = index.search(encoder.encode(["water and oil", "a dog"]), k=1)
    assert [hits[0].id for hits in by_vectors] == [2, 1] and by_vectors[0].query is None
    assert index.search(encoder.encode(["a dog"]).tolist(), k=1)[0][0].id == 1
    assert len(index.search("a dog", min_score=0.9999)) == 1
    grouped, apart = (index.search(TEXTS[0], k=4, where="year < 2023 or year = 2023", group=g) for g in (None, False))
    assert (grouped[0].id, grouped[0].copies) == (0, 2) and len(grouped) == 3
    assert {hit.id for hit in apart} == {0, 1, 2, 3} and {hit.copies for hit in apart} == {1}
    assert index.search(TEXTS[0], k=1, where="year > 2019")[0].id == 3

    other = Index.open(path, encoder=encoder, **place)
    added = index.add(["a dog", "two words"], metadata=[{"year": 1}, {"year": 2}], unique=True)
    assert (added.added, added.skipped, len(index)) == (1, 1, 5)
    assert other.refresh() and not other.refresh() and len(other) == 5
    assert other.search("two words", k=1)[0].metadata == {"year": 2}

    found = index.dedupe(threshold=0.9999)
    assert (found.texts, found.kept, found.duplicates, found.exact) == (5, 4, 1, True)
    assert found.groups[0]["kept"]["id"] == 0 and found.records()[0]["id"] == 3
    clusters = index.cluster(2, seed=1)
    assert sum(each["size"] for each in clusters.clusters) == 5 and clusters.labels[0] == clusters.labels[3]

    assert index.remove(where="year<3") + index.remove(ids=[0]) + index.remove(texts=["a dog"]) == 3
    index.compact()
    info = index.info()
    assert info.rows == info["rows"] == 2 and info.columns == ("year",)
    assert info.model == {
        "name": str(Path(encoder.name).resolve()),
        "fingerprint": encoder.fingerprint,
        "pooler": "avg",
        "max_tokens": encoder.max_tokens,
        "precision": "fp32",
        "runtime": "torch",
    }


def test_results_print_and_are_plain_data(encoder: Encoder, tmp_path: Path) -> None:
    index = Index.build(tmp_path / "index", TEXTS, encoder=encoder, metadata=NOTES)
    answers, nothing = index.search(["a dog"], k=1), index.search("a dog", where="year>3000")
    assert "a dog" in repr(answers) and "2021" in repr(answers) and "<table>" in answers._repr_html_()
    assert json.loads(json.dumps(answers.to_dict()))["results"][0]["hits"][0]["metadata"] == {"year": 2021}
    hit = {"id": 1, "score": 1.0, "text": "a dog", "copies": 1, "year": 2021}
    assert answers.records() == [{"query": "a dog", "rank": 1, **hit}] and answers[0].records() == [hit]
    assert [(row["query"], row["rank"]) for row in index.search(["a dog", "a cat"], k=2).records()] == [
        ("a dog", 1), ("a dog", 2), ("a cat", 1), ("a cat", 2),
    ]  # fmt: skip
    assert "nothing was found" in repr(nothing) and nothing.records() == []
    info = index.info()
    assert "searched exactly" in repr(info) and json.dumps(info.to_dict()) and info.records() == [info.to_dict()]
    assert "4 texts" in repr(index) and str(tmp_path) in repr(index)
    clusters, duplicates = index.cluster(2), index.dedupe(0.9999)
    assert len(clusters.records()) == 4 and "cohesion" in repr(clusters) and json.dumps(clusters.to_dict())
    assert "kept" in repr(duplicates) and json.dumps(duplicates.to_dict())
    assert "no two texts" in repr(Index.build(None, ["a", "water"], encoder=encoder).dedupe(1.0))
    assert "truncated" in repr(index.add(["x"])) and index.add(["y"]).to_dict()["added"] == 1


def test_a_users_column_never_has_the_name_of_one_of_ours(encoder: Encoder, tmp_path: Path) -> None:
    index = Index.build(None, ["a dog"], encoder=encoder, metadata=[{"id": "T-1", "score": 3, "query": "q"}])
    found = index.search(["a dog"])
    (record,) = found.records()
    names = ["query", "rank", "id", "score", "text", "copies", "source_id", "source_score", "source_query"]
    assert list(record) == names
    assert (record["id"], record["source_id"]) == (0, "T-1")
    assert found[0].grids()[0].columns == ["id", "score", "text", "source_id", "source_score", "query"]
    assert found.to_dict()["results"][0]["hits"][0]["metadata"] == {"id": "T-1", "score": 3, "query": "q"}


def test_a_file_brings_its_columns_and_a_model_is_loaded_by_name(model: Path, tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("text,author\na dog,ann\nwater,bob\n,cy\n", encoding="utf-8")
    said: list[str] = []
    options = {"columns": ["text"], "skip_bad_rows": True}
    index = Index.build(tmp_path / "index", table, encoder=model, log=said.append, device="cpu", **options)
    assert index.columns == ("author",) and said == [f"loading {model} ..."]
    change = index.info().history[-1]
    assert (change["bad_rows"], change["skipped"], change["truncated"]) == (1, 0, 0)
    assert change["data"][0]["source"] == str(table) and change["options"]["columns"] == ["text"]
    assert index.add(table, **options).added == 2
    assert Index.exists(tmp_path / "index") and not Index.exists(tmp_path) and not Index.exists("no\0where")


def test_an_index_loads_its_own_model_once_and_no_other(model: Path, encoder: Encoder, tmp_path: Path) -> None:
    Index.build(tmp_path / "index", TEXTS, encoder=encoder)
    said: list[str] = []
    index = Index.open(tmp_path / "index", log=said.append, device="cpu")
    assert index.search("a dog", k=1)[0].id == index.search(["a dog"], k=1)[0][0].id == 1
    assert said == [f"loading {model.resolve()} ..."]
    other = Index.open(tmp_path / "index", encoder=model, pooler="cls", device="cpu")
    with pytest.raises(ModelError, match="was built with the model"):
        other.search("a dog")
    moved = model.rename(model.with_name("moved"))
    try:
        assert Index.open(tmp_path / "index", encoder=moved, device="cpu").search("a dog", k=1)[0].id == 1
    finally:
        moved.rename(model)


def test_a_condition_that_cannot_hold_is_refused_before_the_model_is_loaded(encoder: Encoder, tmp_path: Path) -> None:
    Index.build(tmp_path / "index", TEXTS, encoder=encoder, metadata=NOTES)
    index = Index.open(tmp_path / "index", encoder="no-such-model")
    with pytest.raises(ConfigError, match="Did you mean 'year'"):
        index.search("a dog", where="yaer>2020")
    with pytest.raises(InputError, match="a query is empty"):
        index.search(["a dog", "  "])


def test_truncated_texts_are_counted(encoder: Encoder, tmp_path: Path) -> None:
    long = "the cat sat on the mat " * 200
    with pytest.warns(UserWarning, match="2 of 3 texts are longer"):
        index = Index.build(tmp_path / "index", [long, "a dog", long], encoder=encoder)
    assert index.info().history[-1]["truncated"] == 2
    with pytest.warns(UserWarning, match="1 of 1 text is"):
        assert index.add([long]).to_dict()["truncated"] == 1


def test_vectors_of_your_own(encoder: Encoder, tmp_path: Path) -> None:
    vectors = np.eye(4, 6, dtype=np.float32)
    index = Index.build(tmp_path / "index", TEXTS, vectors=vectors, metadata=NOTES)
    assert index.search(vectors[2:3], k=1)[0][0].text == "water and oil"
    assert index.add(["new"], vectors=np.ones((1, 6), np.float32)).added == 1 and len(index) == 5
    with pytest.raises(ModelError, match="your own vectors"):
        index.search("a dog")
    known = Index.build(tmp_path / "known", TEXTS, vectors=encoder.encode(TEXTS), encoder=encoder)
    assert known.search("a dog", k=1)[0].id == 1


def test_stored_vectors_bring_their_columns(encoder: Encoder, tmp_path: Path) -> None:
    flat = pa.array(encoder.encode(TEXTS).reshape(-1))
    vectors = pa.FixedSizeListArray.from_arrays(flat, encoder.dimensions)
    table = pa.table({"text": TEXTS, "vector": vectors, "year": [2019, None, 2022, 2023]})
    notes = {"model": encoder.name, "model_fingerprint": encoder.fingerprint, "data": "d", "data_fingerprint": "f"}
    pq.write_table(table.replace_schema_metadata(notes), tmp_path / "v.parquet")
    Index.load_vectors(tmp_path / "index", tmp_path / "v.parquet", unique=True)
    index = Index.open(tmp_path / "index", device="cpu")
    assert len(index) == 3 and index.info().history[-1]["skipped"] == 1
    assert index.search("water and oil", k=1)[0].metadata == {"year": 2022}
    assert index.search("a dog", k=1)[0].metadata == {}


def test_without_a_path_the_index_goes_with_the_object(encoder: Encoder) -> None:
    index = Index.build(None, iter(TEXTS), encoder=encoder)
    folder = index.folder
    assert len(index) == 4 and folder.is_dir()
    del index
    gc.collect()
    assert not folder.parent.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"texts": ["a", 3]}, "text 1: expected a string, got int"),
        ({"texts": ["a", "b"], "metadata": [{}]}, "expected metadata for every text, got 1 dictionaries"),
        ({"texts": ["a"], "metadata": [{}, {"x": 1}]}, "more dictionaries than texts"),
        ({"texts": ["a"], "vectors": np.ones((2, 3))}, "expected a vector for each of 1 texts, got 2"),
        ({"texts": ["a", "b"], "vectors": np.ones((1, 3))}, r"expected vectors of shape \(2, 3\), got \(1, 3\)"),
        ({"texts": []}, "there is no text to index"),
        ({"texts": "nowhere.txt"}, "nowhere.txt"),
    ],
)
def test_what_does_not_fit_leaves_nothing(encoder: Encoder, tmp_path: Path, options: dict, message: str) -> None:
    given = options if "vectors" in options else {**options, "encoder": encoder}
    with pytest.raises((InputError, ConfigError), match=message):
        Index.build(tmp_path / "index", given.pop("texts"), **given)
    assert not (tmp_path / "index").exists()


def test_metadata_beside_a_file_is_refused(encoder: Encoder, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a dog\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="only with a list of texts"):
        Index.build(tmp_path / "index", tmp_path / "a.txt", encoder=encoder, metadata=[{}])
