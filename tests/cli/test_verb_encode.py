"""`twinpass encode`: the vectors of the library, in files that other programs read."""

from __future__ import annotations

import contextlib
import csv
import datetime
import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors import safe_open
from tests.bulk.dies import DIES

from twinpass.bulk import writers
from twinpass.encoder.encoder import Encoder
from twinpass.text.corpus import Corpus

HEADERS = ["--header", "--no-header"]
TEXTS = ["the cat sat on the mat", "a dog", "the cat sat on the mat"]


def read(path: Path) -> np.ndarray:
    """Read vectors as a user of the format would."""
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".parquet":
        return np.stack(pq.read_table(path)["vector"].to_numpy())
    with safe_open(path, "np") as stored:
        return stored.get_tensor("vectors")


@pytest.mark.parametrize("suffix", [".npy", ".parquet", ".safetensors"])
def test_files_hold_the_librarys_vectors(run, model, sentences, tmp_path, suffix: str):
    out = tmp_path / f"vectors{suffix}"
    ran = run("encode", sentences, "-m", model, "-o", out)
    assert ran.code == 0, ran.err
    assert "3 texts (2 distinct, 0 truncated)" in ran.err and ran.out == ""
    found = read(out)
    assert found.dtype == np.float32 and found.shape == (3, 32)
    np.testing.assert_allclose(found, Encoder.load(model, device="cpu").encode(TEXTS), atol=1e-6)


def test_json_tells_what_made_the_vectors(run, model, sentences, tmp_path):
    out = tmp_path / "vectors.npy"
    document = json.loads(run("encode", sentences, "-m", model, "-o", out, "--json", "--normalize").out)
    assert document["model"] == {"name": model, "fingerprint": Encoder.load(model).fingerprint}
    assert document["data"][0]["source"] == str(sentences) and len(document["data"][0]["fingerprint"]) == 64
    assert document["options"]["normalize"] is True and document["options"]["device"] == "auto"
    assert document["versions"]["torch"] and document["versions"]["transformers"] and document["twinpass"]
    assert (document["texts"], document["distinct"], document["dimensions"]) == (3, 2, 32)
    assert document["files"] == [str(out)]
    np.testing.assert_allclose(np.linalg.norm(np.load(out), axis=1), 1, atol=1e-6)


def test_parquet_and_safetensors_carry_texts_and_provenance(run, model, sentences, tmp_path):
    for name in ("v.parquet", "v.safetensors"):
        run("encode", sentences, "-m", model, "-o", tmp_path / name)
    table = pq.read_table(tmp_path / "v.parquet")
    assert table["text"].to_pylist() == TEXTS
    assert str(table.schema.field("vector").type).startswith("fixed_size_list")
    with safe_open(tmp_path / "v.safetensors", "np") as stored:
        metadata = stored.metadata()
    of_table = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    assert metadata == {key: value for key, value in of_table.items() if key != "checksum"}
    assert metadata["model"] == model and len(metadata["model_fingerprint"]) == 64


def test_stdin_and_columns_and_bad_rows(run, model, tmp_path):
    out = tmp_path / "v.npy"
    assert run("encode", "-", "-m", model, "-o", out, stdin=b"a dog\nthe cat\n").code == 0
    assert np.load(out).shape == (2, 32)
    table = tmp_path / "pairs.csv"
    table.write_text("left,right,note\na dog,the cat,x\nonly one\nthe mat,a cat,y\n")
    ran = run("encode", table, "-m", model, "-o", out, "--columns", "right,left", "--skip-bad-rows")
    assert "1 bad row skipped" in ran.err
    expected = Encoder.load(model).encode(["the cat", "a dog", "a cat", "the mat"])
    np.testing.assert_allclose(np.load(out), expected, atol=1e-6)
    table.write_text("cat,dog\none,two\n")
    counts = [run("encode", table, "-m", model, "-o", out, header).code or len(np.load(out)) for header in HEADERS]
    assert counts == [2, 4]


def test_truncation_is_counted_and_reported_once(run, model, tmp_path):
    source, out = tmp_path / "long.txt", tmp_path / "v.npy"
    source.write_text("the cat sat on the mat\na dog\n")
    ran = run("encode", source, "-m", model, "-o", out, "--max-tokens", 5, "--json")
    assert json.loads(ran.out)["truncated"] == 1
    assert ran.err.count("twinpass: warning: 1 of 2") == 1


