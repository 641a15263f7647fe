"""encode_file as a library call: resumed shards, other columns, models and what comes back."""

from __future__ import annotations

import datetime
import json
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors import safe_open

from twinpass.bulk import encode_file as module
from twinpass.bulk.encode_file import encode_file
from twinpass.bulk.shards import Job
from twinpass.bulk.writers import WRITERS, Content, encode_rows, find_columns
from twinpass.encoder.encoder import Encoder, TruncationWarning
from twinpass.errors import ConfigError, InputError, OutputError
from twinpass.search.index import Index

TEXTS = [f"the cat sat on {'a mat and ' * (n % 5)}the dog number {n}" for n in range(20)]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "texts.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name[0] != "_"}


@pytest.mark.parametrize("suffix", [".npy", ".parquet", ".safetensors"])
@pytest.mark.parametrize("stop", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_stopped_and_called_again_it_does_only_the_rest(model, lines, tmp_path, monkeypatch, suffix, stop):
    whole, out = tmp_path / f"whole{suffix}", tmp_path / f"v{suffix}"
    encode_file(lines, whole, model=model, shard_rows=6)
    out.mkdir()
    (out / f"v-00000-of-00001{suffix}").write_text("from before")
    with monkeypatch.context() as patch:
        patch.setattr(Job, "note", stopping(Job.note, after=2, stop=stop))
        with pytest.raises((OutputError, KeyboardInterrupt)):
            encode_file(lines, out, model=model, shard_rows=6)
    assert [path.read_text() for path in out.iterdir()] == ["from before"]
    unfinished = tmp_path / f"v{suffix}.unfinished"
    kept = {path: path.stat().st_mtime_ns for path in unfinished.glob(f"*{suffix}")}
    found = encode_file(lines, out, model=model, shard_rows=6)
    assert (found.resumed, found.shards, found.texts, found.distinct) == (2, 4, 20, 20)
    assert sum((out / path.name).stat().st_mtime_ns == written for path, written in kept.items()) == 2
    assert not unfinished.exists()
    named = {name.replace("v-", "whole-"): content for name, content in contents(out).items()}
    assert named == contents(whole)  # bit-for-bit as if nothing had happened
    again = encode_file(lines, out, model=model, shard_rows=6)
    assert (again.resumed, again.distinct, again.texts_per_second) == (4, 20, 0.0)


def test_the_unfinished_work_of_another_job_is_left_alone(model, lines, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Job, "note", stopping(Job.note, after=1, stop=KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            encode_file(lines, tmp_path / "v.npy", model=model, shard_rows=6)
    before = contents(tmp_path / "v.npy.unfinished")
    for options in ({"shard_rows": 7}, {"shard_rows": 6, "normalize": True}):
        with pytest.raises(OutputError, match="holds the unfinished work of another job: "):
            encode_file(lines, tmp_path / "v.npy", model=model, **options)
    assert before == contents(tmp_path / "v.npy.unfinished") and len(before) == 2


def stopping(note, *, after: int, stop: BaseException):
    """A Job.note that fails when it is called once more."""
    calls: list[int] = []

    def noted(self, made):
        calls.append(1)
        if len(calls) > after:
            raise OutputError(str(stop)) if isinstance(stop, OSError) else stop
        note(self, made)

    return noted


def test_an_input_that_changed_leaves_nothing_to_resume(model, lines, tmp_path, monkeypatch):
    real = module.encode_rows

    def change_and_encode(*arguments, **options):
        lines.write_text("\n".join(TEXTS[:9]) + "\n", encoding="utf-8")
        return real(*arguments, **options)

    monkeypatch.setattr(module, "encode_rows", change_and_encode)
    with pytest.raises(InputError, match="20 texts at first, then 9"):
        encode_file(lines, tmp_path / "v.npy", model=model, shard_rows=6)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_other_columns_come_along_in_parquet_and_only_there(model, tmp_path):
    source = tmp_path / "tickets.csv"
    source.write_text("id,text,category\n7,a dog,pets\n8,the cat,\n9,the mat,home\n")
    for name in ("v.parquet", "v.npy", "v.safetensors"):
        found = encode_file(source, tmp_path / name, model=model)
        assert found.columns == (("id", "category") if name == "v.parquet" else ())
    table = pq.read_table(tmp_path / "v.parquet")
    assert table.column_names == ["text", "vector", "id", "category"]
    assert table["text"].to_pylist() == ["a dog", "the cat", "the mat"]
    assert table["id"].to_pylist() == ["7", "8", "9"] and table["category"].to_pylist() == ["pets", "", "home"]
    shards = encode_file(source, tmp_path / "s.parquet", model=model, shard_rows=2)
    assert pq.read_table(tmp_path / "s.parquet").equals(table)
    assert shards.files[1].name == "s-00001-of-00002.parquet"


def test_types_survive_where_parquet_has_them(model, tmp_path):
    day, moment = datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 12, 30)
    columns = {"n": [1, 2], "x": [0.5, None], "yes": [True, False], "day": [day, None], "at": [moment, moment]}
    pq.write_table(pa.table({"sentence": ["a dog", "the cat"], **columns}), tmp_path / "in.parquet")
    encode_file(tmp_path / "in.parquet", tmp_path / "v.parquet", model=model)
    table = pq.read_table(tmp_path / "v.parquet")
    assert {name: table[name].to_pylist() for name in columns} == columns
    assert [str(table.schema.field(name).type) for name in ("n", "x", "yes")] == ["int64", "double", "bool"]


def test_columns_that_only_some_rows_have_and_values_of_every_kind(model, tmp_path):
    documents = [
        {"text": "a dog", "id": 1, "mixed": 1, "list": [1, "ü"], "big": 2**70, "number": 1},
        {"text": "the cat", "mixed": "two", "number": 0.5, "late": "x", "list": {"a": None}, "big": 1},
        {"text": "the mat", "mixed": True, "id": None},
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(each) + "\n" for each in documents))
    encode_file(source, tmp_path / "v.parquet", model=model)
    table = pq.read_table(tmp_path / "v.parquet").drop(["vector"])
    assert table.to_pydict() == {
        "text": ["a dog", "the cat", "the mat"],
        "id": [1, None, None],
        "mixed": ["1", "two", "true"],
        "list": ['[1, "ü"]', '{"a": null}', None],
        "big": [str(2**70), "1", None],
        "number": [1.0, 0.5, None],
        "late": [None, "x", None],
    }


def test_columns_named_as_ours_are_renamed_and_said(model, tmp_path):
    source, said = tmp_path / "in.csv", []
    source.write_text("title,text,vector,source_text\na dog,long,1,taken\nthe cat,longer,2,taken\n")
    found = encode_file(source, tmp_path / "v.parquet", model=model, columns=["title"], log=said.append)
    assert found.columns == ("source_source_text", "source_vector", "source_text")
    table = pq.read_table(tmp_path / "v.parquet")
    assert table["text"].to_pylist() == ["a dog", "the cat"]
    assert table["source_source_text"].to_pylist() == ["long", "longer"] and table["source_vector"][0].as_py() == "1"
    assert "the column 'vector' of the input is called 'source_vector' in the output" in " ".join(said)


def test_input_columns_named_like_the_numbers_of_a_csv_file_are_renamed(tmp_path: Path, model: str):
    source, said = tmp_path / "in.csv", list[str]()
    source.write_text("title,v0,source_v0,v007\na dog,seven,kept,bond\n")
    output = tmp_path / "out.csv"
    found = encode_file(source, output, model=model, columns="title", device="cpu", log=said.append)
    names = output.read_text().splitlines()[0].split(",")
    assert names[:5] == ["text", "source_source_v0", "source_v0", "v007", "v0"] and len({*names}) == len(names)
    assert found.columns == ("source_source_v0", "source_v0", "v007")
    place = [text.startswith("loading") for text in said].index(True)
    assert any("'v0' of the input is called 'source_source_v0'" in text for text in said[:place])
    found = encode_file(source, tmp_path / "out.jsonl", model=model, columns="title", device="cpu")
    assert found.columns == ("v0", "source_v0", "v007")


def test_a_row_of_two_texts_gives_both_its_other_columns(model, tmp_path):
    source = tmp_path / "pairs.csv"
    source.write_text("sent0,sent1,id\na dog,the cat,7\nthe mat,a cat,8\n")
    encode_file(source, tmp_path / "v.parquet", model=model)
    table = pq.read_table(tmp_path / "v.parquet").drop(["vector"])
    assert table.to_pydict() == {"text": ["a dog", "the cat", "the mat", "a cat"], "id": ["7", "7", "8", "8"]}


def test_columns_under_what_may_be_names_are_not_encoded_all(model, tmp_path):
    source = tmp_path / "rows.csv"
    source.write_text("user,tag\nbob,red\nann,blue\n")
    with pytest.raises(InputError, match=r"(?s)several columns .*If the first row \(user, tag\) names the columns"):
        encode_file(source, tmp_path / "out.npy", model=model)
    with pytest.raises(InputError, match=r"(?s)several columns .*If the first row \(user, tag\) names the columns"):
        Index.build(tmp_path / "index", source, encoder=model)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_other_columns_are_part_of_what_a_job_is(model, lines, tmp_path, monkeypatch):
    source, out = tmp_path / "in.csv", tmp_path / "v.parquet"
    source.write_text("text,id\na dog,1\nthe cat,2\n")
    encode_file(source, out, model=model, shard_rows=1)
    source.write_text("text,id\na dog,1\nthe cat,3\n")
    found = encode_file(source, out, model=model, shard_rows=1)  # the same texts, another id
    assert found.resumed == 0 and pq.read_table(out)["id"].to_pylist() == ["1", "3"]


def test_a_fingerprint_of_no_columns_is_none():
    assert find_columns([{}, {}]).fingerprint is None
    assert find_columns([{"a": 1}]).fingerprint != find_columns([{"a": 2}]).fingerprint


def test_the_result_prints_and_converts(model, sentences, tmp_path):
    found = encode_file(sentences, tmp_path / "v.npy", model=model, normalize=True)
    assert (found.texts, found.distinct, found.truncated, found.bad_rows, found.dimensions) == (3, 2, 0, 0, 32)
    assert "distinct" in repr(found) and "v.npy" in repr(found) and "<table>" in found._repr_html_()
    assert found.records()[0]["texts"] == 3
    document = found.to_dict()
    assert document["files"] == [str(tmp_path / "v.npy")] and document["options"]["normalize"] is True
    assert json.loads(json.dumps(document)) == document
    assert found.summary().startswith(f"3 texts (2 distinct, 0 truncated) -> {tmp_path / 'v.npy'}: 32 dimensions, ")


def test_the_model_may_be_an_encoder(model, sentences, tmp_path):
    encoder = Encoder.load(model, device="cpu", max_tokens=5)
    with pytest.warns(TruncationWarning):
        found = encode_file(sentences, tmp_path / "v.npy", model=encoder)
    assert found.truncated == 2 and found.provenance["options"]["max_tokens"] == 5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        np.testing.assert_array_equal(np.load(tmp_path / "v.npy")[1], encoder.encode(["a dog"])[0])
    with pytest.raises(ConfigError, match="pooler is an option of loading"):
        encode_file(sentences, tmp_path / "v.npy", model=encoder, pooler="cls")


def test_truncation_is_reported_once_for_all_shards(model, sentences, tmp_path):
    with pytest.warns(TruncationWarning) as caught:
        found = encode_file(sentences, tmp_path / "v.npy", model=model, shard_rows=1, max_tokens=5)
    assert found.truncated == 2
    ours = [str(each.message) for each in caught if each.category is TruncationWarning]
    assert ["2 texts are longer than 5 tokens" in said for said in ours] == [True]


@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_headers_are_those_of_the_format_however_many_rows_come(tmp_path, rows):
    content = Content(False, {"model": "x" * 500, "data": "ü"})
    vectors = np.arange(rows * 5, dtype=np.float32).reshape(rows, 5)
    for suffix in (".npy", ".safetensors"):
        path = tmp_path / f"v{suffix}"
        with WRITERS[suffix](path, vectors.shape, content) as write:
            write([], vectors, [])
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), vectors)
    with safe_open(tmp_path / "v.safetensors", "np") as stored:
        np.testing.assert_array_equal(stored.get_tensor("vectors"), vectors)
        assert stored.metadata() == content.metadata


