"""What goes wrong around an index: damage, full disks, other writers, files that are not its own."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from twinpass.errors import InputError, ModelError, OutputError
from twinpass.search import writer
from twinpass.search.engines import approximate
from twinpass.search.index import Block, Index

MODEL = {"name": "toy", "fingerprint": "f" * 64}


def block(count: int, *, seed: int = 0) -> Block:
    vectors = np.random.default_rng(seed).normal(size=(count, 16)).astype(np.float32)
    return Block([f"text {seed}.{row}" for row in range(count)], vectors)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index.from_blocks(tmp_path / "index", [block(8)], model=MODEL)


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """An index that is searched approximately, opened but not searched yet."""
    monkeypatch.setitem(approximate.LEAST, "hnsw", 10)
    return Index.from_blocks(tmp_path / "graph", [block(100)], model=MODEL, kind="hnsw")


def test_files_whose_names_only_begin_like_ours_are_not_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    folder.mkdir()
    (folder / "segment-1.wav").write_bytes(b"mine")
    with pytest.raises(OutputError, match=r"holds segment-1\.wav, which is not part"):
        Index.from_blocks(folder, [block(3)], model=MODEL)
    assert (folder / "segment-1.wav").read_bytes() == b"mine"


@pytest.mark.parametrize(
    "file", ["vectors.f32", "ids.i64", "digests.u64", "rows.arrow", "terms.arrow", "lengths.u32", "postings.u32"]
)
@pytest.mark.parametrize("size", [0, 7])
def test_a_file_that_was_cut_short_is_one_readable_error(index: Index, file: str, size: int) -> None:
    path = index.folder / "segment-000001" / file
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(InputError, match="is damaged"):
        Index.open(index.folder)


def test_a_graph_that_was_cut_short_is_one_readable_error(graph: Index) -> None:
    path = graph.folder / "segment-000001" / "engine.faiss"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match=r"engine\.faiss is damaged"):
        graph.search(block(1).vectors)


def test_a_reader_searches_on_when_a_writer_has_taken_the_graph_away(graph: Index) -> None:
    Index.open(graph.folder).add_blocks([block(100, seed=1)])  # joins both into a new graph
    assert not (graph.folder / "segment-000001").exists()
    assert [hits[0].id for hits in graph.search(block(100).vectors, 1)] == list(range(100))


def test_nothing_is_added_to_an_index_that_another_model_has_replaced(index: Index) -> None:
    other = {"name": "other", "fingerprint": "0" * 64}
    Index.from_blocks(index.folder, [block(8)], model=other, overwrite=True)
    with pytest.raises(ModelError, match="was built with the model other"):
        index.add_blocks([block(2, seed=1)])
    assert len(Index.open(index.folder)) == 8


def test_a_join_that_fails_does_not_say_that_the_addition_did(index: Index, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(writer, "first_to_join", lambda manifest: 0)
    monkeypatch.setattr(writer, "_join_from", full)
    with pytest.warns(UserWarning, match=r"was changed, but .* No space left on device.* index compact"):
        assert index.add_blocks([block(2, seed=1)]).added == 2
    assert len(Index.open(index.folder)) == 10


def test_an_id_that_no_index_can_have(index: Index) -> None:
    with pytest.raises(InputError, match=f"no row with the id {10**30}"):
        index.remove(ids=[1, 10**30])


def test_what_is_there_already_is_skipped_wherever_it_lies(index: Index) -> None:
    again = Block([*block(8).texts, "new", "text 0.3", "new"], block(11).vectors)
    written = index.add_blocks([again], unique=True)
    assert (written.added, written.skipped) == (1, 10)
