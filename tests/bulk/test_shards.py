"""A folder of shards on disk: cut, resumed, never mixed with another. No Ray is needed here."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from twinpass.bulk.encode_file import _metadata, encode_file
from twinpass.bulk.ray import ShardEncoder
from twinpass.bulk.shards import Job, read_rows
from twinpass.bulk.writers import Columns, Content, Row, find_columns
from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError, MissingExtra, OutputError
from twinpass.files import sha256
from twinpass.provenance import provenance

TEXTS = [f"word {n}" for n in range(7)]


def rows(texts: list[str]) -> Iterator[Row]:
    return iter([(text, {}) for text in texts])


def read_texts(path: Path) -> list[str]:
    return [text for text, _ in read_rows(path)]


def job(tmp_path: Path, **identity: object) -> Job:
    return Job(tmp_path / "v.parquet", total=7, shard_rows=3, identity={"model": "m", **identity})


def finish(job: Job, number: int) -> None:
    """Do for one shard what a worker does."""
    shard = job.shards[number]
    shard.vectors.write_text(" ".join(read_texts(shard.texts)))
    job.note({"shard": number, "rows": shard.rows, "distinct": shard.rows, "truncated": 0})


def test_texts_are_cut_in_order(tmp_path):
    begun = job(tmp_path)
    begun.begin()
    begun.write_texts(rows(TEXTS), Columns())
    assert [read_texts(shard.texts) for shard in begun.shards] == [TEXTS[:3], TEXTS[3:6], TEXTS[6:]]
    assert [shard.vectors.name for shard in begun.shards] == [f"v-0000{n}-of-00003.parquet" for n in range(3)]


def test_what_was_finished_is_not_done_again(tmp_path):
    begun = job(tmp_path)
    begun.begin()
    begun.write_texts(rows(TEXTS), Columns())
    finish(begun, 1)
    finish(begun, 2)
    again = job(tmp_path)
    again.begin()
    assert [shard.number for shard in again.left()] == [0]
    assert again.without_texts() == []  # nothing is read again either
    assert [made["rows"] for made in again.finished()] == [3, 1]
    assert not (tmp_path / "v.parquet").exists()
    finish(again, 0)
    again.complete()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v.parquet"]
    assert (tmp_path / "v.parquet" / "v-00001-of-00003.parquet").read_text() == " ".join(TEXTS[3:6])
    assert job(tmp_path).left() == []  # and a finished job is recognised


def test_only_missing_texts_are_written_again(tmp_path):
    begun = job(tmp_path)
    begun.begin()
    begun.write_texts(rows(TEXTS), Columns())
    kept = begun.shards[0].texts.stat().st_mtime_ns
    begun.shards[1].texts.unlink()
    begun.write_texts(rows(TEXTS), Columns())
    assert begun.shards[0].texts.stat().st_mtime_ns == kept and read_texts(begun.shards[1].texts) == TEXTS[3:6]


def test_a_note_cut_short_costs_one_shard_and_no_more(tmp_path):
    begun = job(tmp_path)
    begun.begin()
    begun.write_texts(rows(TEXTS), Columns())
    finish(begun, 0)
    notes = begun.folder / "_finished.jsonl"
    notes.write_text(notes.read_text() + '{"shard": 1, "ro')
    again = job(tmp_path)
    assert [shard.number for shard in again.left()] == [1, 2]
    finish(again, 1)
    assert [shard.number for shard in job(tmp_path).left()] == [2]


def test_a_note_without_its_file_is_not_believed(tmp_path):
    begun = job(tmp_path)
    begun.begin()
    begun.write_texts(rows(TEXTS), Columns())
    finish(begun, 0)
    begun.shards[0].vectors.unlink()
    assert [shard.number for shard in job(tmp_path).left()] == [0, 1, 2]


def test_another_job_is_refused_and_left_alone(tmp_path):
    begun = job(tmp_path)
    begun.begin()
    begun.write_texts(rows(TEXTS), Columns())
    with pytest.raises(OutputError, match=r"another job: model 'm' \(now 'other'\)"):
        job(tmp_path, model="other").begin()
    assert json.loads((begun.folder / "_job.json").read_text())["model"] == "m"
    assert begun.shards[0].texts.exists()


def recipe(model: str, columns: Columns | None = None) -> tuple[dict[str, str], Content]:
    facts = provenance(model=Encoder.load(model, device="cpu"), data=[("x.txt", "0" * 64)])
    loading = {"device": "cpu", "precision": "fp32", "runtime": "torch"}
    return loading, Content(True, _metadata(facts), columns or Columns())


def asked(number: int, texts: Path, vectors: Path) -> dict[str, int | str]:
    """A row as Ray Data hands it to an actor."""
    return {"shard": number, "texts": str(texts), "vectors": str(vectors)}


def test_a_worker_makes_the_librarys_vectors(tmp_path, model):
    begun = job(tmp_path)
    begun.begin()
    begun.write_texts(rows(["a dog", "a dog", "the cat", *TEXTS[3:]]), Columns())
    worker = ShardEncoder(*recipe(model))
    shard = begun.shards[0]
    made = worker(asked(0, shard.texts, shard.vectors))
    counted = {"shard": 0, "rows": 3, "distinct": 2, "truncated": 0}
    assert json.loads(made["made"]) == {**counted, "sha256": sha256(shard.vectors)}
    table = pq.read_table(shard.vectors)
    wanted = Encoder.load(model, device="cpu").encode(["a dog", "a dog", "the cat"], normalize=True)
    np.testing.assert_allclose(np.stack(table["vector"].to_numpy()), wanted, atol=1e-6)
    assert table.schema.metadata[b"data_fingerprint"] == b"0" * 64


def test_a_worker_reports_what_the_user_can_fix(tmp_path, model):
    told = recipe(model)
    pq.write_table(pa.table({"text": ["a dog"]}), tmp_path / "t.parquet")
    missing = ShardEncoder(*told)(asked(0, tmp_path / "t.parquet", tmp_path / "no" / "v.parquet"))
    assert "there is no folder" in json.loads(missing["made"])["refusal"]
    told[1].metadata["model_fingerprint"] = "f" * 64
    other = ShardEncoder(*told)(asked(0, tmp_path / "t.parquet", tmp_path / "v.parquet"))
    assert "not ffffffffffff. Put the same files on every machine." in json.loads(other["made"])["refusal"]


def test_a_worker_carries_the_other_columns_along(tmp_path, model):
    given: list[Row] = [
        (text, {"id": place, "day": datetime.date(2020, 1, place + 1)}) for place, text in enumerate(TEXTS)
    ]
    columns = find_columns(others for _, others in given)
    begun = job(tmp_path)
    begun.begin()
    begun.write_texts(iter(given), columns)
    assert read_rows(begun.shards[1].texts) == given[3:6]
    ShardEncoder(*recipe(model, columns))(asked(1, begun.shards[1].texts, begun.shards[1].vectors))
    table = pq.read_table(begun.shards[1].vectors)
    assert table["id"].to_pylist() == [3, 4, 5] and table["day"].to_pylist()[0] == datetime.date(2020, 1, 4)
    assert table["text"].to_pylist() == TEXTS[3:6] and table.schema.field("id").type == pa.int64()


def test_a_folder_is_named_so_that_workers_find_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()

    def named(name: str) -> str:
        return _metadata({"twinpass": "1", "model": {"name": name, "fingerprint": "f"}, "data": DATA})["model"]

    assert named("mine") == str(tmp_path / "mine")
    assert named("minilm") == "minilm"


DATA = [{"source": "x.txt", "fingerprint": "0"}]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"workers": 2}, ConfigError, "workers and address need --ray"),
        ({"address": "auto"}, ConfigError, "workers and address need --ray"),
        ({"ray": True}, OutputError, "with ray the output is a folder whose name ends in .parquet"),
        ({"shard_rows": 0}, ConfigError, "shard_rows is 0; expected at least 1"),
    ],
)
def test_options_that_do_not_fit(sentences, tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        encode_file(sentences, tmp_path / "v.npy", **options)


def test_without_ray_it_says_what_to_install(model, sentences, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"pip install 'twinpass\[ray\]'"):
        encode_file(sentences, tmp_path / "v.parquet", model=model, ray=True)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_damaged_shard_is_encoded_again(model, sentences, tmp_path):
    told = {"model": model, "shard_rows": 1, "device": "cpu"}
    first = encode_file(sentences, tmp_path / "v.parquet", **told)
    content = first.files[1].read_bytes()
    first.files[1].write_bytes(content[:500] + bytes([content[500] ^ 1]) + content[501:])
    with pytest.warns(UserWarning, match=r"v-00001-of-00003\.parquet: damaged, so encoded again"):
        again = encode_file(sentences, tmp_path / "v.parquet", **told)
    assert again.resumed == 2 and first.files[1].read_bytes() == content


@pytest.mark.parametrize("content", ["{", "\udcff", '{"texts": '])
def test_a_damaged_description_of_a_job_is_refused(tmp_path, content):
    job(tmp_path).begin()
    (tmp_path / "v.parquet.unfinished" / "_job.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(OutputError, match=r"_job\.json is damaged"):
        job(tmp_path).begin()


def test_a_damaged_note_is_not_believed(tmp_path):
    begun = job(tmp_path)
    begun.begin()
    begun.write_texts(rows(TEXTS), Columns())
    finish(begun, 0)
    notes = begun.folder / "_finished.jsonl"
    notes.write_text(notes.read_text().replace('"rows": 3', '"rows": 7'))
    assert job(tmp_path).finished() == []
