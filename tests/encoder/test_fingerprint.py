"""A fingerprint is computed once, and again after every change of what vectors depend on."""

from __future__ import annotations

import copy
import hashlib
import pickle
from collections.abc import Callable

import pytest
import torch
from tests.tiny import SENTENCES

from twinpass import Encoder
from twinpass.encoder.any_model import open_model
from twinpass.encoder.layers import FITS, keep_layers, linear_layer, with_layer
from twinpass.encoder.model import Normalize


@pytest.fixture
def encoder(checkpoints) -> Encoder:
    return Encoder.load(checkpoints("bert"), pooler="avg", device="cpu")


def test_a_second_call_does_no_hashing(encoder, monkeypatch) -> None:
    first = encoder.fingerprint
    encoder.encode(SENTENCES)
    monkeypatch.setattr(hashlib, "sha256", lambda *_: pytest.fail("hashed again"))
    assert encoder.fingerprint == first


def step(**options: bool) -> Callable[[Encoder], None]:
    def take(encoder: Encoder) -> None:
        encoder.model.train()
        optimizer = torch.optim.AdamW(encoder.model.parameters(), **options)
        encoder.model(encoder.pad(encoder.tokenize(SENTENCES[:2]))).sum().backward()
        optimizer.step()
        encoder.model.eval()

    return take


def add_in_place(encoder: Encoder) -> None:
    with torch.no_grad():
        next(encoder.model.parameters()).add_(1e-3)


def add_in_inference_mode(encoder: Encoder) -> None:
    with torch.inference_mode():
        next(encoder.model.parameters()).add_(1e-3)


def load_other_weights(encoder: Encoder) -> None:
    state = {
        name: tensor + 1 if tensor.is_floating_point() else tensor
        for name, tensor in encoder.model.state_dict().items()
    }
    encoder.model.load_state_dict(state)


def assign_other_weights(encoder: Encoder) -> None:
    state = {name: tensor.clone() * 2 for name, tensor in encoder.model.state_dict().items()}
    encoder.model.load_state_dict(state, assign=True)


def replace_a_parameter(encoder: Encoder) -> None:
    linear = encoder.model.transformer.encoder.layer[0].output.dense
    linear.weight = torch.nn.Parameter(linear.weight.detach() * 2)


def append_a_layer(encoder: Encoder) -> None:
    encoder.model.layers.append(Normalize())


def change_a_tokenizer(encoder: Encoder) -> None:
    encoder.tokenizer.backend_tokenizer.normalizer = None


def add_tokens(encoder: Encoder) -> None:
    encoder.tokenizer.add_tokens(["zebras"])


def change_the_activation(encoder: Encoder) -> None:
    encoder.model.transformer.config.hidden_act = "relu"


CHANGES = [
    step(foreach=False),
    step(foreach=True),
    step(fused=True),
    add_in_place,
    add_in_inference_mode,
    load_other_weights,
    assign_other_weights,
    replace_a_parameter,
    append_a_layer,
    change_a_tokenizer,
    add_tokens,
    change_the_activation,
    lambda encoder: keep_layers(encoder, 1),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: getattr(change, "__name__", ""))
def test_every_change_is_noticed(encoder, change: Callable[[Encoder], None]) -> None:
    before = encoder.fingerprint
    change(encoder)
    after = encoder.fingerprint
    assert after != before
    encoder._fingerprint = None
    assert encoder.fingerprint == after


def test_a_replaced_layer_is_noticed_wherever_it_lies_in_memory(encoder) -> None:
    vectors = encoder.encode(SENTENCES)
    fitted = with_layer(encoder, FITS["centring"](vectors))
    seen = {fitted.fingerprint}
    for shift in range(1, 20):  # a new layer may get the address of the one before
        del fitted.model.layers[0]
        fitted.model.layers.append(linear_layer(vectors[0] * shift, torch.eye(32).numpy()))
        seen.add(fitted.fingerprint)
    assert len(seen) == 20


def test_weights_without_a_version_are_hashed_every_time(encoder) -> None:
    with torch.inference_mode():
        encoder.model.load_state_dict({k: v.clone() for k, v in encoder.model.state_dict().items()}, assign=True)
        before = encoder.fingerprint
        next(encoder.model.parameters()).mul_(2)
        assert encoder.fingerprint != before


def test_a_copy_has_the_same_fingerprint_and_its_own_changes(encoder) -> None:
    before = encoder.fingerprint
    other = copy.deepcopy(encoder)
    assert other.fingerprint == before
    add_in_place(other)
    assert other.fingerprint != before == encoder.fingerprint


def test_a_pickle_has_the_same_fingerprint(checkpoints) -> None:
    encoder = Encoder.load(checkpoints("bert"), pooler="cls", device="cpu")
    before = encoder.fingerprint
    assert pickle.loads(pickle.dumps(encoder)).fingerprint == before


def test_an_encoder_is_a_model_and_says_how_it_runs(encoder) -> None:
    model = open_model(encoder)
    assert (model.name, model.fingerprint) == (encoder.name, f"{encoder.fingerprint}-fp32-torch")
    assert (model.encode(SENTENCES) == encoder.encode(SENTENCES)).all()
    shown = repr(encoder)
    assert encoder.name in shown and "pooler avg" in shown and "32 dimensions" in shown and "cpu, fp32" in shown