@pytest.mark.parametrize("suffix", [".npy", ".parquet", ".safetensors"])
def test_shards_are_a_whole_folder(run, model, sentences, tmp_path, suffix: str):
    out = tmp_path / f"v{suffix}"
    ran = run("encode", sentences, "-m", model, "-o", out, "--shard-rows", 2, "--json")
    names = [f"v-00000-of-00002{suffix}", f"v-00001-of-00002{suffix}"]
    assert sorted(path.name for path in out.glob("*.*") if path.name[0] != "_") == names
    assert json.loads(ran.out)["files"] == [str(out / name) for name in names]
    found = np.concatenate([read(out / name) for name in names])
    np.testing.assert_allclose(found, Encoder.load(model).encode(TEXTS), atol=1e-6)
    assert run("encode", sentences, "-m", model, "-o", out, "--shard-rows", 3).code == 0  # replaced, not mixed
    assert [path.name for path in out.iterdir() if path.name[0] != "_"] == [f"v-00000-of-00001{suffix}"]
    (out / "notes.txt").write_text("mine")
    ran = run("encode", sentences, "-m", model, "-o", out, "--shard-rows", 3)
    assert ran.code == 2 and "notes.txt" in ran.err


def test_blocks_smaller_than_shards_and_windows_give_the_same_file(run, model, tmp_path, monkeypatch):
    source, whole, cut = tmp_path / "s.txt", tmp_path / "whole.npy", tmp_path / "cut.npy"
    source.write_text("".join(f"word {'a ' * (n % 7)}\n" for n in range(50)))
    run("encode", source, "-m", model, "-o", whole)
    run("encode", source, "-m", model, "-o", cut, "--shard-rows", 11)
    parts = [np.load(path) for path in sorted(cut.glob("*.npy"))]
    assert [len(part) for part in parts] == [11, 11, 11, 11, 6]
    np.testing.assert_allclose(np.concatenate(parts), np.load(whole), atol=1e-5)


def test_tickets_of_several_columns_are_asked_about(run, model, tmp_path):
    tickets = tmp_path / "tickets.csv"
    tickets.write_text(
        "ticket_id,subject,body,category\n1001,the cat,the cat sat on the mat,pets\n1002,a dog,a dog ran home,pets\n"
    )
    for verb in (("encode",), ("index", "build"), ("train",), ("fit", "centring")):
        ran = run(*verb, tickets, "-m", model, "-o", tmp_path / "out.npy")
        assert ran.code == 2 and "category   pets" in ran.err and "--columns subject,body --join ' '" in ran.err, verb
        assert not (tmp_path / "out.npy").exists()
    for verb in (("dedupe",), ("cluster", "-k", 1)):
        assert "several columns that could be the text" in run(*verb, tickets, "-m", model).err
    joining = ("--columns", "subject,body", "--join", ": ", "-m", model)
    assert run("encode", tickets, *joining, "-o", tmp_path / "out.parquet").code == 0
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert rows[0]["text"] == "the cat: the cat sat on the mat"
    assert (rows[1]["ticket_id"], rows[1]["subject"], rows[1]["category"]) == ("1002", "a dog", "pets")
    assert run("index", "build", tickets, *joining, "-o", tmp_path / "index").code == 0
    hits = json.loads(run("search", tmp_path / "index", "a dog: a dog ran home", "--json").out)["results"][0]["hits"]
    assert hits[0]["metadata"]["ticket_id"] == "1002" and hits[0]["text"] == "a dog: a dog ran home"


def test_the_other_columns_are_carried_along(run, model, tmp_path):
    tickets, day = tmp_path / "tickets.parquet", datetime.date(2024, 3, 1)
    rows = [{"id": 7, "text": "a dog", "day": day, "tag": None}, {"id": 8, "text": "the, cat", "day": day, "tag": "x"}]
    pq.write_table(pa.Table.from_pylist(rows), tickets)
    for suffix in (".parquet", ".jsonl", ".csv", ".npy"):
        assert run("encode", tickets, "-m", model, "-o", tmp_path / f"v{suffix}").code == 0, suffix
    vectors = np.load(tmp_path / "v.npy")
    from_parquet = pq.read_table(tmp_path / "v.parquet").to_pylist()
    assert [(row["id"], row["day"], row["tag"]) for row in from_parquet] == [(7, day, None), (8, day, "x")]
    from_json = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    assert [(row["id"], row["text"], row.get("tag")) for row in from_json] == [(7, "a dog", None), (8, "the, cat", "x")]
    assert from_json[0]["day"] == "2024-03-01"
    with (tmp_path / "v.csv").open(newline="") as stream:
        from_csv = list(csv.DictReader(stream))
    assert [(row["id"], row["text"], row["day"], row["tag"]) for row in from_csv] == [
        ("7", "a dog", "2024-03-01", ""), ("8", "the, cat", "2024-03-01", "x")
    ]  # fmt: skip
    for read in (
        [row["vector"] for row in from_json],
        [[row[f"v{at}"] for at in range(vectors.shape[1])] for row in from_csv],
    ):
        np.testing.assert_array_equal(np.array(read, dtype=np.float32), vectors)  # nine digits are all of a float32


