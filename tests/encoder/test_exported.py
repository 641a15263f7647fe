"""Exported models: the same ids and vectors as their source, without torch; damaged folders are refused."""

from __future__ import annotations

import dataclasses
import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.tiny import SENTENCES, export

from twinpass.encoder.encoder import Encoder, TruncationWarning
from twinpass.encoder.folder import Settings, _fingerprint, read_exported
from twinpass.errors import ConfigError, ModelError, UserError

AWKWARD = [
    *SENTENCES,
    " ",
    "\u00e9\u0301 \u200b x\u0000y",
    "a" * 300,
    "the CAT [SEP] [MASK] sat",
    "the " * 200,
    "\n\tcat",
]
pytestmark = pytest.mark.filterwarnings("ignore::twinpass.encoder.encoder.TruncationWarning")


def edited(folder: str, target: Path, **changes: object) -> Path:
    """Copy an exported model with other values in what twinpass.json says of the export."""
    shutil.copytree(folder, target)
    document = json.loads((target / "twinpass.json").read_text())
    document["exported"] |= changes
    (target / "twinpass.json").write_text(json.dumps(document))
    return target


def test_it_is_the_model_that_it_was_made_from(model: str, exported: str):
    source, made = Encoder.load(model, device="cpu"), Encoder.load(exported)
    assert np.abs(made.encode(AWKWARD) - source.encode(AWKWARD)).max() < 1e-5
    assert made.tokenize(AWKWARD) == source.tokenize(AWKWARD)
    assert (made.dimensions, made.max_tokens, made.pooler) == (source.dimensions, source.max_tokens, source.pooler)
    assert made.vocabulary == source.vocabulary
    assert (made.precision, made.runtime_name, str(made.device)) == ("fp32", "openvino", "cpu")
    assert float(made.similarity("a cat", "a dog")) == pytest.approx(
        float(source.similarity("a cat", "a dog")), abs=1e-5
    )
    assert made.exported is not None
    assert made.exported.source == {"name": model, "fingerprint": source.fingerprint}
    blocks = list(made.encode_stream(AWKWARD, window=4))
    assert np.array_equal(np.concatenate([block.vectors for block in blocks])[:4], blocks[0].vectors)


@pytest.mark.parametrize("side", ["left", "right"])
def test_prompt_lowercase_and_truncation_side_are_kept(side: str, model: str, tmp_path: Path):
    pytest.importorskip("openvino")
    changed = tmp_path / "changed"
    shutil.copytree(model, changed)
    settings = json.loads((changed / "twinpass.json").read_text())
    settings |= {"prompt": "The Cat: ", "lowercase": True, "max_tokens": 12}
    (changed / "twinpass.json").write_text(json.dumps(settings))
    tokenizer = json.loads((changed / "tokenizer_config.json").read_text())
    (changed / "tokenizer_config.json").write_text(json.dumps(tokenizer | {"truncation_side": side}))
    source, made = Encoder.load(changed, device="cpu"), Encoder.load(export(changed, tmp_path / "made"))
    assert made.tokenize(AWKWARD) == source.tokenize(AWKWARD)
    assert made.tokens.ids(AWKWARD, max_tokens=7) == source.tokens.ids(AWKWARD, max_tokens=7)
    with pytest.warns(TruncationWarning, match="only (its|their) (end|beginning)") as warned:
        made.encode(AWKWARD)
    (said,) = (str(each.message) for each in warned if each.category is TruncationWarning)
    assert ("end" in said) == (side == "left")


@pytest.mark.parametrize("family", ["roberta", "distilbert"])
def test_other_families(family: str, checkpoints, tmp_path: Path):
    pytest.importorskip("openvino")
    loading = {"pooler": "cls_mlp", "fresh_head_seed": 1}
    made = Encoder.load(export(checkpoints(family), tmp_path / "made", **loading))
    source = Encoder.load(checkpoints(family), device="cpu", **loading)
    assert made.tokenize(AWKWARD) == source.tokenize(AWKWARD)
    assert np.abs(made.encode(AWKWARD) - source.encode(AWKWARD)).max() < 1e-5
    assert made.tokens.limit == source.tokens.limit


