"""Exporting: a folder without checkpoints and logs that gives the same vectors, its card, and the hub."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.encoder.test_card import code_of
from tests.tiny import SENTENCES, WORDS, make_checkpoint

import twinpass
from twinpass import Encoder
from twinpass.encoder.card import read_card
from twinpass.errors import ConfigError, MissingExtra, ModelError, OutputError
from twinpass.workflows import export as workflow


@pytest.fixture(scope="module")
def trained(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training folder with everything in it that is not to be shared."""
    folder = tmp_path_factory.mktemp("trained") / "my-model"
    rows = [" ".join(WORDS[i : i + 4]) for i in range(24)]
    run = twinpass.Run(
        data="rows", model=model, output=str(folder), steps=2, batch_size=8, device="cpu", keep_checkpoints=1
    )
    twinpass.train(run, rows=rows, evaluate=lambda encode: {"score": 1.5})
    card = folder / "README.md"
    card.write_text(card.read_text().replace("license: unknown", "license: mit") + "\n## Intended use\n\nTests.\n")
    return folder


def vectors_of(folder: Path | str) -> np.ndarray:
    return Encoder.load(folder, device="cpu").encode(SENTENCES)


def test_the_folder_has_the_model_and_nothing_of_the_training(trained: Path, tmp_path: Path):
    result = twinpass.export(trained, output=tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"log.jsonl", "checkpoints", "result.json", "run.json", "report.html"} <= {p.name for p in trained.iterdir()}
    assert not names & {"log.jsonl", "checkpoints", "result.json", "run.json", "report.html"}
    assert {"model.safetensors", "modules.json", "twinpass.json", "README.md", "export.json"} <= names
    assert result.apart == 0 and set(result.files) == {
        path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()
    }
    np.testing.assert_array_equal(vectors_of(tmp_path / "out"), vectors_of(trained))
    assert "vectors differ by at most 0" in repr(result) and result.to_dict()["format"] == "safetensors"
    assert (tmp_path / "out" / "model.safetensors").stat().st_mode & 0o044 == 0o044


