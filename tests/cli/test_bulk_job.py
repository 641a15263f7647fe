"""A bulk encoding on disk: cut into shards, taken up again, never mixed with another. No Ray is needed here."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from twinpass.cli.encode import _metadata
from twinpass.cli.job import Job, read_texts
from twinpass.cli.ray_pool import Recipe, ShardEncoder, found_anywhere
from twinpass.encoder.encoder import Encoder
from twinpass.errors import OutputError
from twinpass.provenance import provenance

TEXTS = [f"word {n}" for n in range(7)]


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
    assert begun.write_texts(TEXTS) == 7
    assert [read_texts(shard.texts) for shard in begun.shards] == [TEXTS[:3], TEXTS[3:6], TEXTS[6:]]
    assert [shard.vectors.name for shard in begun.shards] == [f"v-0000{n}-of-00003.parquet" for n in range(3)]


def test_what_was_finished_is_not_done_again(tmp_path):
    begun = job(tmp_path)
    begun.begin()
    begun.write_texts(TEXTS)
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
    begun.write_texts(TEXTS)
    kept = begun.shards[0].texts.stat().st_mtime_ns
    begun.shards[1].texts.unlink()
    begun.write_texts(TEXTS)
    assert begun.shards[0].texts.stat().st_mtime_ns == kept and read_texts(begun.shards[1].texts) == TEXTS[3:6]


def test_a_note_cut_short_costs_one_shard_and_no_more(tmp_path):
    begun = job(tmp_path)
    begun.begin()
    begun.write_texts(TEXTS)
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
    begun.write_texts(TEXTS)
    finish(begun, 0)
    begun.shards[0].vectors.unlink()
    assert [shard.number for shard in job(tmp_path).left()] == [0, 1, 2]


def test_another_job_is_refused_and_left_alone(tmp_path):
    begun = job(tmp_path)
    begun.begin()
    begun.write_texts(TEXTS)
    with pytest.raises(OutputError, match=r"another job: model 'm' \(now 'other'\)"):
        job(tmp_path, model="other").begin()
    assert json.loads((begun.folder / "_job.json").read_text())["model"] == "m"
    assert begun.shards[0].texts.exists()


@pytest.mark.parametrize("texts", [TEXTS[:5], [*TEXTS, "more"]])
def test_an_input_that_changed_is_counted(tmp_path, texts):
    begun = job(tmp_path)
    begun.begin()
    assert begun.write_texts(texts) == len(texts)
    assert all(len(read_texts(s.texts)) == s.rows for s in begun.shards if s.texts.exists())


def recipe(model: str) -> Recipe:
    facts = provenance(model=Encoder.load(model, device="cpu"), data=[("x.txt", "0" * 64)])
    return Recipe(model, {"device": "cpu", "precision": "fp32", "runtime": "torch"}, True, _metadata(facts))


def asked(number: int, texts: Path, vectors: Path) -> dict[str, np.ndarray]:
    """A batch as Ray Data hands it to an actor."""
    return {"shard": np.array([number]), "texts": np.array([str(texts)]), "vectors": np.array([str(vectors)])}


def test_a_worker_makes_the_librarys_vectors(tmp_path, model):
    begun = job(tmp_path)
    begun.begin()
    begun.write_texts(["a dog", "a dog", "the cat", *TEXTS[3:]])
    worker = ShardEncoder(recipe(model))
    shard = begun.shards[0]
    made = worker(asked(0, shard.texts, shard.vectors))
    assert list(map(json.loads, made["made"])) == [{"shard": 0, "rows": 3, "distinct": 2, "truncated": 0}]
    table = pq.read_table(shard.vectors)
    wanted = Encoder.load(model, device="cpu").encode(["a dog", "a dog", "the cat"], normalize=True)
    np.testing.assert_allclose(np.stack(table["vector"].to_numpy()), wanted, atol=1e-6)
    assert table.schema.metadata[b"data_fingerprint"] == b"0" * 64


def test_a_worker_tells_what_the_user_can_mend(tmp_path, model):
    told = recipe(model)
    pq.write_table(pa.table({"text": ["a dog"]}), tmp_path / "t.parquet")
    missing = ShardEncoder(told)(asked(0, tmp_path / "t.parquet", tmp_path / "no" / "v.parquet"))
    assert "there is no folder" in json.loads(missing["made"][0])["refusal"]
    told.metadata["model_fingerprint"] = "f" * 64
    other = ShardEncoder(told)(asked(0, tmp_path / "t.parquet", tmp_path / "v.parquet"))
    assert "not ffffffffffff. Put the same files on every machine." in json.loads(other["made"][0])["refusal"]


def test_a_folder_is_named_so_that_workers_find_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    assert found_anywhere("mine") == str(tmp_path / "mine")
    assert found_anywhere("minilm") == "minilm"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine", "rey"], "no engine 'rey'; known: local, ray"),
        (["--workers", "2"], "--workers and --address belong to --engine ray"),
        (["--engine", "ray"], "--engine ray writes a folder whose name ends in .parquet"),
    ],
)
def test_options_that_do_not_fit(run, sentences, tmp_path, arguments, message):
    ran = run("encode", sentences, "-o", tmp_path / "v.npy", *arguments)
    assert ran.code == 2 and message in ran.err


def test_without_ray_it_says_what_to_install(run, model, sentences, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    ran = run("encode", model, sentences, "-o", tmp_path / "v.parquet", "--engine", "ray")
    assert ran.code == 2 and "pip install 'twinpass[ray]'" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