def test_a_file_that_lacks_rows_is_not_written(model, tmp_path):
    encoder = Encoder.load(model, device="cpu")
    with pytest.raises(RuntimeError, match="expected 3 rows, got 2"):
        encode_rows([("a dog", {}), ("the cat", {})], 3, tmp_path / "v.npy", encoder, Content(False, {}))
    assert [path.name for path in tmp_path.iterdir()] == []


@pytest.mark.filterwarnings("ignore:.*once, and cached")
def test_a_cluster_gets_no_model_that_every_machine_would_quantise(model, exported, lines, tmp_path, monkeypatch):
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "find_ray", lambda: None)
    on_ray = {"ray": True, "address": "auto", "shard_rows": 6}
    started: list[dict[str, object]] = []
    monkeypatch.setattr(module, "encode_shards", lambda job, loading, content, **_: started.append(loading) or [])
    for made in (exported, Encoder.load(exported)):
        encode_file(lines, tmp_path / "v.parquet", model=made, **on_ray)
    assert [loading["device"] for loading in started] == ["cpu", "cpu"]  # no worker waits for a GPU
    straight = Encoder.load(model, runtime="openvino")
    straight.precision = "int8"
    with pytest.raises(ConfigError, match=r"every machine would quantise .* twinpass quantize .* -o FOLDER"):
        encode_file(lines, tmp_path / "v.parquet", model=straight, **on_ray)
