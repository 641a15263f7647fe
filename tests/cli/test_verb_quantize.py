"""`twinpass quantize`: a model in int8, measured, that loads wherever a model does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.tiny import WORDS

import twinpass
from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError, InputError, MissingExtra, ModelError, OutputError
from twinpass.workflows import quantize as workflow

pytest.importorskip("nncf")
pytestmark = pytest.mark.int8

LINES = [" ".join(words) for words in zip(WORDS, WORDS[3:], WORDS[11:], WORDS[20:], strict=False)]
GRAPH = ("openvino/model.xml", "openvino/model.bin", "tokenizer.json")


@pytest.fixture(scope="module")
def made(model: str, tmp_path_factory) -> tuple[Path, twinpass.workflows.quantize.Quantized]:
    folder = tmp_path_factory.mktemp("quantized") / "int8"
    return folder, twinpass.quantize(model, LINES, output=folder, texts=40)


def test_what_was_measured_is_shown_and_kept(made, model: str):
    folder, result = made
    document = json.loads((folder / "twinpass.json").read_text())["exported"]
    assert document["precision"] == "int8" and document["fingerprint"] == result.fingerprint
    assert document["source"] == {"name": model, "fingerprint": Encoder.load(model, device="cpu").fingerprint}
    measured = document["measured"]
    assert measured["cosine"]["mean"] == result.cosine.mean > 0.99
    assert measured["cosine"]["lowest"] <= measured["cosine"]["first_percentile"] <= measured["cosine"]["mean"] <= 1
    assert measured["int8"]["sentences_per_second"] > 0 and measured["fp32"]["sentences_per_second"] > 0
    assert measured["int8"]["megabytes"] > 0
    assert (measured["calibration"]["texts"], measured["cosine"]["texts"]) == (40, len({*LINES}) - 40)
    card = (folder / "README.md").read_text()
    for shown in (repr(result), card):
        assert "cosine to fp32: mean" in shown and f"{result.cosine.mean:.4f}" in shown and "sentences/s" in shown
    assert result.to_dict()["model"]["name"] == model and result.to_dict()["int8"]["sts"] == {}


def test_the_same_model_text_and_seed_give_the_same_bytes(made, model: str, tmp_path: Path):
    folder, result = made
    again = twinpass.quantize(model, LINES[::-1], output=tmp_path / "again", texts=40)
    assert again.fingerprint == result.fingerprint
    for name in GRAPH:
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_another_process_gives_the_same_bytes(made, command, model: str, tmp_path: Path):
    folder, _ = made
    text = tmp_path / "text.txt"
    text.write_text("\n".join(LINES) + "\n")
    ran = command("quantize", model, text, "-o", tmp_path / "int8", "--texts", 40, "--json")
    assert ran.code == 0, ran.err
    assert "━" not in ran.err and "INFO" not in ran.err  # nncf's own bars and messages
    assert json.loads(ran.out)["options"]["texts"] == 40
    for name in GRAPH:
        assert (tmp_path / "int8" / name).read_bytes() == (folder / name).read_bytes()


def test_it_is_a_model_like_any_other(made, run, sentences: Path, dev: Path, tmp_path: Path):
    folder, _ = made
    assert run("encode", sentences, "-m", folder, "-o", tmp_path / "v.npy").code == 0
    expected = Encoder.load(folder).encode(sentences.read_text().splitlines())
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), expected)
    scores = tmp_path / "scores.json"
    ran = run("evaluate", folder, "-t", f"scored:{dev}", "-o", scores, "--resamples", 100)
    assert ran.code == 0, ran.err
    assert json.loads(scores.read_text())["options"]["precision"] == "int8"
    assert run("index", "build", sentences, "-m", folder, "-o", tmp_path / "index").code == 0
    ran = run("search", tmp_path / "index", "a dog", "--json")
    assert ran.code == 0 and "a dog" in ran.out
    assert "int8, openvino" in repr(Encoder.load(folder))


def test_sts_scores_of_both_are_measured_where_data_are(model: str, tmp_path: Path, monkeypatch):
    asked = []

    def scores(encoder, tasks, progress, log):
        asked.append((encoder.precision, tasks))
        return {"STS-B": 70.0, "Avg.": 70.0}

    monkeypatch.setattr(workflow, "make_jobs", lambda name, settings: [(name, settings.data)])
    monkeypatch.setattr(workflow, "_sts", scores)
    result = twinpass.quantize(model, LINES, output=tmp_path / "int8", texts=10, data="folder")
    assert asked == [("fp32", [("sts", "folder")]), ("int8", [("sts", "folder")])]
    assert "STS Avg." in repr(result) and result.int8.sts["Avg."] == 70.0


def test_what_cannot_be_used_is_said_before_the_work(model: str, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(workflow, "make_graph", lambda encoder: pytest.fail("the work began"))
    with pytest.raises(InputError, match="STS12"):
        twinpass.quantize(model, LINES, output=tmp_path / "int8", data=tmp_path)
    encoder = Encoder.load(model, device="cpu")
    encoder.precision = "bf16"
    with pytest.raises(ConfigError, match=r"expected a model on the CPU in fp32, .* on cpu in bf16"):
        twinpass.quantize(encoder, LINES, output=tmp_path / "int8")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("twinpass.processor.check", lambda probe: pytest.fail("the processor was examined"))
    with pytest.raises(MissingExtra, match=r"quantising to int8 .*twinpass\[openvino\]"):
        twinpass.quantize(encoder, LINES, output=tmp_path / "int8")


def test_too_far_is_refused_and_nothing_is_written(run, model: str, tmp_path: Path, monkeypatch):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(LINES) + "\n")
    out = tmp_path / "out" / "int8"
    out.parent.mkdir()
    ran = run("quantize", model, text, "-o", out, "--texts", 5, "--min-cosine", 1)
    assert ran.code == 2 and [*out.parent.iterdir()] == []
    assert "mean cosine to its fp32 vectors is 0.9" in ran.err and "--min-cosine" in ran.err
    assert run("quantize", model, text, "-o", out, "--texts", 5, "--min-cosine", 1, "--force").code == 0


def test_an_output_of_others_is_not_replaced(made, model: str, tmp_path: Path):
    folder, _ = made
    with pytest.raises(OutputError, match="--overwrite"):
        twinpass.quantize(model, LINES, output=folder)
    with pytest.raises(OutputError, match="was not written by quantize"):
        twinpass.quantize(model, LINES, output=model)


def test_a_damaged_one_is_replaced_if_asked_for(made, model: str, tmp_path: Path):
    folder = tmp_path / "int8"
    shutil.copytree(made[0], folder)
    graph = folder / "openvino" / "model.bin"
    graph.write_bytes(graph.read_bytes()[:-9])
    with pytest.raises(OutputError, match="--overwrite"):
        twinpass.quantize(model, LINES, output=folder)
    (folder / "notes.txt").write_text("not of the model")
    with pytest.raises(OutputError, match="was not written by quantize"):
        twinpass.quantize(model, LINES, output=folder, overwrite=True)
    (folder / "notes.txt").unlink()
    again = twinpass.quantize(model, LINES, output=folder, texts=40, overwrite=True)
    assert Encoder.load(folder).fingerprint == again.fingerprint == made[1].fingerprint


def test_an_exported_model_is_not_quantised_again(made, tmp_path: Path):
    folder, _ = made
    with pytest.raises(ModelError, match="is an exported model"):
        twinpass.quantize(str(folder), LINES, output=tmp_path / "twice")