def test_encode_stands_in_a_pipe(run, command, model):
    ran = run("encode", "-", "-m", model, "-o", "-", stdin=b"a dog\nthe cat\n")
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert ran.code == 0 and [row["text"] for row in rows] == ["a dog", "the cat"] and "2 texts" in ran.err
    assert len(rows[0]["vector"]) == 32
    assert "choose one" in run("encode", "-", "-m", model, "-o", "-", "--json", stdin=b"a dog\n").err
    assert "need a file name" in run("encode", "-", "-m", model, "-o", "-", "--shard-rows", 1, stdin=b"a dog\n").err


def test_a_pipe_that_is_closed_is_left_quietly(model, tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"a dog and {number}\n" for number in range(9000)))
    work = [sys.executable, "-m", "twinpass", "encode", tmp_path / "in.txt", "-m", model, "-o", "-", "-q"]
    process = subprocess.Popen(work, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline().startswith(b'{"text": "a dog and 0"')
    process.stdout.close()
    with process.stderr as errors:
        assert errors.read() == b""
    assert process.wait() == 1


def test_the_model_comes_by_option(run, model, sentences, tmp_path, monkeypatch):
    out = tmp_path / "v.npy"
    assert json.loads(run("encode", sentences, "-m", model, "-o", out, "--json").out)["model"]["name"] == model
    ran = run("encode", model, sentences, "-o", out)
    assert ran.code == 2 and f"expected one INPUT, got 2: {model!r} {str(sentences)!r}" in ran.err
    assert f"The model is named with -m: twinpass encode {sentences} -m {model}" in ran.err
    asked = []
    monkeypatch.setattr(Encoder, "load", classmethod(lambda cls, name, **options: asked.append(name) or 1 / 0))
    run("encode", sentences, "-o", out)
    assert asked == ["minilm"]


@pytest.mark.parametrize(("content", "now"), [("a\nb\nc\nd\n", "4"), ("a\n", "1")])
@pytest.mark.parametrize("shards", [[], ["--shard-rows", 1]])
def test_input_that_changes_meanwhile_is_refused(run, model, sentences, tmp_path, monkeypatch, content, now, shards):
    load = Encoder.load

    def change_and_load(*arguments, **options):
        sentences.write_text(content)
        return load(*arguments, **options)

    monkeypatch.setattr(Encoder, "load", change_and_load)
    ran = run("encode", sentences, "-m", model, "-o", tmp_path / "v.npy", *shards)
    assert ran.code == 2 and f"3 texts at first, then {now}." in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("suffix", [".npy", ".parquet", ".safetensors"])
@pytest.mark.parametrize("shards", [[], ["--shard-rows", 2]])
@pytest.mark.parametrize("stop", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_failing_midway_leaves_nothing(run, model, sentences, tmp_path, monkeypatch, suffix, shards, stop):
    make = writers.WRITERS[suffix]

    @contextlib.contextmanager
    def failing_at_the_end(*arguments):
        with make(*arguments) as write:
            yield write
            raise stop

    monkeypatch.setitem(writers.WRITERS, suffix, failing_at_the_end)
    ran = run("encode", sentences, "-m", model, "-o", tmp_path / f"v{suffix}", *shards)
    assert ran.code == (130 if isinstance(stop, KeyboardInterrupt) else 2)
    full = "No space left on device" in ran.err and f"cannot write {tmp_path}/v{suffix}" in ran.err
    assert ran.code == 130 or full
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_failing_midway_keeps_what_was_there(run, model, sentences, tmp_path, monkeypatch):
    single, folder = tmp_path / "v.npy", tmp_path / "shards.npy"
    assert run("encode", sentences, "-m", model, "-o", single).code == 0
    assert run("encode", sentences, "-m", model, "-o", folder, "--shard-rows", 2).code == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(writers.WRITERS, ".npy", lambda *arguments: contextlib.nullcontext(fail))
    assert run("encode", sentences, "-m", model, "-o", single).code == 2
    assert run("encode", sentences, "-m", model, "-o", folder, "--shard-rows", 1).code == 2
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "2"], "workers and address need --ray"),
        (["--ray"], "with ray the output is a folder whose name ends in .parquet"),
        (["--ray", "--workers", "0"], "--workers"),
    ],
)
def test_options_of_ray_that_do_not_fit(run, sentences, tmp_path, arguments, message):
    ran = run("encode", sentences, "-o", tmp_path / "v.npy", *arguments)
    assert ran.code == 2 and message in ran.err


