"""A flipped bit or a cut in any file of an index is found; it never crashes a reader or changes an answer."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from twinpass.errors import InputError
from twinpass.search import checksums
from twinpass.search.index import Block, Index
from twinpass.search.manifest import read_manifest

MODEL = {"name": "toy", "fingerprint": "f" * 64}
DIMENSIONS = 8
TRIALS = 187
# What is done to a copy of the index, in a process that may die of it.
CHILD = """
import json, random, shutil, sys
from pathlib import Path
import numpy as np
from twinpass.errors import InputError
from twinpass.search.index import Index

original, copy, trials = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
queries = np.random.default_rng(5).normal(size=(4, 8)).astype(np.float32)

def answers(folder):
    index = Index.open(folder)
    found = [index.search(queries, 30), index.search(queries, 5, where="n>=500")]
    if index.manifest.parts[0].files:
        found.append(index.search(["text 0", "7", "1 text"], 30, mode="keyword"))
    return [[hit.to_dict() for hits in each for hit in hits] for each in found], index.ids().tolist()

names = sorted(path.relative_to(original) for path in original.rglob("*") if path.is_file() and path.name != "lock")
rng, expected = random.Random(0), answers(original)
for trial in range(trials):
    name = names[trial % len(names)]
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(original, copy)
    content = bytearray((copy / name).read_bytes())
    if trial // len(names) % 4 == 3:
        what, content = "cut", content[:rng.randrange(len(content))]
    else:
        what, place = "flip", rng.randrange(len(content))
        content[place] ^= 1 << rng.randrange(8)
    (copy / name).write_bytes(content)
    print(json.dumps([name.as_posix(), what]), flush=True)
    whole = Index.verify(copy).whole
    try:
        outcome = "right" if answers(copy) == expected else "wrong"
    except InputError as error:
        outcome = str(error)
    print(json.dumps([whole, outcome]), flush=True)
"""


def block(count: int, *, seed: int) -> Block:
    vectors = np.random.default_rng(seed).normal(size=(count, DIMENSIONS)).astype(np.float32)
    return Block([f"text {seed}.{row}" for row in range(count)], vectors, [{"n": row} for row in range(count)])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with every kind of file: a graph, a second segment, and a list of removed ids."""
    folder = tmp_path_factory.mktemp("damage") / "index"
    index = Index.from_blocks(folder, [block(1_000, seed=0)], model=MODEL, kind="hnsw")
    index.add_blocks([block(50, seed=1)])
    index.remove(ids=[3, 1_004])
    names = {path.name for path in folder.rglob("*")}
    assert {"engine.faiss", "removed-000003.npy", "segment-000002"} <= names
    return folder


@pytest.fixture
def index(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "index"))


def flip(path: Path, place: int = -1) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def as_format_1(folder: Path) -> None:
    """Write the manifest as the first format had it: without checksums."""
    document = json.loads((folder / "index.json").read_text())
    for name in ("checksum", "removed_file", "pending"):
        del document[name]
    for part in document["parts"]:
        del part["files"], part["batches"]
    (folder / "index.json").write_text(json.dumps(document | {"format": 1}))


