"""LoRA: the formula, what is trained and saved, exact resume, adapters and merged models, and the lean step."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.tiny import make_checkpoint
from tests.training.tiny_runs import gradient_of, make_sentences, spread

from twinpass.encoder.encoder import Encoder
from twinpass.encoder.lora import add_lora, merged
from twinpass.errors import ConfigError, MissingExtra, ModelError
from twinpass.files import sha256
from twinpass.log import Stepped
from twinpass.training.lean import lean_layers
from twinpass.training.loop import train

pytest.importorskip("peft")
TEXTS = make_sentences(5)
ROWS = make_sentences(30)


@pytest.fixture
def lora_run(make_run, model: str):
    """A short run of LoRA on the tiny model."""
    return lambda **fields: make_run(**({"model": model, "lora": 4, "learning_rate": 1e-2} | fields))


def weights(encoder: Encoder) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in encoder.model.transformer.state_dict().items()}


def test_merging_is_the_formula(model: str):
    encoder = Encoder.load(model, device="cpu")
    before, vectors = weights(encoder), encoder.encode(TEXTS)
    add_lora(encoder, 4, 12)
    np.testing.assert_allclose(encoder.encode(TEXTS), vectors, atol=1e-6)  # B starts at zero
    for name, parameter in encoder.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(len(name)))
    adapted, small = encoder.encode(TEXTS), weights(encoder)
    after = weights(merged(encoder))
    changed = 0
    for name, tensor in before.items():
        start = name.removesuffix(".weight")
        if f"{start}.lora_A.default.weight" in small:
            a, b = (small[f"{start}.lora_{letter}.default.weight"] for letter in "AB")
            product = torch.tensor(
                [[sum(b[i, k] * a[k, j] for k in range(4)) for j in range(a.shape[1])] for i in range(len(b))]
            )
            torch.testing.assert_close(after[name], tensor + 12 / 4 * product, rtol=1e-4, atol=1e-4)
            changed += 1
        else:
            assert torch.equal(after[name], tensor)
    assert changed and list(after) == list(before)
    np.testing.assert_allclose(encoder.encode(TEXTS), adapted, rtol=1e-3, atol=1e-4)
    assert np.abs(adapted - vectors).max() > 1e-2


def test_only_the_small_matrices_are_trained_and_the_result_is_a_whole_model(lora_run, model: str, tmp_path: Path):
    run = lora_run()
    _, gradients = gradient_of(run, ROWS, [3, 1, 4, 0, 5, 8, 2])
    assert gradients and all(".lora_" in name for name in gradients)
    assert any(np.abs(gradient).max() > 0 for gradient in gradients.values())
    result = train(lora_run(), rows=ROWS, overwrite=True)
    assert not (result.output / "adapter_config.json").exists() and (result.output / "modules.json").is_file()
    trained, base = Encoder.load(result.output, device="cpu"), Encoder.load(model, device="cpu")
    differ = [name for name, tensor in weights(base).items() if not torch.equal(tensor, weights(trained)[name])]
    assert differ and all(".layer." in name and name.endswith("weight") for name in differ)


def stop(event: Any) -> None:
    if isinstance(event, Stepped) and event.step == 3:
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("merge", [True, False])
def test_an_interrupted_run_ends_bit_identical_and_checkpoints_hold_only_the_adapter(
    lora_run, tmp_path: Path, merge: bool
):
    options = {"steps": 5, "save_every": 2, "eval_every": 2, "lora_merge": merge, "chunk_tokens": 40}
    whole = train(lora_run(output=str(tmp_path / "whole"), **options), rows=ROWS, evaluate=spread)
    run = lora_run(output=str(tmp_path / "stopped"), **options)
    assert not train(run, rows=ROWS, evaluate=spread, on_event=stop).finished
    (checkpoint,) = (tmp_path / "stopped" / "checkpoints").glob("step-00000003")
    assert (checkpoint / "adapter_model.safetensors").is_file() and not (checkpoint / "model.safetensors").exists()
    resumed = train(run, rows=ROWS, evaluate=spread, resume=True)
    file = "model.safetensors" if merge else "adapter_model.safetensors"
    assert resumed.finished and (resumed.loss, resumed.best) == (whole.loss, whole.best)
    assert sha256(resumed.output / file) == sha256(whole.output / file)
    again = train(run, rows=ROWS, evaluate=spread, resume=True)
    assert "finished before" in again.advice


def test_a_base_that_changed_is_not_resumed_with(lora_run, model: str, tmp_path: Path):
    base = tmp_path / "base"
    shutil.copytree(model, base)
    run = lora_run(model=str(base), output=str(tmp_path / "out"), steps=4)
    assert not train(run, rows=ROWS, on_event=stop).finished
    other = make_checkpoint(tmp_path / "other", seed=9)
    shutil.copy(other / "model.safetensors", base)
    with pytest.raises(ModelError, match="not those that it was trained with"):
        train(run, rows=ROWS, resume=True)
    shutil.copy(Path(model) / "model.safetensors", base)
    assert train(run, rows=ROWS, resume=True).finished


def test_an_adapter_loads_with_its_model_in_twinpass_and_in_peft(lora_run, model: str, tmp_path: Path):
    from peft import PeftModel
    from transformers import AutoModel

    output = train(lora_run(lora_merge=False), rows=ROWS).output
    files = {path.name for path in output.iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors"} <= files and "model.safetensors" not in files
    encoder = Encoder.load(output, device="cpu")
    kept = Encoder.load(output, device="cpu", keep_adapter=True)
    np.testing.assert_allclose(encoder.encode(TEXTS), kept.encode(TEXTS), rtol=1e-4, atol=1e-5)
    theirs = PeftModel.from_pretrained(AutoModel.from_pretrained(model), str(output)).eval()
    features = encoder.pad(encoder.tokenize(TEXTS))
    with torch.no_grad():
        states = theirs.base_model.model(**features).last_hidden_state
        ours = encoder.model.eval().hidden(features).last_hidden_state
    mask = features["attention_mask"].bool()
    torch.testing.assert_close(ours[mask], states[mask], rtol=1e-3, atol=1e-4)
    encoder.save(tmp_path / "whole")  # loaded, it is a model like any other
    assert not {"base", "base_weights"} & json.loads((tmp_path / "whole" / "twinpass.json").read_text()).keys()
    assert kept.settings.base == model and kept.settings.base_weights
    np.testing.assert_allclose(
        Encoder.load(tmp_path / "whole", device="cpu").encode(TEXTS), encoder.encode(TEXTS), atol=1e-5
    )
    with pytest.raises(ConfigError, match="is an adapter itself"):
        train(lora_run(model=str(output), output=str(tmp_path / "twice")), rows=ROWS)
    with pytest.raises(Exception, match="already holds a model"):
        train(lora_run(lora_merge=False), rows=ROWS)
    settings = output / "twinpass.json"
    document = json.loads(settings.read_text(encoding="utf-8"))
    settings.write_text(json.dumps(document | {"base": "/nowhere/model"}), encoding="utf-8")
    with pytest.warns(UserWarning, match="changed since"), pytest.raises(ModelError, match="not on this machine"):
        Encoder.load(output, device="cpu")


def test_the_lean_step_leaves_adapted_layers_to_torch(model: str):
    encoder = Encoder.load(model, device="cpu", dropout=0.0)
    add_lora(encoder, 4, 8)
    layer = encoder.model.transformer.encoder.layer[0]
    with lean_layers([encoder.model], torch.device("cpu")):
        assert "forward" not in vars(layer)
        features = encoder.pad(encoder.tokenize(TEXTS))
        encoder.model.train()
        encoder.model(features).sum().backward()
    lean = {n: p.grad.clone() for n, p in encoder.model.named_parameters() if p.grad is not None}
    encoder.model.zero_grad()
    encoder.model(features).sum().backward()
    plain = {n: p.grad for n, p in encoder.model.named_parameters() if p.grad is not None}
    assert lean.keys() == plain.keys() and all(".lora_" in name for name in lean)
    for name, gradient in plain.items():
        torch.testing.assert_close(lean[name], gradient, rtol=1e-4, atol=1e-5)


def test_gradient_checkpointing_reaches_the_small_matrices(lora_run):
    batch = [3, 1, 4, 0, 5]
    plain = gradient_of(lora_run(dropout=0.0, clip=1e9), ROWS, batch)[1]
    saved = gradient_of(lora_run(dropout=0.0, clip=1e9, grad_checkpointing=True), ROWS, batch)[1]
    for name, gradient in plain.items():
        np.testing.assert_allclose(saved[name], gradient, rtol=1e-3, atol=1e-5)


def test_what_cannot_be_is_refused(lora_run, model: str, monkeypatch: pytest.MonkeyPatch):
    for fields, message in (
        ({"lora": 0}, "lora must be 1 or more"),
        ({"lora": None, "lora_alpha": 4}, "give lora, too"),
        ({"lora": None, "lora_merge": False}, "give lora, too"),
        ({"mlm_weight": 0.1}, "which mlm_weight trains"),
        ({"method": "ct"}, "ct does not use lora"),
    ):
        with pytest.raises(ConfigError, match=message):
            lora_run(**fields).check()
    with pytest.raises(ConfigError, match="needs a model by name"):
        train(lora_run(), rows=ROWS, encoder=Encoder.load(model, device="cpu"))
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtra, match=r"twinpass\[lora\]"):
        train(lora_run(), rows=ROWS)


def test_an_adapter_is_refused_beside_other_weights(lora_run, model: str, tmp_path: Path):
    base = tmp_path / "base"
    shutil.copytree(model, base)
    adapter = train(lora_run(model=str(base), lora_merge=False), rows=ROWS).output
    (base / "pytorch_model.bin").write_bytes(b"a pickle beside the safetensors, which is not read")
    assert Encoder.load(adapter, device="cpu").encode(TEXTS).shape[0] == len(TEXTS)
    shutil.copy(make_checkpoint(tmp_path / "other", seed=9) / "model.safetensors", base)
    with pytest.raises(ModelError, match="not those that it was trained with"):
        Encoder.load(adapter, device="cpu")


def test_a_pickled_model_of_the_hub_is_adapted_without_being_asked_for_again(
    lora_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    base = make_checkpoint(tmp_path / "base")
    torch.save(load_file(base / "model.safetensors"), base / "pytorch_model.bin")
    (base / "model.safetensors").unlink()

    def snapshot(name: str, *, local_files_only: bool = False, **_: Any) -> str:
        if not local_files_only:
            raise LocalEntryNotFoundError("offline")
        return str(base)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    run = lora_run(model="nobody/pickled", pooler="avg", trust_pickle=True, lora_merge=False)
    adapter = train(run, rows=ROWS).output
    encoder = Encoder.load(adapter, device="cpu", trust_pickle=True)
    assert encoder.encode(TEXTS).shape[0] == len(TEXTS)
    with pytest.raises(ModelError, match="is a pickle"):
        Encoder.load(adapter, device="cpu")