def test_killed_while_it_writes_shards_the_same_command_finishes(command, model, tmp_path):
    source, whole, out = tmp_path / "in.txt", tmp_path / "whole.npy", tmp_path / "v.npy"
    source.write_text("".join(f"word {'a ' * (n % 7)}{n}\n" for n in range(50)))
    told = ["encode", str(source), "-m", model, "--shard-rows", "11", "-o"]
    done = subprocess.run([sys.executable, "-c", DIES, *told, str(out)], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not out.exists() and len(list((tmp_path / "v.npy.unfinished").glob("v-*.npy"))) == 3
    ran = command(*told, out, "--json")
    assert ran.code == 0, ran.err
    assert (json.loads(ran.out)["resumed"], json.loads(ran.out)["shards"]) == (3, 5)
    assert command(*told, whole).code == 0
    pieces = [[path.read_bytes() for path in sorted(folder.glob("*.npy"))] for folder in (out, whole)]
    assert pieces[0] == pieces[1]


def test_progress_bar_on_a_terminal(run, model, sentences, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("twinpass.cli.console.Console.progress", drawing(drawn))
    run("encode", sentences, "-m", model, "-o", tmp_path / "v.npy")
    assert drawn == [("encoding", 3), 2, 1]  # a batch of the two distinct texts, then the repeat


def drawing(drawn: list):
    """A progress that notes what it is told."""

    @contextlib.contextmanager
    def progress(self, what, *, total):
        drawn.append((what, total))
        yield drawn.append

    return progress


def test_the_input_is_read_once_before_and_once_for_the_work(run, model, sentences, tmp_path, monkeypatch):
    passes = []
    real = Corpus._pass
    monkeypatch.setattr(Corpus, "_pass", lambda self, **told: passes.append(1) or real(self, **told))
    assert run("encode", sentences, "-m", model, "-o", tmp_path / "v.npy").code == 0
    assert len(passes) == 3  # the first only looks whether there is a row at all
    assert run("encode", sentences, "-m", model, "-o", tmp_path / "v.parquet").code == 0
    assert len(passes) == 3 + 4  # one more finds the other columns


def test_a_line_that_is_too_long_is_refused_or_skipped(run, model, tmp_path):
    lines = tmp_path / "in.txt"
    lines.write_text(f"a dog\n{'the cat ' * 20}\na mat\n")
    short = ("encode", lines, "-m", model, "-o", tmp_path / "v.npy", "--max-line-bytes", 50)
    refused = run(*short)
    assert refused.code == 2 and "expected at most 50 bytes in a line" in refused.err and "in.txt:2)" in refused.err
    assert json.loads(run(*short, "--skip-bad-rows", "--json").out)["bad_rows"] == 1
    assert np.load(tmp_path / "v.npy").shape[0] == 2


def test_no_verb_writes_over_what_it_reads(run, model, tmp_path):
    lines, content = tmp_path / "in.jsonl", '{"text": "a dog"}\n{"text": "the cat"}\n{"text": "a mat"}\n'
    lines.write_text(content)
    assert run("index", "build", lines, "-m", model, "-o", tmp_path / "i").code == 0
    for command in (
        ("dedupe", lines, "-m", model, "-o", lines),
        ("cluster", lines, "-m", model, "-k", 2, "-o", lines),
        ("search", tmp_path / "i", "--queries", lines, "-o", lines),
    ):
        ran = run(*command)
        assert ran.code == 2 and "would replace the input" in ran.err, ran.err
    assert lines.read_text() == content
