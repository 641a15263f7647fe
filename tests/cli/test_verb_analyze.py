"""`twinpass analyze` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.tiny import WORDS

from twinpass.analysis.analyze import analyze


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.csv"
    rows = [f"{WORDS[i]} {WORDS[i + 1]},{WORDS[i + i % 5]} {WORDS[i + 1]} dog,{5 - i % 6}" for i in range(60)]
    path.write_text("sentence1,sentence2,score\n" + "\n".join(rows) + "\n")
    return path


def test_models_beside_each_other(run, model, pairs, tmp_path) -> None:
    out = tmp_path / "report"
    specs = (model, f"{model}#layers=1,pooler=cls,label=lowest", f"{model}#whiten=8")
    done = run("analyze", *specs, "--data", pairs, "-o", out, "--json", "--query", "a dog", "--device", "cpu")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert json.loads((out / "analysis.json").read_text()) == document
    found = {each["name"]: each for each in document["models"]}
    assert list(found) == [specs[0], "lowest", specs[2]]
    assert found[specs[2]]["dimensions"] == 8 and found["lowest"]["dimensions"] == 32
    assert len({each["fingerprint"] for each in document["models"]}) == 3
    geometry = found[model]["geometry"]
    assert geometry["negatives_term"] >= geometry["jensen_bound"] and geometry["positives"] == 10
    assert document["neighbours"]["comparisons"][0]["query"] == "a dog"
    assert sum(group["pairs"] for group in found["lowest"]["densities"]["groups"]) == 60
    page = (out / "index.html").read_text()
    assert "twinpass analyze" in page and document["sample"]["fingerprint"] in page


def test_text_without_labels(run, model, sentences, tmp_path) -> None:
    done = run("analyze", model, "--data", sentences, "-o", tmp_path / "report", "--device", "cpu")
    assert done.code == 0, done.err
    assert "not measured: alignment" in done.out and "not measured: cosine densities" in done.out
    assert not (tmp_path / "report" / "figures" / "density-light.svg").exists()
    assert (tmp_path / "report" / "figures" / "spectrum-light.svg").exists()


def test_the_numbers_in_a_table(run, model, pairs, tmp_path) -> None:
    for suffix in (".csv", ".parquet", ".jsonl"):
        done = run("analyze", model, "--data", pairs, "-o", tmp_path / f"a{suffix}", "--device", "cpu")
        assert done.code == 0, done.err
    (row,) = pq.read_table(tmp_path / "a.parquet").to_pylist()
    assert row["model"] == model and row["alignment"] > 0
    assert json.loads((tmp_path / "a.jsonl").read_text()) == row
    assert (tmp_path / "a.csv").read_text().startswith("model,dimensions,alignment,uniformity")
    done = run("analyze", model, "--data", pairs, "-o", tmp_path / "a.xlsx")
    assert done.code == 2 and ".csv, .parquet or .jsonl" in done.err


def test_a_sample_says_its_size(run, model, pairs, tmp_path) -> None:
    command = ("analyze", model, "--data", pairs, "-o", tmp_path / "report", "--device", "cpu", "--sample", 40)
    done = run(*command)
    assert done.code == 0, done.err
    assert "a sample of 20 of 60 rows" in done.out and "uniformity" in done.out
    assert run(*command).code == 0, "a report replaces an earlier one"


def test_runs_and_results(run, model, pairs, tmp_path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"{a} {b}\n" for a, b in zip(WORDS, WORDS[3:], strict=False)))
    trained = tmp_path / "trained"
    steps = ("--steps", 4, "--batch-size", 4, "--track-geometry", 2, "--device", "cpu")
    done = run("train", texts, "-m", model, "-o", trained, "--dev", pairs, *steps)
    assert done.code == 0, done.err
    page = (trained / "report.html").read_text()
    assert "figure-trajectory" in page and "twinpass train" in page and "Spearman" in page
    done = run("analyze", "--runs", trained, "-o", tmp_path / "paths", "--json")
    assert done.code == 0, done.err
    assert [point["step"] for point in json.loads(done.out)["runs"][0]["geometry"]] == [0, 2, 4]
    assert (tmp_path / "paths" / "figures" / "trajectory-dark.png").exists()
    assert [point["step"] for point in analyze(trained, runs=True).records()] == [0, 2, 4]
    assert "alignment, first and last" in run("analyze", "--runs", trained, "-o", tmp_path / "paths").out

    results = tmp_path / "results.json"
    score = {"protocol": "all, spearman, no regressor", "value": 61.5}
    results.write_text(json.dumps({"model": {"name": model, "fingerprint": None}, "averages": [score]}))
    arguments = ("--runs", "--data", pairs, "--results", results, "-o", tmp_path / "both", "--device", "cpu")
    done = run("analyze", model, f"{trained}#label=trained", *arguments, "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["averages"] == {model: 61.5}
    assert [log["name"] for log in document["runs"]] == ["trained"]
    assert "Avg. STS" in (tmp_path / "both" / "index.html").read_text()


def test_mistakes(run, model, pairs, sentences, tmp_path) -> None:
    out = tmp_path / "report"
    for arguments, message in [
        ((model,), "--data FILE"),
        ((f"{model}#layer=2", "--data", pairs), "Did you mean 'layers'"),
        ((f"{model}#layers=9", "--data", pairs), "keep between 1 and 3"),
        ((model, model, "--data", pairs), "two models are named"),
        (("--runs", model), "no log.jsonl"),
        ((model, "--runs", "--data", pairs), "none of the models is a training run"),
        ((model, "--data", pairs, "--results", sentences), "is not a result file"),
    ]:
        done = run("analyze", *arguments, "-o", out, "--device", "cpu")
        assert done.code == 2 and message in done.err, (arguments, done.err)
        assert not out.exists()
    done = run("analyze", model, "--data", pairs, "-o", tmp_path)
    assert done.code == 2 and "not a report" in done.err and pairs.exists()
