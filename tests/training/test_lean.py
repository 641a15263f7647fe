"""The step written out by hand computes what torch computes, and its dropout masks are what masks must be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny import FAMILIES
from tests.training.test_chunked import gradient
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModel

from twinpass.encoder.encoder import Encoder
from twinpass.training.chunked import encode_cached, encode_directly
from twinpass.training.lean import draw_mask, lean_layers, rounded

CPU = torch.device("cpu")
BY_HAND = ("bert", "roberta", "distilbert", "electra", "xlm-roberta")


def make_model(family: str, dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    model = AutoModel.from_config(FAMILIES[family](vocab_size=60, pad_token_id=0)).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def make_batch(*, padded: bool = True) -> dict[str, Tensor]:
    ids = torch.randint(5, 60, (4, 9), generator=torch.Generator().manual_seed(1))
    if padded:
        ids[1, 5:] = ids[3, 2:] = 0
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def loss_of(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """A loss to which every value of every token that is not padding contributes differently."""
    torch.manual_seed(3)
    states = model(**batch).last_hidden_state * batch["attention_mask"][..., None]
    return (states * torch.arange(states.numel()).view_as(states).cos()).sum()


def gradients(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """Of the batch in two chunks, as a step adds them up."""
    model.zero_grad()
    loss = torch.zeros(())
    for half in (slice(0, 2), slice(2, 4)):
        part = loss_of(model, {name: values[half] for name, values in batch.items()})
        part.backward()
        loss = loss + part.detach()
    return loss, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("padded", [True, False])
def test_without_dropout_loss_and_gradient_are_torchs(family: str, padded: bool) -> None:
    model, batch = make_model(family).eval(), make_batch(padded=padded)
    loss, expected = gradients(model, batch)
    with lean_layers([model], CPU):
        lean_loss, found = gradients(model, batch)
    torch.testing.assert_close(lean_loss, loss, rtol=1e-10, atol=1e-10)
    assert found.keys() == expected.keys()
    for name, one in expected.items():
        torch.testing.assert_close(found[name], one, rtol=1e-8, atol=1e-10, msg=lambda text, name=name: name + text)


def test_in_single_precision_too() -> None:
    model, batch = make_model("bert", torch.float32).eval(), make_batch()
    _, expected = gradients(model, batch)
    with lean_layers([model], CPU):
        _, found = gradients(model, batch)
    largest = max(float(one.abs().max()) for one in expected.values())
    for name, one in expected.items():  # that of a key's bias is zero but for rounding
        torch.testing.assert_close(found[name], one, rtol=1e-4, atol=1e-6 * largest)


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - {"modernbert"}))  # which rotates in single precision
def test_with_dropout_the_gradient_is_that_of_the_masked_network(family: str) -> None:
    """By finite differences along a random direction, with the same seed and so the same masks."""
    model, batch, small = make_model(family).train(), make_batch(), 1e-6
    with lean_layers([model], CPU):
        model.zero_grad()
        loss_of(model, batch).backward()
        used = [parameter for parameter in model.parameters() if parameter.grad is not None]
        directions = [torch.randn_like(parameter) for parameter in used]
        # A table's padding row is read, but by definition not trained.
        directions = [d * (p.grad.abs().sum(-1, keepdim=True) > 0) for d, p in zip(directions, used, strict=True)]
        slope = sum(float((p.grad * d).sum()) for p, d in zip(used, directions, strict=True))
        ends = []
        with torch.no_grad():
            for sign in (1, -2, 1):
                for parameter, direction in zip(used, directions, strict=True):
                    parameter.add_(direction, alpha=sign * small)
                ends.append(float(loss_of(model, batch)))
        again = float(loss_of(model, batch).detach())
    assert (ends[0] - ends[1]) / (2 * small) == pytest.approx(slope, rel=1e-5)
    assert again == pytest.approx(ends[2], rel=1e-12)  # with and without a graph
    if family != "albert":  # which has no dropout by default
        assert again != pytest.approx(float(loss_of(model.eval(), batch).detach()), rel=1e-3)


def test_values_are_dropped_at_the_rate_and_scaled() -> None:
    torch.manual_seed(0)
    dropout, values = nn.Dropout(0.25).train(), (0.5 + torch.rand(300, 400)).requires_grad_()
    with lean_layers([dropout], CPU):
        result = dropout(values)
        result.sum().backward()
    kept = result != 0
    assert float(kept.float().mean()) == pytest.approx(0.75, abs=5 * (0.25 * 0.75 / values.numel()) ** 0.5)
    torch.testing.assert_close(result[kept], values[kept] / 0.75)
    torch.testing.assert_close(values.grad, kept / 0.75)


@pytest.mark.parametrize("rate", [0.0, 1e-6, 0.05, 0.1, 0.5, 0.9])
def test_a_rate_is_met_to_one_part_in_65536(rate: float) -> None:
    assert abs(rounded(rate) - rate) <= 0.5 / 65536
    mask = draw_mask((1000, 1001), rate)
    if rounded(rate) == 0:
        assert mask is None
        return
    error = (rate * (1 - rate) / mask.numel()) ** 0.5
    assert float(mask.float().mean()) == pytest.approx(1 - rounded(rate), abs=5 * error)
    assert set(mask.unique().tolist()) == {0, 1}


def test_masks_of_rows_places_and_calls_are_independent() -> None:
    torch.manual_seed(0)
    first, second = (draw_mask((400, 512), 0.1).float() - 0.9 for _ in range(2))
    pairs: dict[str, tuple[Tensor, Tensor]] = {
        "calls": (first, second),
        "rows": (first[:-1], first[1:]),
        "places": (first[:, :-1], first[:, 1:]),
        "words of the generator": (first[:, :-4], first[:, 4:]),
    }
    for name, (one, other) in pairs.items():
        correlation = float((one * other).mean()) / 0.09
        assert abs(correlation) < 5 / one.numel() ** 0.5, name
    assert len({row.numpy().tobytes() for row in first}) == 400
    by_row = first.mean(dim=1).numpy() * 512**0.5 / 0.3  # standard normal
    assert np.abs(by_row).max() < 5 and by_row.std() == pytest.approx(1, abs=0.2)


def test_torchs_generator_decides_the_masks() -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first, second = draw_mask((64, 64), 0.1), draw_mask((64, 64), 0.1)
    torch.set_rng_state(state)
    assert torch.equal(draw_mask((64, 64), 0.1), first) and not torch.equal(first, second)


@pytest.mark.parametrize("budget", [16, 60])
def test_replayed_chunks_draw_the_same_masks(tiny, budget: int) -> None:
    encoder = Encoder.load(tiny, pooler="cls_mlp", fresh_head_seed=0, device="cpu")
    plain, _ = gradient(encode_directly, [encoder], budget=budget)
    with lean_layers([encoder.model], CPU):
        loss, direct = gradient(encode_directly, [encoder], budget=budget)
        cached_loss, cached = gradient(encode_cached, [encoder], budget=budget)
    assert cached_loss == loss != plain
    largest = max(np.abs(one).max() for one in direct)
    for one, other in zip(cached, direct, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6 * largest)


def test_a_table_that_is_also_a_layer_gets_both_gradients() -> None:
    table, ids = nn.Embedding(20, 6, padding_idx=0), torch.tensor([[1, 2, 2], [3, 0, 0]])

    def both() -> Tensor:
        table.zero_grad()
        F.linear(table(ids), table.weight).square().sum().backward()
        return table.weight.grad.clone()

    expected = both()
    with lean_layers([table], CPU):
        torch.testing.assert_close(both(), expected)


def test_checkpointed_layers_recompute_with_the_same_masks() -> None:
    model, batch = make_model("bert").train(), make_batch()
    for layer in model.encoder.layer:  # a checkpointed layer is torch's own, whose attention draws other masks
        layer.attention.self.dropout.p = 0.0
    with lean_layers([model], CPU):
        loss, expected = gradients(model, batch)
        model.gradient_checkpointing_enable()
        again, checkpointed = gradients(model, batch)
    assert loss != pytest.approx(float(gradients(model.eval(), batch)[0])), "nothing was dropped"
    torch.testing.assert_close(again, loss, rtol=1e-10, atol=1e-10)
    for name, one in expected.items():
        torch.testing.assert_close(checkpointed[name], one, rtol=1e-8, atol=1e-10)


def test_frozen_parameters_get_no_gradient_and_the_others_get_theirs() -> None:
    model, batch = make_model("bert").eval(), make_batch()
    frozen = [model.embeddings.word_embeddings, model.encoder.layer[0]]
    for parameter in (parameter for module in frozen for parameter in module.parameters()):
        parameter.requires_grad_(False)
    _, expected = gradients(model, batch)
    with lean_layers([model], CPU):
        _, found = gradients(model, batch)
    assert found.keys() == expected.keys() and "embeddings.position_embeddings.weight" in found
    for name, one in expected.items():
        torch.testing.assert_close(found[name], one, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("family", BY_HAND)
def test_the_model_is_as_before_afterwards_and_while_evaluating(family: str) -> None:
    model, batch = make_model(family, torch.float32).eval(), make_batch()

    def states() -> Tensor:
        with torch.no_grad():
            return model(**batch).last_hidden_state

    before, weights = states(), {name: value.clone() for name, value in model.state_dict().items()}
    with lean_layers([model, model], CPU):
        replaced = [module for module in model.modules() if "forward" in vars(module)]
        assert torch.equal(states(), before)
        assert model.state_dict().keys() == weights.keys()
    layers = sum(1 for module in replaced if hasattr(module, "gradient_checkpointing"))
    assert layers == 3, "not every layer was recognised"
    assert not [module for module in model.modules() if "forward" in vars(module)]
    assert torch.equal(states(), before)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


def test_a_gpu_keeps_torchs_own() -> None:
    model = make_model("bert")
    with lean_layers([model], torch.device("cuda")):
        assert not [module for module in model.modules() if "forward" in vars(module)]


@pytest.mark.parametrize("change", [{"hidden_act": "relu"}, {"_attn_implementation": "flex_attention"}])
def test_unusual_layers_are_left_to_torch(change: dict[str, str]) -> None:
    model = make_model("bert")
    for name, value in change.items():
        setattr(model.config, name, value)
    with lean_layers([model], CPU):
        replaced: list[Callable[..., Tensor]] = [m for m in model.modules() if "forward" in vars(m)]
        assert replaced and not [m for m in replaced if hasattr(m, "gradient_checkpointing")]


class _Scaled(nn.Linear):
    """A linear layer with something added, as LoRA adds it."""

    def forward(self, rows: Tensor) -> Tensor:
        return 2 * super().forward(rows)


def _replace_query(layer: nn.Module) -> None:
    query = _Scaled(32, 32).double()
    query.load_state_dict(layer.attention.self.query.state_dict())
    layer.attention.self.query = query


ALTERATIONS: dict[str, Callable[[Any], object]] = {
    "another class": _replace_query,
    "a parametrised weight": lambda layer: nn.utils.parametrizations.weight_norm(layer.intermediate.dense),
    "a forward hook": lambda layer: layer.output.dense.register_forward_hook(lambda *given: given[-1] * 2),
    "a hook before": lambda layer: layer.attention.output.LayerNorm.register_forward_pre_hook(
        lambda _, given: (given[0] ** 2,)
    ),
    "no bias": lambda layer: layer.output.dense.register_parameter("bias", None),
}


@pytest.mark.parametrize("alteration", ALTERATIONS)
def test_altered_layers_are_left_to_torch(alteration: str) -> None:
    model, batch = make_model("bert").eval(), make_batch()
    plain, _ = gradients(model, batch)
    ALTERATIONS[alteration](model.encoder.layer[1])
    loss, expected = gradients(model, batch)
    with lean_layers([model], CPU):
        by_hand = ["forward" in vars(layer) for layer in model.encoder.layer]
        lean_loss, found = gradients(model, batch)
    assert by_hand == [True, False, True]
    assert alteration == "a parametrised weight" or loss != pytest.approx(float(plain))
    torch.testing.assert_close(lean_loss, loss, rtol=1e-10, atol=1e-10)
    for name, one in expected.items():
        torch.testing.assert_close(found[name], one, rtol=1e-8, atol=1e-10)
