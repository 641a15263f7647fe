"""`twinpass index load`: what encode wrote, searched without encoding it again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from twinpass.encoder.encoder import Encoder
from twinpass.errors import InputError
from twinpass.search.index import Index
from twinpass.search.texts import StoredVectors

TEXTS = ["the cat sat on the mat", "a dog", "the cat sat on the mat", "two more words", "water and oil"]


@pytest.fixture(params=[[], ["--shard-rows", "2"]], ids=["a file", "shards"])
def vectors(run, model, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """What encode writes, not of length one."""
    source, target = tmp_path / "in.txt", tmp_path / "v.parquet"
    source.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    ran = run("encode", source, "-m", model, "-o", target, "--max-tokens", 12, *request.param)
    assert ran.code == 0, ran.err
    return target


def test_the_index_is_the_one_that_build_makes(run, model, vectors, tmp_path):
    loaded, built = tmp_path / "loaded", tmp_path / "built"
    ran = run("index", "load", vectors, "-o", loaded, "--json")
    assert ran.code == 0, ran.err
    assert (json.loads(ran.out)["rows"], json.loads(ran.out)["skipped"]) == (5, 0)
    run("index", "build", tmp_path / "in.txt", "-m", model, "-o", built, "--max-tokens", 12)
    ours, theirs = Index.open(loaded), Index.open(built)
    np.testing.assert_allclose(ours.vectors(), theirs.vectors(), atol=1e-6)
    assert [hit.text for hit in ours.entries(ours.ids())] == TEXTS
    assert {**theirs.model, **ours.model} == theirs.model  # so that the same model answers
    ran = run("search", loaded, "a dog", "-k", 1, "--json")
    assert json.loads(ran.out)["results"][0]["hits"][0]["text"] == "a dog"


def test_unique_and_overwrite(run, vectors, tmp_path):
    out = tmp_path / "index"
    assert json.loads(run("index", "load", vectors, "-o", out, "--unique", "--json").out)["skipped"] == 1
    ran = run("index", "load", vectors, "-o", out)
    assert ran.code == 2 and "--overwrite" in ran.err
    assert run("index", "load", vectors, "-o", out, "--overwrite").code == 0


def write(path: Path, metadata: dict[str, str] | None) -> Path:
    table = pa.table({"text": ["a"], "vector": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))})
    pq.write_table(table.replace_schema_metadata(metadata), path)
    return path


def test_what_encode_did_not_write_is_refused(tmp_path):
    notes = {"model": "m", "model_fingerprint": "a", "data": "d", "data_fingerprint": "b"}
    (tmp_path / "text.parquet").write_text("text")
    (tmp_path / "empty").mkdir()
    (tmp_path / "mixed").mkdir()
    write(tmp_path / "mixed" / "v-00000-of-00002.parquet", notes)
    write(tmp_path / "mixed" / "v-00001-of-00002.parquet", {**notes, "model_fingerprint": "c"})
    shutil.copytree(tmp_path / "mixed", tmp_path / "part")
    (tmp_path / "part" / "v-00001-of-00002.parquet").unlink()
    for name, told in [
        ("no.parquet", "there is no .*no.parquet"),
        ("text.parquet", "is not a parquet file"),
        ("empty", "holds no parquet file"),
        ("mixed", "come from different models or data"),
        ("part", "holds 1 of 2 shards"),
        (write(tmp_path / "bare.parquet", None).name, "no texts with vectors of a known model"),
    ]:
        with pytest.raises(InputError, match=told):
            StoredVectors(tmp_path / name)
    assert StoredVectors(write(tmp_path / "good.parquet", notes)).total == 1


def test_the_pooler_that_was_chosen_is_remembered(run, model, tmp_path):
    source, target = tmp_path / "in.txt", tmp_path / "v.parquet"
    source.write_text("a dog\n", encoding="utf-8")
    run("encode", source, "-m", model, "-o", target, "--pooler", "cls")
    told = StoredVectors(target).model
    assert (told["pooler"], told.get("max_tokens")) == ("cls", None)
    assert told["fingerprint"] == Encoder.load(model, pooler="cls", device="cpu").fingerprint


def test_damage_is_refused(run, vectors, tmp_path):
    file = vectors if vectors.is_file() else sorted(vectors.glob("*.parquet"))[0]
    content = file.read_bytes()
    place = content.index(b"cat sat")
    file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    ran = run("index", "load", vectors, "-o", tmp_path / "index")
    assert ran.code == 2 and "is damaged" in ran.err, ran.err
    assert not Index.exists(tmp_path / "index")