def test_the_card_follows_the_model(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    twinpass.export(trained, output="shared")
    card = read_card(tmp_path / "shared")
    assert card.title == "shared" and card.sections["Intended use"] == "Tests."
    assert card.data["license"] == "mit" and card.data["model-index"][0]["name"] == "shared"
    assert str(trained) in card.sections["Export"] and "SHA-256" in card.sections["Data"]
    for code in code_of(tmp_path / "shared"):
        assert str(trained) not in code
        names: dict[str, np.ndarray] = {}
        exec(code, names)
        np.testing.assert_allclose(
            names["vectors"], Encoder.load(trained, device="cpu").encode(["A sentence.", "Another one."]), atol=1e-5
        )


@pytest.mark.parametrize("format", ["safetensors", "onnx", "openvino"])
@pytest.mark.parametrize("kind", ["whitened", "head", "prompt"])
def test_layers_heads_and_prompts_are_exported(format: str, kind: str, model: str, tmp_path: Path, monkeypatch):
    pytest.importorskip("openvino" if format == "openvino" else "onnxruntime" if format == "onnx" else "torch")
    if kind == "whitened":
        lines = [f"{one} {two}" for one, two in zip(WORDS, WORDS[5:], strict=False)]
        twinpass.fit(model, "whitening", lines, output=tmp_path / "source", keep=8)
    elif kind == "head":
        bare = make_checkpoint(tmp_path / "bare", "roberta")
        Encoder.load(bare, pooler="cls_mlp", fresh_head_seed=1, device="cpu").save(tmp_path / "source")
    else:
        encoder = Encoder.load(model, device="cpu", max_tokens=12)
        encoder.save(tmp_path / "source")
        file = tmp_path / "source" / "twinpass.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"prompt": "see: ", "lowercase": True}))
        (tmp_path / "source" / "SHA256SUMS").unlink()
    monkeypatch.chdir(tmp_path)
    result = twinpass.export("source", output="out", format=format)
    assert result.apart < 1e-5
    texts = ["A sentence.", "Another one."]
    expected = Encoder.load("source", device="cpu").encode(texts)
    code = code_of(tmp_path / "out")[-1]
    names: dict[str, np.ndarray] = {}
    exec(code, names)
    np.testing.assert_allclose(names["vectors"], expected, atol=1e-5)


@pytest.mark.parametrize("family", ["distilbert", "modernbert"])
def test_families_as_onnx(family: str, tmp_path: Path):
    pytest.importorskip("onnxruntime")
    bare = make_checkpoint(tmp_path / "bare", family)
    assert twinpass.export(bare, output=tmp_path / "out", format="onnx", pooler="avg").apart < 1e-5


def test_an_onnx_folder_is_for_others(model: str, tmp_path: Path):
    onnxruntime = pytest.importorskip("onnxruntime")
    twinpass.export(model, output=tmp_path / "out", format="onnx")
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx")
    assert [place.name for place in session.get_outputs()] == ["sentence_embedding"]
    with pytest.raises(ModelError, match="is an ONNX graph, which is for other software"):
        Encoder.load(tmp_path / "out")


def test_a_graph_is_copied_and_never_becomes_weights_again(exported: str, tmp_path: Path):
    result = twinpass.export(exported, output=tmp_path / "out")
    assert (result.format, result.apart) == ("openvino", 0)
    np.testing.assert_array_equal(vectors_of(tmp_path / "out"), vectors_of(exported))
    for format in ("safetensors", "onnx"):
        with pytest.raises(ModelError, match=rf"cannot become {format} again.*openvino, or export the model"):
            twinpass.export(exported, output=tmp_path / "no", format=format)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_static_model_is_copied(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    lines = [f"{one} {two}" for one, two in zip(WORDS, WORDS[5:], strict=False)]
    twinpass.distill(model, lines, output="static", static=True, dimensions=8, tasks=[])
    assert twinpass.export("static", output="out").apart == 0
    np.testing.assert_array_equal(vectors_of("out"), vectors_of("static"))
    expected = Encoder.load("static").encode(["A sentence.", "Another one."])
    for code in code_of(tmp_path / "out"):
        names: dict[str, np.ndarray] = {}
        exec(code, names)
        np.testing.assert_allclose(names["vectors"], expected, atol=2e-3)  # sentence-transformers computes in fp16
    for format in ("onnx", "openvino"):
        with pytest.raises(ModelError, match=f"static model, .* no {format} graph"):
            twinpass.export("static", output="no", format=format)


def test_a_foreign_model_gets_a_card_with_its_licence(model: str, tmp_path: Path):
    from sentence_transformers import SentenceTransformer

    SentenceTransformer(model, device="cpu").save_pretrained(str(tmp_path / "foreign"))
    card = tmp_path / "foreign" / "README.md"
    card.write_text("---\nlicense: apache-2.0\ntags: [theirs]\n---\n# Theirs\n\n## Their words\n\nabc\n")
    twinpass.export(tmp_path / "foreign", output=tmp_path / "out")
    found = read_card(tmp_path / "out")
    assert found.data["license"] == "apache-2.0" and "Their words" not in found.sections
    expected = SentenceTransformer(str(tmp_path / "foreign"), device="cpu").encode(SENTENCES)
    got = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(SENTENCES)
    np.testing.assert_allclose(got, expected, atol=1e-6)


def test_vectors_that_differ_are_refused_and_nothing_is_left(model: str, tmp_path: Path, monkeypatch):
    write = workflow._write_safetensors
    monkeypatch.setitem(workflow._WRITE, "safetensors", lambda encoder, folder: write(encoder, folder) + 0.01)
    with pytest.raises(ModelError, match=r"vectors differ by 0\.0\d+, expected less than 0.0001. Nothing was written"):
        twinpass.export(model, output=tmp_path / "out")
    assert [*tmp_path.iterdir()] == []


def test_what_cannot_be_done_is_said_before_the_work(model: str, trained: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(Encoder, "load", lambda *_, **__: pytest.fail("the work began"))
    with pytest.raises(ConfigError, match="expected a folder"):
        twinpass.export(model)
    with pytest.raises(ConfigError, match=r"unknown format .pickle.\. Expected one of safetensors, onnx, openvino"):
        twinpass.export(model, output=tmp_path / "out", format="pickle")
    with pytest.raises(OutputError, match="was not written by export"):
        twinpass.export(model, output=trained, overwrite=True)
    with pytest.raises(ConfigError, match="expected a name on the hub as owner/name, got 'my model'"):
        twinpass.export(model, to_hub="my model")
    (tmp_path / "lstm").mkdir()
    (tmp_path / "lstm" / "bilstm.json").write_text("{}")
    with pytest.raises(ModelError, match="LSTM over word vectors"):
        twinpass.export(tmp_path / "lstm", output=tmp_path / "out")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"exporting to ONNX .*twinpass\[onnx\]"):
        twinpass.export(model, output=tmp_path / "out", format="onnx")


def test_an_export_is_replaced_only_if_asked_for_and_never_by_itself(model: str, tmp_path: Path):
    twinpass.export(model, output=tmp_path / "out")
    with pytest.raises(OutputError, match="Add --overwrite"):
        twinpass.export(model, output=tmp_path / "out")
    with pytest.raises(OutputError, match="it would replace the input"):
        twinpass.export(tmp_path / "out", output=tmp_path / "out", overwrite=True)
    assert twinpass.export(model, output=tmp_path / "out", overwrite=True).apart == 0


class FakeHub:
    """What export uses of huggingface_hub.HfApi, without a network."""

    def __init__(self, fails: Exception | None = None) -> None:
        self.calls: list[tuple[str, object]] = []
        self.fails = fails

    def create_repo(self, name: str, *, private: bool, exist_ok: bool) -> str:
        if self.fails:
            raise self.fails
        self.calls.append((name, SimpleNamespace(private=private, exist_ok=exist_ok)))
        return f"https://hub.example/{name}"

    def upload_folder(self, *, repo_id: str, folder_path: Path, commit_message: str) -> None:
        files = {path.relative_to(folder_path).as_posix(): path.read_bytes() for path in folder_path.rglob("*.*")}
        self.calls.append((repo_id, files))


def test_a_model_goes_to_the_hub_only_by_name(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    hub = FakeHub()
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: hub)
    twinpass.export(model, output=tmp_path / "out")
    assert hub.calls == []
    result = twinpass.export(model, to_hub="me/my-model", private=True)
    (name, made), (uploaded_to, files) = hub.calls
    assert name == uploaded_to == "me/my-model" and made.private and not made.exist_ok
    assert {"model.safetensors", "README.md", "modules.json"} <= set(
        files
    ) and result.hub == "https://hub.example/me/my-model"
    assert 'SentenceTransformer("me/my-model")' in files["README.md"].decode()
    assert result.output is None and "uploaded to https://hub.example/me/my-model" in repr(result)


def test_a_hub_that_cannot_be_reached_leaves_the_folder(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    hub = FakeHub(ConnectionError("cannot reach the hub: offline mode is enabled."))
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: hub)
    with pytest.raises(OutputError, match=r"me/x could not be uploaded to .* enabled\. The .*`hf auth login`"):
        twinpass.export(model, output=tmp_path / "out", to_hub="me/x")
    assert vectors_of(tmp_path / "out").shape == (8, 32)