def test_fingerprint_depends_on_the_token_limit(exported: str):
    made = Encoder.load(exported)
    assert made.fingerprint == json.loads((Path(exported) / "twinpass.json").read_text())["exported"]["fingerprint"]
    assert made.fingerprint == Encoder.load(exported, max_tokens=made.max_tokens).fingerprint
    shorter = Encoder.load(exported, max_tokens=10)
    assert shorter.fingerprint != made.fingerprint
    assert shorter.exported is not None
    assert made.exported is not None
    assert shorter.exported.source["fingerprint"] != made.exported.source["fingerprint"]
    with pytest.raises(ConfigError, match="reads at most 64"):
        Encoder.load(exported, max_tokens=100)


def test_it_can_be_pickled(exported: str):
    made = Encoder.load(exported)
    vectors = made.encode(SENTENCES)  # the graph is compiled, and is not pickled
    again = pickle.loads(pickle.dumps(made))
    assert np.array_equal(again.encode(SENTENCES), vectors)
    assert again.fingerprint == made.fingerprint


def test_what_needs_the_network_says_what_to_use(exported: str, model: str, tmp_path: Path):
    made = Encoder.load(exported)
    for ask in (lambda: made.model, lambda: made.tokenizer, lambda: made.save(tmp_path / "saved")):
        with pytest.raises(ModelError, match=f"is an exported model .* made from, {model}"):
            ask()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooler": "cls"}, "its pooler is avg, not cls"),
        ({"precision": "bf16"}, "its precision is fp32, not bf16"),
        ({"runtime": "torch"}, "its runtime is openvino, not torch"),
        ({"device": "cuda"}, "its device is cpu, not cuda"),
        ({"dropout": 0.1}, "its dropout cannot be set"),
    ],
)
def test_options_that_are_fixed_are_refused(options: dict[str, object], message: str, exported: str):
    with pytest.raises(ConfigError, match=message):
        Encoder.load(exported, **options)


def test_options_that_say_what_it_is_are_accepted(exported: str):
    same = Encoder.load(exported, pooler="avg", precision="fp32", runtime="openvino", device="cpu")
    assert same.fingerprint == Encoder.load(exported).fingerprint


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("runtime", "tensorrt"),
        ("precision", "fp8"),
        ("file", "../../graph.xml"),
        ("file", 3),
        ("inputs", ["input_ids", "labels"]),
        ("inputs", "input_ids"),
        ("dimensions", 0),
        ("dimensions", True),
        ("max_tokens", -5),
        ("vocabulary", "many"),
        ("pad", {"id": -1, "truncation_side": "right"}),
        ("pad", {"id": 0, "truncation_side": "middle"}),
        ("fingerprint", "abc"),
        ("source", {"name": "x"}),
        ("measured", []),
    ],
)
def test_a_wrong_field_is_named(field: str, value: object, exported: str, tmp_path: Path):
    with pytest.raises(ModelError, match=rf"twinpass.json: exported.{field}: expected .* Export the model again"):
        Encoder.load(edited(exported, tmp_path / "edited", **{field: value}))


def test_a_missing_field_and_a_wrong_kind_are_named(exported: str, tmp_path: Path):
    folder = edited(exported, tmp_path / "edited")
    document = json.loads((folder / "twinpass.json").read_text())
    for wrong in ({key: value for key, value in document["exported"].items() if key != "pad"}, "int8"):
        (folder / "twinpass.json").write_text(json.dumps(document | {"exported": wrong}))
        with pytest.raises(ModelError, match="exported"):
            Encoder.load(folder)


@pytest.mark.parametrize("name", ["openvino/model.xml", "openvino/model.bin", "tokenizer.json"])
def test_a_flipped_bit_a_cut_and_a_missing_file_are_noticed(name: str, exported: str, tmp_path: Path):
    folder = edited(exported, tmp_path / "damaged")
    whole = (folder / name).read_bytes()
    middle = len(whole) // 2
    for damaged in (whole[:middle] + bytes([whole[middle] ^ 4]) + whole[middle + 1 :], whole[:-7], b""):
        (folder / name).write_bytes(damaged)
        with pytest.raises(ModelError, match="damaged or was changed"):
            Encoder.load(folder)
    (folder / name).unlink()
    with pytest.raises(ModelError, match="Export the model again"):
        Encoder.load(folder)