def test_every_flip_and_cut_is_found_and_none_crashes_or_misleads(made: Path, tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", CHILD, str(made), str(tmp_path / "copy"), str(TRIALS)]
    ran = subprocess.run(arguments, capture_output=True, text=True, timeout=600)
    said = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ran.returncode == 0, (said[-1], ran.stderr[-500:])
    assert len(said) == 2 * TRIALS
    for (name, what), (whole, outcome) in zip(said[::2], said[1::2], strict=True):
        assert not whole, f"{what} in {name} was not found"
        assert outcome == "right" or ("damaged" in outcome or "expected format" in outcome), (name, what, outcome)


def test_without_checksums_none_crashes_and_texts_are_still_found(made: Path, index: Path, tmp_path: Path) -> None:
    as_format_1(index)
    assert Index.open(index).search(block(1, seed=0).vectors, 1)[0][0].text == "text 0.0"
    # The graph is read by faiss as it is: nothing tells whether it is damaged.
    arguments = [sys.executable, "-c", CHILD.replace('!= "lock"', 'not in ("lock", "engine.faiss")')]
    ran = subprocess.run(
        [*arguments, str(index), str(tmp_path / "copy"), "60"], capture_output=True, text=True, timeout=600
    )
    said = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ran.returncode == 0, (said[-1], ran.stderr[-500:])


def test_verify_lists_every_file(index: Path) -> None:
    found = Index.verify(index)
    listed = {path.relative_to(index).as_posix() for path in index.rglob("*") if path.is_file()} - {"lock"}
    assert {each.file for each in found.files} == listed and found.whole and found.to_dict()["whole"]
    found.check()
    flip(index / "segment-000002" / "ids.i64")
    (index / "segment-000001" / "digests.u64").unlink()
    found = Index.verify(index)
    assert [each.file for each in found.damaged] == ["segment-000001/digests.u64", "segment-000002/ids.i64"]
    with pytest.raises(InputError, match=r"(?s)2 of 17 files are damaged.*digests.* is missing.*ids.i64 is damaged"):
        found.check()


def test_damage_is_not_joined_into_a_valid_index(index: Path) -> None:
    flip(index / "segment-000001" / "vectors.f32", 100)
    before = (index / "index.json").read_bytes()
    with pytest.raises(InputError, match=r"vectors\.f32 is damaged.*index verify"):
        Index.open(index)
    from twinpass.search import writer

    with pytest.raises(InputError, match=r"vectors\.f32 is damaged"):
        writer.compact(index)
    assert (index / "index.json").read_bytes() == before


def test_damage_that_opening_did_not_sample_is_found_before_a_join(index: Path, monkeypatch) -> None:
    opened = Index.open(index)
    flip(index / "segment-000002" / "vectors.f32", 700)
    monkeypatch.setattr(checksums.Mapped, "check_some", lambda self: None)
    with pytest.raises(InputError, match=r"vectors\.f32 is damaged"):
        opened.compact()


def test_a_large_file_of_texts_is_checked_batch_by_batch(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(checksums, "WHOLE", 0)
    monkeypatch.setattr(checksums, "BLOCK", 1 << 12)
    monkeypatch.setattr(checksums, "SAMPLED", 0)
    folder = tmp_path / "index"
    index = Index.from_blocks(folder, [block(9_000, seed=2)], model=MODEL)
    path = folder / "segment-000001" / "rows.arrow"
    place = path.read_bytes().index(b"text 2.5000") + 6
    flip(path, place)
    index = Index.open(folder)
    assert index.entries([10, 8_999])[1].text == "text 2.8999"  # other batches
    with pytest.raises(InputError, match=r"rows\.arrow is damaged: megabyte \d+ does not match"):
        index.entries([4_200])
    assert not Index.verify(folder).whole


def test_vectors_of_a_large_file_are_checked_before_they_are_used(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(checksums, "WHOLE", 0)
    monkeypatch.setattr(checksums, "BLOCK", 1 << 10)  # 32 rows
    monkeypatch.setattr(checksums, "SAMPLED", 0)
    folder = tmp_path / "index"
    Index.from_blocks(folder, [block(500, seed=2)], model=MODEL)
    vectors, ids = (folder / "segment-000001" / name for name in ("vectors.f32", "ids.i64"))
    flip(vectors, 32 * 300)
    index = Index.open(folder)
    query = block(500, seed=2).vectors[450]
    assert index.search(query, 1, where="n > 440")[0][0].id == 450  # needs other parts of the file only
    with pytest.raises(InputError, match=r"vectors\.f32 is damaged"):
        index.search(query, 1)
    with pytest.raises(InputError, match=r"vectors\.f32 is damaged"):
        index.vectors([300])
    flip(vectors, 32 * 300)
    flip(ids, 8 * 300)
    index = Index.open(folder)
    assert index.search(query, 1)[0][0].id == 450
    with pytest.raises(InputError, match=r"ids\.i64 is damaged"):
        index.search(query, 500)
    with pytest.raises(InputError, match=r"ids\.i64 is damaged"):
        index.ids()


def test_a_damaged_graph_is_built_again_from_the_vectors(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    Index.from_blocks(folder, [block(1_000, seed=0)], model=MODEL, kind="hnsw")
    flip(folder / "segment-000001" / "engine.faiss")
    index = Index.open(folder)
    with pytest.raises(InputError, match=r"engine\.faiss is damaged: .*twinpass index compact"):
        index.search(block(1, seed=0).vectors)
    index.compact()
    assert index.search(block(1, seed=0).vectors, 1)[0][0].id == 0 and Index.verify(folder).whole


def test_compacting_checks_also_what_needs_no_joining(tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "index"
    index = Index.from_blocks(folder, [block(20, seed=0)], model=MODEL)
    index.compact()
    monkeypatch.setattr(checksums.Mapped, "check_some", lambda self: None)  # as if the file were large
    flip(folder / "segment-000001" / "vectors.f32", 300)
    with pytest.raises(InputError, match=r"vectors\.f32 is damaged"):
        index.compact()
    (folder / "segment-000001" / "vectors.f32").unlink()
    with pytest.raises(InputError, match=r"vectors\.f32 is damaged: it is missing"):
        index.compact()


def test_a_file_that_the_disk_does_not_return_is_damaged(tmp_path: Path, monkeypatch) -> None:
    folder, read = tmp_path / "index", checksums._blocks
    index = Index.from_blocks(folder, [block(1_000, seed=0)], model=MODEL, kind="hnsw")
    bad = folder / "segment-000001" / "engine.faiss"

    def blocks(path: Path) -> Iterator[bytes]:
        if path == bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(path)

    monkeypatch.setattr(checksums, "_blocks", blocks)
    found = Index.verify(folder)
    assert [each.file for each in found.damaged] == ["segment-000001/engine.faiss"]
    assert "it cannot be read (Input/output error)" in found.damaged[0].problem
    index.compact()  # builds the graph again
    assert Index.verify(folder).whole and index.search(block(1, seed=0).vectors, 1)[0][0].id == 0


def test_a_change_that_is_damaged_is_not_read_again_before_the_next(index: Path, monkeypatch) -> None:
    reader = Index.open(index)
    Index.open(index).add_blocks([block(5, seed=2)])
    path = max(index.glob("segment-*")) / "ids.i64"
    flip(path)
    with pytest.raises(InputError, match=r"ids\.i64 is damaged"):
        reader.refresh()
    assert not reader.refresh() and len(reader) == 1_048
    flip(path)
    Index.open(index).remove(ids=[5])
    assert reader.refresh() and len(reader) == 1_052


def test_a_change_that_the_system_did_not_let_us_read_is_read_again(index: Path, monkeypatch) -> None:
    reader = Index.open(index)
    Index.open(index).remove(ids=[5])
    with monkeypatch.context() as patched:

        def refuse(*_: object, **__: object) -> str:
            raise OSError(errno.EMFILE, "Too many open files")

        patched.setattr(Path, "read_text", refuse)
        for _ in range(2):
            with pytest.raises(InputError, match="Too many open files"):
                reader.refresh()
    assert reader.refresh() and len(reader) == 1_047


def test_an_index_of_the_first_format_is_read_and_gets_checksums(index: Path) -> None:
    as_format_1(index)
    found = Index.verify(index)
    assert found.whole and {each.state for each in found.files if each.file != "index.json"} == {"no checksum"}
    assert "twinpass index compact" in repr(found)
    opened = Index.open(index)
    expected = [hit.id for hit in opened.search(block(1, seed=0).vectors, 20)[0]]
    opened.remove(ids=[7])  # the next change writes the present format
    assert json.loads((index / "index.json").read_text())["format"] == 3
    opened.compact()
    assert {each.state for each in Index.verify(index).files} == {"ok"}
    assert [hit.id for hit in opened.search(block(1, seed=0).vectors, 20)[0]] == [
        each for each in expected if each != 7
    ]


def test_without_checksums_damage_that_shows_is_not_joined(index: Path) -> None:
    as_format_1(index)
    path = index / "segment-000002" / "rows.arrow"
    flip(path, path.read_bytes().index(b"text 1.20") + 5)
    assert [each.file for each in Index.verify(index).damaged] == ["segment-000002"]
    with pytest.raises(InputError, match="a text does not match its digest"):
        Index.open(index).compact()


def test_a_damaged_index_can_be_built_again(index: Path) -> None:
    for path in (index / "segment-000001" / "ids.i64", index / "index.json"):
        flip(path, 10)
    again = Index.from_blocks(index, [block(5, seed=3)], model=MODEL, overwrite=True)
    assert len(again) == 5 and Index.verify(index).whole
    assert {path.name for path in index.iterdir()} == {"index.json", "lock", *read_manifest(index).names}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"parts": [{"name": "../../etc"}]}, "without a path"),
        ({"parts": [{"name": "/etc"}]}, "without a path"),
        ({"parts": [{"name": "segment-000001/../segment-000001"}]}, "without a path"),
        ({"removed": "../removed-000003.npy"}, "without a path"),
        ({"removed": 7}, "without a path"),
        ({"parts": [{"rows": -1}]}, "rows is -1"),
        ({"parts": [{"rows": 10**30}]}, "rows is 1000"),
        ({"parts": [{"rows": True}]}, "rows is True"),
        ({"parts": [{"kind": "magic"}]}, "kind is 'magic', expected one of"),
        ({"parts": [{"columns": [1]}]}, "expected their names"),
        ({"parts": [{"quality": {"effort": "all"}}]}, "effort is 'all'"),
        ({"parts": [{"files": {"../x": {"bytes": 0, "crc32": ""}}}]}, "expected those of a segment"),
        ({"parts": [{"files": {"ids.i64": {"bytes": 8, "crc32": ""}}}]}, "does not have 8 digits"),
        ({"parts": [{"batches": [[1, 10]]}]}, "do not add up"),
        ({"parts": "all"}, "parts is 'all', expected list"),
        ({"dimensions": 0}, "dimensions is 0"),
        ({"next_id": 3}, "next_id is 3"),
        ({"removed_rows": 10_000}, "removed_rows is 10000"),
        ({"model": {"name": "x"}}, "it has no 'fingerprint'"),
        ({"history": [3]}, "expected an object"),
        ({"id_column": 3}, "id_column is 3, expected str"),
        ({"id_column": "n"}, "lists no keys.u64"),
        ({"format": 4}, "expected format 1 to 3, got 4"),
        ({"format": None}, "expected format 1 to 3, got None"),
    ],
)
def test_what_a_manifest_may_not_say(index: Path, change: dict, told: str) -> None:
    from twinpass.files import sealed

    document = json.loads((index / "index.json").read_text())
    del document["checksum"]
    first = change["parts"][0] if isinstance(change.get("parts"), list) else None
    parts = {"parts": [document["parts"][0] | first, *document["parts"][1:]]} if first else {}
    document |= change | parts
    (index / "index.json").write_text(json.dumps(sealed(document)))
    with pytest.raises(InputError, match=told):
        Index.open(index)
    assert not Index.verify(index).whole
