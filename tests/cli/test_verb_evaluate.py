"""`twinpass evaluate` and `twinpass compare`, run as a user runs them."""

from __future__ import annotations

import csv
import io
import json
import random

import numpy as np
import pyarrow.parquet as pq
import pytest

from twinpass.evaluation.tasks import TASKS
from twinpass.recipes.smoke_data import WORDS, write_task


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "vectors" / "vectors.sqlite"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("senteval")
    for name in ("STS13", "STS-B", "SICK-R"):
        write_task(TASKS[name], root / "downstream")
    return root


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Word vectors: a model that loads at once."""
    path = tmp_path_factory.mktemp("words") / "words.txt"
    rng = random.Random(0)
    lines = (f"{word} {' '.join(f'{rng.gauss(0, 1):.3f}' for _ in range(8))}" for word in WORDS)
    path.write_text("\n".join(lines) + "\n")
    return path


FAST = ("--resamples", 100)


def test_a_table_with_protocol_and_interval(run, data, words):
    ran = run("evaluate", words, "--tasks", "STS13,STS-B", "--data", data, *FAST)
    assert ran.code == 0
    assert "all, spearman, no regressor" in ran.out and "95 % interval" in ran.out and " to " in ran.out
    assert "right number of rows for STS13, but is not SentEval's copy" in ran.err
    assert "Avg." not in ran.out  # two of seven tasks


def test_json_is_one_document_with_all_that_made_it(run, data, words):
    ran = run("evaluate", words, "-t", "STS13", "--data", data, *FAST, "--json", "--seed", 7, "-q")
    document = json.loads(ran.out)
    assert document["confidence"] == {"level": 0.95, "resamples": 100, "seed": 7}
    assert document["options"]["tasks"] == "STS13" and document["versions"]["torch"]
    assert len(document["model"]["fingerprint"]) == 64
    again = json.loads(run("evaluate", words, "-t", "STS13", "--data", data, *FAST, "--json", "--seed", 7).out)
    assert again["tasks"][0]["scores"] == document["tasks"][0]["scores"]


@pytest.mark.parametrize(("suffix", "sign"), [("csv", "model,task,kind"), ("md", "| ---: |"), ("tex", r"\toprule")])
def test_formats_on_stdout_and_in_files(run, data, words, tmp_path, suffix, sign):
    target, form = tmp_path / f"out.{suffix}", {"md": "markdown", "tex": "latex"}.get(suffix, suffix)
    args = ("evaluate", words, "-t", "STS13", "--data", data, *FAST, "--format", form, "-o", target)
    ran = run(*args, "--beside", "paper", "--cells", "--subsets")
    assert ran.code == 0 and sign in ran.out
    assert target.read_text().rstrip("\n") == ran.out.rstrip("\n")
    if form == "csv":
        rows = list(csv.DictReader(io.StringIO(ran.out)))
        assert {"FNWN", "headlines", "OnWN", "all", "mean", "wmean"} == {row["over"] for row in rows}
    else:
        assert "SimCSE-BERT-base" in ran.out and "FNWN" in ran.out


def test_several_models_side_by_side_in_every_output(run, data, words, model, tmp_path):
    own = tmp_path / "own.csv"
    own.write_text("sentence1,sentence2,score\na b,c d,1\nc e,f g,2\nh i,j k,3\n")
    outputs = [tmp_path / f"r{suffix}" for suffix in (".tex", ".md", ".csv", ".parquet", ".jsonl", ".json")]
    named = [part for output in outputs for part in ("-o", output)]
    ran = run("evaluate", words, model, "-t", f"STS13,scored:{own}", "--data", data, *FAST, *named)
    assert ran.code == 0, ran.err
    assert ran.out.count("STS, correlation x 100") == 1 and ran.out.count("scored:") == 1
    assert str(words) in ran.out and model in ran.out
    with outputs[2].open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["model"] for row in rows} == {str(words), model}
    parquet = pq.read_table(outputs[3]).to_pylist()
    assert [(row["model"], row["task"]) for row in parquet] == [(row["model"], row["task"]) for row in rows]
    assert [json.loads(line)["metric"] for line in outputs[4].read_text().splitlines()] == [r["metric"] for r in rows]
    assert [each["model"]["name"] for each in json.loads(outputs[5].read_text())["models"]] == [str(words), model]
    assert outputs[0].read_text().count(r"\toprule") == 2 and outputs[1].read_text().count("| --- |") == 2
    alone = json.loads(run("evaluate", words, "-t", "STS13", "--data", data, *FAST, "--json").out)
    both = json.loads(run("evaluate", words, model, "-t", "STS13", "--data", data, *FAST, "--json").out)
    assert both["models"][0]["tasks"][0]["scores"] == alone["tasks"][0]["scores"]
    ran = run("evaluate", words, "-t", "STS13", "--data", data, "-o", tmp_path / "r.md", "-o", tmp_path / "r.xlsx")
    assert ran.code == 2 and ".parquet" in ran.err and "loading" not in ran.err


def test_no_intervals_of_any_kind(run, data, words, tmp_path):
    files = {kind: tmp_path / f"{kind}.csv" for kind in ("scored", "labelled", "retrieval")}
    for file in files.values():
        file.write_text("sentence1,sentence2,score\na b,c d,1\nc e,f g,0\nh i,j k,1\n")
    tasks = ",".join(["STS13", *(f"{kind}:{file}" for kind, file in files.items())])
    ran = run("evaluate", words, "-t", tasks, "--data", data, "--resamples", 0, "--json")
    assert ran.code == 0, ran.err
    assert all(score["low"] is None for task in json.loads(ran.out)["tasks"] for score in task["scores"])


def test_vectors_are_kept_and_no_cache_keeps_none(run, data, words, cache):
    run("evaluate", words, "-t", "SICK-R", "--data", data, *FAST, "--no-cache")
    assert not cache.exists()
    run("evaluate", words, "-t", "SICK-R", "--data", data, *FAST)
    assert cache.stat().st_size > 100_000


def test_a_tiny_encoder_and_the_dev_split(run, data, model):
    ran = run("evaluate", model, "-t", "STS-B", "--data", data, "--split", "dev", *FAST, "--json", "--device", "cpu")
    document = json.loads(ran.out)
    assert document["tasks"][0]["split"] == "dev" and document["tasks"][0]["scores"][0]["n"] == 1500


def test_own_files_with_columns_chosen(run, words, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("id,left,right,gold\n1,the cat,a cat,4\n2,the dog,red street,1\n3,old man,young man,3\n")
    ran = run("evaluate", words, "-t", f"scored:{path}", "--columns", "left,right", "--score", "gold", *FAST, "--json")
    assert json.loads(ran.out)["tasks"][0]["scores"][0]["n"] == 3


def test_texts_for_another_program_and_their_vectors_back(run, data, tmp_path):
    texts = tmp_path / "v.txt"
    ran = run("evaluate", "-t", "STS13", "--data", data, "--write-texts", texts)
    lines = texts.read_text().splitlines()
    assert ran.code == 0 and len(lines) == len(set(lines)) > 1000
    np.save(tmp_path / "v.npy", np.random.default_rng(0).normal(size=(len(lines), 4)).astype(np.float32))
    ran = run("evaluate", tmp_path / "v.npy", "-t", "STS13", "--data", data, *FAST, "--json")
    assert ran.code == 0 and abs(json.loads(ran.out)["tasks"][0]["scores"][0]["value"]) < 15


def test_the_list_of_tasks(run):
    assert "CC BY-NC-SA 3.0" in run("evaluate", "--list").out
    assert len(json.loads(run("evaluate", "--list", "--json").out)["tasks"]) == 14


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tasks", "STS99"), "no task named 'STS99'. Did you mean"),
        (("--tasks", "sts"), "needs data"),
        (("--tasks", "sts", "--data", "/nowhere"), "no folder /nowhere"),
        (("--format", "pdf"), "no format named 'pdf'"),
        (("--beside", "mine"), "--beside expects 'paper'"),
        (("-o", "x.docx"), "cannot write x.docx"),
        (("--tasks", "scored:missing.tsv"), "missing.tsv"),
    ],
)
def test_mistakes_exit_2_with_one_message(run, words, arguments, message):
    ran = run("evaluate", words, *arguments)
    assert ran.code == 2 and message in ran.err and ran.out == "" and "Traceback" not in ran.err


def test_an_unknown_protocol_and_split_are_explained(run, words, data, tmp_path):
    write_task(TASKS["MRPC"], tmp_path)
    ran = run("evaluate", words, "-t", "MRPC", "--data", tmp_path, "--protocol", "fats")
    assert ran.code == 2 and "Did you mean 'fast'" in ran.err


def test_compare_files_and_models(run, data, words, tmp_path):
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    noisy = tmp_path / "noisy.txt"
    rng = random.Random(1)
    noisy.write_text("\n".join(f"{w} {rng.gauss(0, 1):.3f} {rng.gauss(0, 1):.3f}" for w in WORDS))
    for model, target in ((words, one), (noisy, two)):
        run("evaluate", model, "-t", "STS13,SICK-R", "--data", data, *FAST, "-o", target)
    document = json.loads(run("compare", one, two, "--json", *FAST).out)
    assert [entry["task"] for entry in document["differences"]] == ["STS13", "SICK-R"]
    assert document["differences"][1]["verdict"].endswith("is better")
    mixed = run("compare", words, one, "-t", "STS13", "--data", data, *FAST)
    assert "no difference shown" in mixed.out and "+0.00" in mixed.out


def test_compare_writes_rows(run, data, words, model, tmp_path):
    for suffix in (".csv", ".parquet", ".jsonl"):
        ran = run("compare", words, model, "-t", "STS13", "--data", data, *FAST, "-o", tmp_path / f"c{suffix}")
        assert ran.code == 0, ran.err
    (row,) = pq.read_table(tmp_path / "c.parquet").to_pylist()
    assert (row["first_model"], row["second_model"], row["task"]) == (str(words), model, "STS13")
    assert json.loads((tmp_path / "c.jsonl").read_text()) == row
    assert (tmp_path / "c.csv").read_text().splitlines()[0] == ",".join(row)
    ran = run("compare", words, model, "-t", "STS13", "--data", data, "-o", tmp_path / "c.xlsx")
    assert ran.code == 2 and ".csv, .parquet or .jsonl" in ran.err and "loading" not in ran.err


def test_compare_explains_its_mistakes(run, tmp_path):
    assert "expected two models" in run("compare", "one").err
    (tmp_path / "x.json").write_text("{}")
    ran = run("compare", tmp_path / "x.json", tmp_path / "x.json")
    assert ran.code == 2 and "is not a result file" in ran.err