def test_what_vectors_do_not_depend_on_is_not_in_the_fingerprint(exported: str):
    made = Encoder.load(exported)
    assert made.exported is not None
    settings = dataclasses.replace(made.settings, base_weights="0" * 64, matryoshka=(8, 16))
    assert _fingerprint(made.exported, settings) == _fingerprint(made.exported, made.settings)


def test_a_changed_setting_is_noticed(exported: str, tmp_path: Path):
    folder = edited(exported, tmp_path / "changed")
    document = json.loads((folder / "twinpass.json").read_text())
    (folder / "twinpass.json").write_text(json.dumps(document | {"prompt": "query: "}))
    with pytest.raises(ModelError, match="damaged or was changed"):
        Encoder.load(folder)


@pytest.mark.parametrize(
    ("settings", "facts", "message"),
    [
        ({"max_tokens": 2}, {}, "max_tokens is 2; expected a whole number, 3 or more"),
        ({"prompt": "x" * 20_000}, {}, "prompt is"),
        ({}, {"vocabulary": 20}, "has vectors for 20 tokens only"),
    ],
)
def test_values_that_no_model_has_are_refused(settings, facts, message: str, exported: str, tmp_path: Path):
    """Also where whoever wrote them has made the fingerprint fit."""
    folder = edited(exported, tmp_path / "edited")
    document = json.loads((folder / "twinpass.json").read_text())
    made = read_exported(folder)
    assert made is not None
    said = {**document, **settings}
    own = {field.name: said[field.name] for field in dataclasses.fields(Settings) if field.name in said}
    fitting = _fingerprint(dataclasses.replace(made, **facts), Settings(**{**own, "layers": ()}))
    document |= {**settings, "exported": {**document["exported"], **facts, "fingerprint": fitting}}
    (folder / "twinpass.json").write_text(json.dumps(document))
    with pytest.raises(ModelError, match=message):
        Encoder.load(folder)


def test_it_is_found_after_a_change_of_the_working_folder(exported: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(Path(exported).parent)
    made = Encoder.load(Path(exported).name)
    monkeypatch.chdir(tmp_path)
    assert made.encode(["a dog"]).shape == (1, made.dimensions)  # compiled only now


def test_other_folders_are_not_exported_models(model: str, checkpoints):
    assert read_exported(Path(model)) is None
    assert read_exported(checkpoints("bert")) is None


def test_training_and_fitting_refuse_it(exported: str, sentences: Path, tmp_path: Path):
    import twinpass

    with pytest.raises(UserError, match="is an exported model"):
        twinpass.train(twinpass.Run(data=str(sentences), output=str(tmp_path / "run"), model=exported, steps=1))
    with pytest.raises(UserError, match="is an exported model"):
        twinpass.fit(exported, "whitening", str(sentences), output=tmp_path / "fitted")


def test_nothing_of_it_needs_torch(exported: str):
    code = (
        "import sys; from twinpass import Encoder\n"
        f"e = Encoder.load({exported!r}); e.encode(['a cat']); e.similarity('a', 'b'); e.fingerprint; repr(e)\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"openvino", "tokenizers", "numpy"} <= loaded
    assert not loaded & {
        "torch",
        "transformers",
        "huggingface_hub",
        "safetensors",
        "scipy",
        "pandas",
        "pyarrow",
        "rich",
    }


def test_a_signal_after_models_were_dropped_is_no_crash(exported: str):
    """OpenVINO gives the thread a stack for signals; models dropped in the order of their making leave no freed one."""
    code = f"""
import faulthandler, gc, os, signal
from twinpass.encoder.encoder import Encoder
faulthandler.enable()
models = [Encoder.load({exported!r}) for _ in range(3)]
for model in models:
    model.encode(["a"])
del model
while models:
    del models[0]
    gc.collect()
signal.signal(signal.SIGINT, lambda *_: print("delivered"))
os.kill(os.getpid(), signal.SIGINT)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "delivered"), done.stderr
