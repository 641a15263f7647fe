"""The runtime openvino: torch's vectors in fp32, near ones in int8, exported once, nothing sent anywhere."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tiny import SENTENCES, WORDS

from twinpass import processor
from twinpass.encoder.encoder import Encoder
from twinpass.encoder.export import Agreement, draw_texts, make_graph, quantize_graph
from twinpass.encoder.flow import Flow
from twinpass.encoder.layers import FITS, with_layer
from twinpass.encoder.model import SentenceModel
from twinpass.encoder.runtime import choose
from twinpass.encoder.runtime.openvino import core, load_openvino
from twinpass.errors import ConfigError, InputError, MissingExtra, ModelError

pytest.importorskip("openvino")
pytestmark = [
    pytest.mark.filterwarnings("ignore::twinpass.encoder.encoder.TruncationWarning"),
    pytest.mark.filterwarnings("ignore:.*once, and cached"),
]

TEXTS = [*SENTENCES, "the " * 200, "a"]
LINES = [" ".join(words) for words in zip(WORDS, WORDS[3:], WORDS[11:], WORDS[20:], strict=False)]


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def docs(monkeypatch) -> list[str]:
    """A built-in corpus that needs no reading of the installed packages."""
    monkeypatch.setattr("twinpass.text.docs.docstrings.docs_sentences", lambda: LINES)
    return LINES


def run_graph(encoder: Encoder, graph, texts) -> np.ndarray:
    compiled = core().compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return compiled(encoder.tokens.arrays(encoder.tokenize(texts)))[0].copy()


def same_vectors(encoder: Encoder) -> None:
    graph = make_graph(encoder)
    for texts in (TEXTS, TEXTS[:1], ["a"], TEXTS[-2:]):  # padded rows, one row, three tokens, the longest
        np.testing.assert_allclose(run_graph(encoder, graph, texts), encoder.encode(texts), atol=1e-4)


@pytest.mark.parametrize("family", ["roberta", "distilbert", "mpnet", "deberta", "modernbert"])
def test_other_families(family: str, checkpoints):
    same_vectors(Encoder.load(checkpoints(family), pooler="avg", device="cpu"))


@pytest.mark.parametrize(
    "pooler", ["cls_mlp", "cls_pretrained", "avg_first_last", "max", "mean_sqrt_length", "weighted_mean", "last_token"]
)
def test_poolers(pooler: str, checkpoints):
    same_vectors(Encoder.load(checkpoints("bert"), pooler=pooler, fresh_head_seed=1, device="cpu"))


def test_fitted_layers(checkpoints):
    encoder = Encoder.load(checkpoints("bert"), pooler="avg", device="cpu")
    vectors = encoder.encode(LINES)
    flow = Flow(32, levels=2, depth=1)
    flow.start_from(torch.from_numpy(vectors))
    for layer in (FITS["centring"](vectors), flow, FITS["whitening"](vectors, keep=12)):
        encoder = with_layer(encoder, layer)
    same_vectors(encoder)


def test_a_graph_with_other_vectors_is_refused(model: str, monkeypatch):
    encoder = Encoder.load(model, device="cpu")
    forward = SentenceModel.forward
    monkeypatch.setattr(
        SentenceModel, "forward", lambda self, given: forward(self, given) * int(given["input_ids"].shape[0])
    )
    with pytest.raises(ModelError, match=r"cannot be exported to OpenVINO \(for a batch of 1x3 tokens"):
        make_graph(encoder)


@pytest.mark.int8
def test_int8_is_near_and_uses_int8(model: str):
    encoder = Encoder.load(model, device="cpu")
    drawn = draw_texts(LINES)
    graph = quantize_graph(encoder, make_graph(encoder), drawn.calibration)
    near = Agreement.of(run_graph(encoder, graph, drawn.held_out), encoder.encode(drawn.held_out))
    assert near.mean > 0.995 and near.mean > near.first_percentile >= near.lowest and near.texts == len(drawn.held_out)
    if platform.machine() == "x86_64":
        compiled = core().compile_model(graph, "CPU")
        kinds = [node.get_rt_info()["runtimePrecision"].astype(str) for node in compiled.get_runtime_model().get_ops()]
        assert {"u8", "i8"} & {*kinds}


@pytest.mark.int8
def test_nncf_prints_nothing(model: str, capfd):
    encoder = Encoder.load(model, device="cpu")
    quantize_graph(encoder, make_graph(encoder), LINES[:4])
    assert capfd.readouterr() == ("", "")


def test_texts_are_drawn_by_seed_not_by_order():
    drawn = draw_texts(LINES, count=10, seed=1)
    assert drawn == draw_texts([*reversed(LINES), *LINES, " "], count=10, seed=1)
    assert drawn != draw_texts(LINES, count=10, seed=2)
    assert not {*drawn.calibration} & {*drawn.held_out}
    many = draw_texts((f"text {number}" for number in range(5_000)), count=20)
    assert (len(many.calibration), len(many.held_out)) == (20, 500)
    assert [len(part) for part in draw_texts(["a", "b"])] == [1, 1]
    with pytest.raises(InputError, match="two distinct texts"):
        draw_texts(["a", "a", " "])


@pytest.mark.int8
def test_straight_int8_is_quantised_once_and_then_needs_no_torch(model: str, docs, cache: Path):
    with pytest.warns(UserWarning, match=f"{model} is quantised to int8, once, and cached in"):
        made = Encoder.load(model, precision="int8")
    assert (made.precision, made.runtime_name, made.name) == ("int8", "openvino", model)
    assert "int8, openvino" in repr(made)
    (kept,) = (path for path in (cache / "exported").iterdir() if path.is_dir())
    measured = json.loads((kept / "twinpass.json").read_text())["exported"]["measured"]
    assert measured["cosine"]["mean"] > 0.99 and measured["calibration"]["source"] == "docs:"
    vectors = made.encode(SENTENCES)
    code = (
        "import sys, warnings; warnings.simplefilter('error'); from twinpass import Encoder\n"
        f"e = Encoder.load({model!r}, precision='int8', runtime='openvino', max_tokens=20)\n"
        "print(e.fingerprint, e.max_tokens, float(e.encode(['the cat sat on the mat'])[0, 0]), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    fingerprint, limit, value, torch_loaded = done.stdout.split()
    assert (limit, torch_loaded) == ("20", "False") and float(value) == pytest.approx(vectors[0, 0], abs=1e-6)
    assert fingerprint != made.fingerprint  # another limit


@pytest.mark.int8
def test_straight_int8_that_is_too_far_is_refused(model: str, docs, cache: Path, monkeypatch):
    monkeypatch.setattr("twinpass.encoder.export.MINIMUM_COSINE", 1.0)
    with pytest.raises(ModelError, match=r"mean cosine to its fp32 vectors is 0.99.* use fp32"):
        Encoder.load(model, precision="int8")
    assert [path for path in (cache / "exported").iterdir() if path.is_dir()] == []


def test_straight_fp32_follows_the_files_of_the_model(checkpoints, tmp_path):
    folder = tmp_path / "model"
    Encoder.load(checkpoints("bert"), pooler="avg", device="cpu").save(folder)
    first = Encoder.load(folder, runtime="openvino")
    np.testing.assert_allclose(first.encode(SENTENCES), Encoder.load(folder, device="cpu").encode(SENTENCES), atol=1e-4)
    changed = Encoder.load(folder, device="cpu")
    with torch.no_grad():
        next(changed.model.parameters()).mul_(2.0)
    changed.save(folder)
    again = Encoder.load(folder, runtime="openvino")
    np.testing.assert_allclose(again.encode(SENTENCES), changed.encode(SENTENCES), atol=1e-4)
    assert again.fingerprint != first.fingerprint
    other = Encoder.load(folder, runtime="openvino", pooler="cls")
    assert other.pooler == "cls" and other.fingerprint != again.fingerprint


@pytest.mark.parametrize("name", ["openvino", "checkpoints", "mine"])
def test_the_files_of_a_model_count_whatever_its_folder_is_called(name: str, tmp_path: Path):
    folder = tmp_path / name
    for place in ("model.safetensors", "vocab.bpe", "1_Pooling/config.json", "onnx/config.json"):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text("first")
    keys = [choose.Source("x", folder).key]
    for place in ("model.safetensors", "vocab.bpe", "1_Pooling/config.json", "onnx/config.json"):
        (folder / place).write_text("second")
        keys.append(choose.Source("x", folder).key)
    assert len({*keys}) == 4 and keys[-1] == keys[-2]  # what lies in onnx is another format of the same model


def test_a_damaged_export_is_made_again(model: str, cache: Path):
    vectors = Encoder.load(model, runtime="openvino").encode(SENTENCES)
    (graph,) = cache.glob("exported/*/openvino/model.bin")
    graph.write_bytes(graph.read_bytes()[:-9])
    assert np.array_equal(Encoder.load(model, runtime="openvino").encode(SENTENCES), vectors)


def test_the_exports_used_last_are_kept(model: str, cache: Path):
    (cache / "exported").mkdir(parents=True)
    for number in range(20):
        (cache / "exported" / f"fp32-{number}").mkdir()
        os.utime(cache / "exported" / f"fp32-{number}", (number, number))
    first = Encoder.load(model, runtime="openvino").exported
    assert first is not None
    kept = {path.name for path in (cache / "exported").iterdir() if path.is_dir()}
    assert kept == {first.folder.name, *(f"fp32-{number}" for number in range(5, 20))}
    os.utime(first.folder, (0, 0))
    Encoder.load(model, runtime="openvino")
    assert first.folder.stat().st_mtime > 1000  # used again


@pytest.mark.parametrize(("torch_rate", "chosen"), [(1.0, "openvino"), (1e9, "torch")])
def test_auto_takes_what_was_faster_and_measures_once(model: str, monkeypatch, torch_rate: float, chosen: str):
    calls = []

    def rates(encoders, texts):
        calls.append([*encoders])
        return dict.fromkeys(encoders, 1e6) | {choose.TORCH: torch_rate}

    monkeypatch.setattr("twinpass.encoder.export.measure_rates", rates)
    for _ in range(2):
        encoder = Encoder.load(model, runtime="auto", device="cpu")
        assert (encoder.runtime_name, encoder.precision) == (chosen, "fp32")
    assert calls == [[choose.TORCH, choose.FP32]]
    monkeypatch.setattr(processor, "processor_name", lambda: "another")
    Encoder.load(model, runtime="auto", device="cpu")
    assert len(calls) == 2
    # A limit that we set ourselves does not count, one of the user does.
    monkeypatch.setenv(processor.LIMIT, "OURS")
    monkeypatch.setattr(processor, "_limit_of_ours", "OURS")
    Encoder.load(model, runtime="auto", device="cpu")
    assert len(calls) == 2
    monkeypatch.setattr(processor, "_limit_of_ours", None)
    assert choose.Source(model, Path(model)).rates() == {}


def test_auto_takes_a_gpu_before_stored_rates(model: str, monkeypatch):
    monkeypatch.setattr(choose.Source, "rates", lambda self: {choose.TORCH: 1.0, choose.FP32: 9.0})
    assert Encoder.load(model, runtime="auto", device="cpu").runtime_name == "openvino"
    monkeypatch.setattr(choose, "installed", lambda name: "2.9.0")  # a build that could use one
    monkeypatch.setattr("twinpass.encoder.runtime.choose_device", lambda name: torch.device("meta"))
    assert choose._has_gpu()
    trusted = {"trust_pickle": False, "trust_remote_code": False}
    assert choose.find_export(model, Path(model), None, "auto", None, device="auto", trusted=trusted) is None


def test_auto_falls_back_to_torch_and_is_not_measured_again(model: str, monkeypatch, cache: Path):
    tried = []

    def refuse(encoder):
        tried.append(encoder.name)
        raise ModelError("cannot be exported to OpenVINO (no such operation)")

    monkeypatch.setattr("twinpass.encoder.export.make_graph", refuse)
    with pytest.warns(UserWarning, match="no such operation"):
        assert Encoder.load(model, runtime="auto", device="cpu").runtime_name == "torch"
    assert Encoder.load(model, runtime="auto", device="cpu").runtime_name == "torch"
    assert len(tried) == 1 and choose.Source(model, Path(model)).rates()[choose.FP32] == 0
    with pytest.raises(ModelError, match="no such operation"):
        Encoder.load(model, runtime="openvino")


def test_auto_is_torch_where_nothing_competes(model: str, monkeypatch):
    monkeypatch.setattr(choose, "importlib", FakeImportlib)
    assert Encoder.load(model, runtime="auto", device="cpu").runtime_name == "torch"
    with pytest.raises(MissingExtra, match=r"twinpass\[openvino\]"):
        Encoder.load(model, runtime="openvino")
    with pytest.raises(MissingExtra, match=r"twinpass\[openvino\]"):
        Encoder.load(model, runtime="auto", precision="int8")


class FakeImportlib:
    class util:  # noqa: N801
        find_spec = staticmethod(lambda name: None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "int8", "runtime": "torch"}, "int8 is computed by the runtime openvino, not by torch"),
        ({"precision": "bf16", "runtime": "openvino"}, "computes in fp32 or int8, not in bf16"),
        ({"precision": "int8", "device": "cuda"}, "computes on a CPU, not on 'cuda'"),
        ({"runtime": "onnx"}, "no runtime named 'onnx'. Known: torch"),
        ({"precision": "int4"}, "no precision named 'int4'"),
    ],
)
def test_what_cannot_be_combined_is_said(model: str, options: dict[str, str], message: str):
    with pytest.raises(ConfigError, match=message):
        Encoder.load(model, **{"device": "cpu", **options})


@pytest.mark.int8
def test_int8_is_refused_where_the_processor_cannot(model: str, docs, monkeypatch):
    def refuse(probe):
        raise ConfigError(f"{probe.name} cannot be used on this processor")

    made = Encoder.load(model, precision="int8").exported
    monkeypatch.setattr(processor, "check", refuse)
    for name, options in ((model, {"precision": "int8"}), (made.folder, {})):
        with pytest.raises(ConfigError, match="int8 cannot be used on this processor"):
            Encoder.load(name, **options)


@pytest.mark.int8
def test_what_was_compiled_is_read_again_unless_it_is_damaged(model: str, docs, cache: Path):
    vectors = Encoder.load(model, precision="int8").encode(SENTENCES)
    (blob,) = (cache / "compiled").iterdir()
    whole = blob.read_bytes()
    for content in (whole, whole[:-5], whole[:40] + bytes([whole[40] ^ 1]) + whole[41:], b""):
        blob.write_bytes(content)
        assert np.array_equal(Encoder.load(model, precision="int8").encode(SENTENCES), vectors)
        now = blob.read_bytes()
        assert hashlib.sha256(now[32:]).digest() == now[:32]


@pytest.mark.int8
def test_an_openvino_that_imports_no_tensor_compiles_again(model: str, docs, monkeypatch):
    vectors = Encoder.load(model, precision="int8").encode(SENTENCES)

    def refuse(self, *arguments, **options):
        raise TypeError("import_model(): incompatible function arguments")

    monkeypatch.setattr(load_openvino().Core, "import_model", refuse)
    assert np.array_equal(Encoder.load(model, precision="int8").encode(SENTENCES), vectors)


SPY = """
import socket, sys
def spy(*arguments, **options):
    print("NETWORK", arguments); raise OSError("no network")
