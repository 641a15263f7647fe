"""What a folder may not make twinpass do: read elsewhere, run foreign code, build a model of any size."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from twinpass import Encoder
from twinpass.encoder.checks import read_shapes
from twinpass.errors import ModelError


@pytest.fixture
def folder(checkpoints, tmp_path: Path) -> Path:
    """A model folder of ours, with an MLP, that a test may damage."""
    Encoder.load(checkpoints("bert"), pooler="cls_mlp", fresh_head_seed=0).save(tmp_path / "model")
    return tmp_path / "model"


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def refused(folder: Path, message: str, **trusted: bool) -> None:
    with pytest.raises(ModelError, match=message):
        Encoder.load(folder, **trusted)


def shard(folder: Path, *names: str) -> None:
    """Replace the weights by an index that names these files."""
    weights = load_file(folder / "model.safetensors")
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    of = {key: names[place % len(names)] for place, key in enumerate(weights)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": of}))


def test_an_index_of_weights_names_safetensors_beside_it(folder: Path) -> None:
    exact = Encoder.load(folder).encode(["a dog"])
    shard(folder, "part.safetensors")
    assert (Encoder.load(folder).encode(["a dog"]) == exact).all()
    shutil.copy(folder / "part.safetensors", folder.parent / "part.safetensors")
    for names, message in {
        ("pytorch_model.bin",): r"pytorch_model.bin .*is a pickle.*--trust-pickle",
        ("part.safetensors", "pytorch_model.bin"): r"is a pickle",
        ("../part.safetensors",): r"index.json: it names '../part.safetensors'; expected a file beside it",
        (str(folder.parent / "part.safetensors"),): r"expected a file beside it",
        ("missing.safetensors",): r"missing.safetensors is missing",
    }.items():
        (folder / "part.safetensors").rename(folder / "model.safetensors")
        shard(folder, *names)
        refused(folder, message)
    refused(folder, "is missing", trust_pickle=True)
    for content in ("[]", "{}", '{"weight_map": 5}'):
        (folder / "model.safetensors.index.json").write_text(content)
        refused(folder, r"index\.json: expected")


@pytest.mark.parametrize(
    "fields",
    [
        {"_attn_implementation": "someone/kernel"},
        {"attn_implementation": "someone/kernel@main:forward"},
        {"attn_implementation": {"": "sdpa", "text_config": "someone/kernel"}},
        {"_attn_implementation_internal": "someone/kernel"},
        {"attn_implementation": "paged|someone/kernel"},
        {"attn_implementation": "flash_attention_2"},
        {"text_config": {"attn_implementation": "someone/kernel"}},
        {"experts_implementation": "someone/kernel"},
        {"quantization_config": {"quant_method": "fp8"}},
    ],
    ids=str,
)
def test_foreign_code_is_not_reached_without_trust(folder: Path, fields: dict[str, Any], monkeypatch) -> None:
    def reached(*_: Any, **__: Any) -> None:
        pytest.fail("transformers was asked to load it")

    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", reached)
    change(folder / "config.json", **fields)
    refused(folder, r"config\.json: .*(_implementation|has a quantization_config).*--trust-remote-code")


def test_built_in_attention_may_be_named(folder: Path) -> None:
    change(folder / "config.json", _attn_implementation="eager")
    assert Encoder.load(folder).dimensions == 32


def test_code_that_comes_with_a_model_needs_trust(folder: Path) -> None:
    (folder / "own.py").write_text("raise SystemExit('ran')")
    auto = {"AutoConfig": "own.Config", "AutoModel": "own.Model", "AutoTokenizer": ["own.Slow", "own.Fast"]}
    change(folder / "tokenizer_config.json", auto_map=auto)
    change(folder / "config.json", auto_map=auto)
    assert Encoder.load(folder).dimensions == 32  # a family that transformers has: its own code is used
    change(folder / "config.json", model_type="mine")
    refused(folder, "--trust-remote-code")


def test_an_adapter_is_not_followed(folder: Path) -> None:
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "someone/model"}')
    refused(folder, "has an adapter")


@pytest.mark.parametrize("name", ["../model.safetensors", "pytorch_model.bin", "other.safetensors", 5])
def test_a_config_cannot_name_other_weights(folder: Path, name: Any) -> None:
    change(folder / "config.json", transformers_weights=name)
    refused(folder, r"config\.json: transformers_weights is")


@pytest.mark.parametrize(
    ("file", "fields", "message"),
    [
        ("twinpass.json", {"max_tokens": -5}, r"twinpass\.json: max_tokens is -5; expected a whole number, 3 or more"),
        ("twinpass.json", {"max_tokens": True}, r"max_tokens is True"),
        ("twinpass.json", {"prompt": "x" * 10_001}, r"prompt is .*at most 10,000 characters, not 10,001"),
        ("twinpass.json", {"layers": [5]}, r"layers is \(5,\); expected names of folders"),
        ("twinpass.json", {"layers": ["normalize"] * 2000}, "at most 1,000 layers"),
        ("twinpass.json", {"lowercase": "yes"}, "lowercase cannot be 'yes'"),
        ("config.json", {"num_hidden_layers": 1_000_000}, r"config\.json: num_hidden_layers is 1000000, and"),
        ("config.json", {"num_hidden_layers": -1}, "num_hidden_layers is -1; expected a whole number above 0"),
        ("config.json", {"hidden_size": 10**9}, r"hidden_size is 1000000000, and no tensor"),
        ("config.json", {"hidden_size": "32"}, r"hidden_size is '32'; expected a whole number"),
        ("config.json", {"vocab_size": 10**7}, "vocab_size is 10000000, and no tensor"),
        ("config.json", {"max_position_embeddings": 0}, "position_embeddings|3 or more"),
        ("tokenizer_config.json", {"model_max_length": -5}, "model_max_length .*room for -5 tokens"),
        ("2_Dense/config.json", {"out_features": 10**9}, r"2_Dense/config\.json: out_features is 1000000000"),
        ("2_Dense/config.json", {"in_features": "32"}, r"in_features is '32'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_values_that_no_model_has_are_refused_with_file_and_field(folder: Path, file, fields, message) -> None:
    change(folder / file, **fields)
    refused(folder, message)


def test_limits_of_sentence_transformers_files_are_checked_too(folder: Path) -> None:
    (folder / "twinpass.json").unlink()
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": "many"}')
    refused(folder, r"as sentence-transformers' files describe it: max_tokens is 'many'")


def beyond_vocabulary(tokenizer: dict[str, Any]) -> None:
    tokenizer["model"]["vocab"]["dog"] = 99_999


def beyond_special(tokenizer: dict[str, Any]) -> None:
    tokenizer["post_processor"]["special_tokens"]["[CLS]"]["ids"] = [99_999]


@pytest.mark.parametrize("damage", [beyond_vocabulary, beyond_special])
def test_a_token_without_a_row_in_the_word_table_is_refused(folder: Path, damage: Callable[..., None]) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    damage(tokenizer)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    refused(folder, r"tokenizer\.json: the token '.*' has id 99999, and the model has vectors for \d+ tokens")


def test_a_tensor_of_another_shape_is_named_with_both_shapes(folder: Path) -> None:
    name, weights = "encoder.layer.1.attention.self.query.weight", load_file(folder / "model.safetensors")
    weights[name] = weights[name][:, :16].contiguous()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "SHA256SUMS").unlink()
    refused(folder, rf"{name} is \(32, 16\) in the file and \(32, 32\) by config\.json")


def test_shapes_are_read_from_the_header_alone(folder: Path) -> None:
    path = folder / "model.safetensors"
    assert read_shapes(path) == {name: tuple(tensor.shape) for name, tensor in load_file(path).items()}
    two, nine = (number.to_bytes(8, "little") for number in (2, 9))
    for content in (b"", b"\xff" * 8 + b"{}", two + b"[]", nine + b'{"a": {}}'):
        path.write_bytes(content)
        with pytest.raises(ModelError, match="no whole safetensors file"):
            read_shapes(path)
