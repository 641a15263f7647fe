"""An index whose ids are the values of a column: rows are replaced, removed and found by them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinpass.errors import ConfigError, InputError
from twinpass.search.index import Block, Index

MODEL = {"name": "toy", "fingerprint": "f" * 64}
IDS = [*"abcdefgh", 1, 22, "x y", "ü,1"]
CHANGE = st.one_of(
    st.tuples(st.just("add"), st.lists(st.sampled_from(IDS), min_size=1, max_size=4, unique_by=str)),
    st.tuples(st.just("remove"), st.lists(st.sampled_from(IDS), min_size=1, max_size=3, unique_by=str)),
    st.tuples(st.just("compact"), st.just([])),
)


def vector_of(text: str) -> np.ndarray:
    return np.random.default_rng(len(text) * 7 + sum(map(ord, text))).normal(size=8).astype(np.float32)


def block(texts: dict) -> Block:
    vectors = np.stack([vector_of(text) for text in texts.values()])
    return Block([*texts.values()], vectors, [{"ticket": each, "n": place} for place, each in enumerate(texts)])


def contents(index: Index) -> dict:
    ids = index.ids()
    return {entry.id: entry.text for entry in index.entries(ids)}


@settings(max_examples=25)
@given(st.lists(CHANGE, max_size=6))
def test_changes_by_id_equal_those_of_a_dictionary(tmp_path_factory: pytest.TempPathFactory, changes: list) -> None:
    folder = tmp_path_factory.mktemp("ids") / "index"
    truth = {"a": "first a", 22: "first 22"}
    index = Index.from_blocks(folder, [block(truth)], model=MODEL, id_column="ticket")
    for number, (what, ids) in enumerate(changes):
        if what == "add":
            new = {each: f"text {number} of {each}" for each in ids}
            replaced = len(truth.keys() & new.keys())
            added = index.add_blocks([block({each: text}) for each, text in new.items()])
            assert (added.added, added.replaced) == (len(new), replaced)
            truth |= new
        elif what == "compact":
            index.compact()
        elif missing := [each for each in ids if each not in truth]:
            with pytest.raises(InputError, match="no row with the id"):
                index.remove(ids=ids)
            assert missing[0] not in contents(index)
        else:
            assert index.remove(ids=ids) == len(ids)
            truth = {each: text for each, text in truth.items() if each not in ids}
        assert contents(index) == truth and len(index) == len(truth)
    assert Index.verify(folder).whole and contents(Index.open(folder)) == truth
    for each, text in truth.items():
        (hits,) = index.search(vector_of(text), 1, where=f"ticket = '{each}'")
        assert (hits[0].id, hits[0].text) == (each, text) and "ticket" not in hits[0].metadata
        np.testing.assert_allclose(
            index.vectors([each])[0], vector_of(text) / np.linalg.norm(vector_of(text)), atol=1e-6
        )


def test_ids_are_compared_as_texts_and_returned_as_they_are(tmp_path: Path) -> None:
    index = Index.from_blocks(tmp_path / "index", [block({17: "old"})], model=MODEL, id_column="ticket")
    assert index.add_blocks([block({"17": "new"})]).replaced == 1
    assert contents(index) == {"17": "new"} and index.entries([17])[0].id == "17"
    assert index.info().id_column == "ticket" and "the column ticket" in repr(index.info())


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ([{"ticket": "a"}, {"ticket": "a"}], "text 2: the id 'a' in the column 'ticket' occurs twice"),
        ([{"ticket": "1"}, {"ticket": 1}], "text 2: the id 1 in the column 'ticket' occurs twice"),
        (
            [{"ticket": "a"}, {"tikcet": "b"}],
            "text 2: expected an id.*got None. Did you mean 'tikcet'. Columns.*: tikcet",
        ),
        ([{"ticket": "a"}, {"ticket": " "}], "text 2: expected an id in the column 'ticket', a text or a whole number"),
        ([{"ticket": 1.5}, {"ticket": 2}], "text 1: expected an id.*got 1.5"),
        ([{"ticket": True}, {"ticket": 2}], "text 1: expected an id.*got True"),
        (None, "text 1: expected an id, but there is no column 'ticket'. Columns beside the text: none"),
    ],
)
def test_what_is_no_id_is_refused_and_nothing_changes(tmp_path: Path, metadata: list, message: str) -> None:
    bad = Block(["x", "y"], np.eye(2, 8, dtype=np.float32), metadata)
    with pytest.raises(InputError, match=message):
        Index.from_blocks(tmp_path / "index", [bad], model=MODEL, id_column="ticket")
    assert not (tmp_path / "index").exists()
    index = Index.from_blocks(tmp_path / "index", [block({"a": "text"})], model=MODEL, id_column="ticket")
    with pytest.raises(InputError, match=message):
        index.add_blocks([bad])
    assert contents(Index.open(tmp_path / "index")) == {"a": "text"}


@pytest.mark.parametrize(
    ("rows", "column", "message"),
    [
        ("1,a dog\n2,a cat\n", "tikcet", "there is no column 'tikcet'. Did you mean 'ticket'"),
        ("1,a dog\n2,a cat\n", "text", "there is no column 'text'.*Columns beside the text: ticket"),
        ("1,a dog\n ,a cat\n", "ticket", "text 2: expected an id"),
        ("1,a dog\n1,a cat\n", "ticket", "text 2: the id '1' in the column 'ticket' occurs twice"),
    ],
)
def test_wrong_ids_are_found_before_the_model_is_loaded(tmp_path: Path, rows: str, column: str, message: str) -> None:
    source, said = tmp_path / "tickets.csv", list[str]()
    source.write_text(f"ticket,text\n{rows}")
    given = [{"ticket": row.split(",")[0]} for row in rows.splitlines()]
    options = {"encoder": "no/such/model", "id_column": column, "log": said.append}
    with pytest.raises(InputError, match=message):
        Index.build(tmp_path / "index", source, columns="text", **options)
    with pytest.raises(InputError, match=message):
        Index.build(tmp_path / "index", ["a dog", "a cat"], metadata=given, **options)
    assert not any("loading" in text for text in said)


def test_wrong_ids_of_texts_to_add_are_found_before_the_model_is_loaded(tmp_path: Path) -> None:
    index = Index.from_blocks(tmp_path / "index", [block({"a": "text"})], model=MODEL, id_column="ticket")
    source = tmp_path / "tickets.csv"
    source.write_text("number,text\n1,a dog\n")
    with pytest.raises(InputError, match=r"text 1: expected an id, but there is no column 'ticket'.*Columns.*: number"):
        index.add(source, columns="text")


def test_unique_texts_and_an_id_column_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="either unique texts or an id column"):
        Index.from_blocks(tmp_path / "index", [block({"a": "b"})], model=MODEL, id_column="ticket", unique=True)
    index = Index.from_blocks(tmp_path / "index", [block({"a": "b"})], model=MODEL, id_column="ticket")
    with pytest.raises(ConfigError, match="either unique texts or an id column"):
        index.add_blocks([block({"b": "c"})], unique=True)


def test_milvus_refuses_an_id_column(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="an index on Milvus has no id column"):
        Index.build("docs", ["a"], vectors=np.ones((1, 2)), milvus=str(tmp_path / "m.db"), id_column="ticket")


def test_clusters_and_duplicates_show_the_ids(tmp_path: Path) -> None:
    texts = {"a": "same", "b": "same", 3: "other"}
    index = Index.from_blocks(tmp_path / "index", [block(texts)], model=MODEL, id_column="ticket")
    (group,) = index.dedupe(0.999, output=tmp_path / "kept.jsonl").groups
    assert (group["kept"]["id"], [other["id"] for other in group["others"]]) == ("a", ["b"])
    kept = [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()]
    assert [(row["id"], row["n"]) for row in kept] == [("a", 0), (3, 2)] and "ticket" not in kept[0]
    found = index.cluster(2, output=tmp_path / "clusters.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "clusters.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == [row["id"] for row in found.records()] == ["a", "b", 3]