socket.socket.connect = spy; socket.create_connection = spy; socket.getaddrinfo = spy
"""


@pytest.mark.int8
@pytest.mark.parametrize("first", ["", "import openvino_telemetry\n"], ids=["ours", "the caller's"])
def test_nothing_is_sent(model: str, tmp_path: Path, first: str):
    """The libraries report their import and their use, unless they are kept from it."""
    home = tmp_path / "home"
    home.mkdir()
    code = SPY + first + (
        "from twinpass.encoder.encoder import Encoder\n"
        "from twinpass.encoder.export import make_graph, quantize_graph\n"
        f"e = Encoder.load({model!r}, device='cpu')\n"
        "quantize_graph(e, make_graph(e), ['the cat', 'a dog'])\n"
    )  # fmt: skip
    environment = {**os.environ, "HOME": str(home), "USERPROFILE": str(home)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "NETWORK" not in done.stdout
    assert first or [path.name for path in home.iterdir() if path.name == "intel"] == []  # no id was made up


def test_openvinos_telemetry_is_real_without_us(tmp_path: Path):
    """What the test above rests on: importing openvino alone makes an id for this user."""
    pytest.importorskip("openvino_telemetry")
    environment = {**os.environ, "HOME": str(tmp_path), "USERPROFILE": str(tmp_path)}
    for name in ("CI", "TF_BUILD", "JENKINS_URL"):
        environment.pop(name, None)
    subprocess.run([sys.executable, "-c", SPY + "import openvino"], capture_output=True, env=environment, check=False)
    assert (tmp_path / "intel").exists()
