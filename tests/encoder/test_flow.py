"""The flow against a naive transcription of Glow, against autograd, and against itself backwards."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from twinpass.encoder import flow as flow_room
from twinpass.encoder.flow import ActNorm, Flow, fit_flow
from twinpass.errors import ConfigError, TrainingError


def stirred(dimensions: int, **shape: int) -> Flow:
    """A flow in float64 whose every weight is something, so that every part shows in the result."""
    torch.manual_seed(0)
    flow = Flow(dimensions, **shape).double()
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.normal_(0.0, 0.2)
    return flow


def drawn(count: int, dimensions: int, *, seed: int = 0) -> np.ndarray:
    """Vectors as raw encoders give them: far from the origin, long in a few directions."""
    random = np.random.default_rng(seed)
    mixed = random.normal(size=(count, dimensions)) @ random.normal(size=(dimensions, dimensions))
    return (5.0 + mixed * random.uniform(0.1, 3.0, dimensions)).astype(np.float32)


def norm(part: ActNorm, x: list[float]) -> list[float]:
    return [
        (value + b) * math.exp(3.0 * s)
        for value, b, s in zip(x, part.bias.tolist(), part.log_scale.tolist(), strict=True)
    ]


def naive_loss(flow: Flow, vectors: np.ndarray) -> float:
    """Bits per dimension, a number at a time."""
    total = 0.0
    for vector in vectors.tolist():
        x, log_determinant, codes = vector, 0.0, []
        for number, level in enumerate(flow.levels):
            for step in level:
                log_determinant += sum(3.0 * s for s in step.norm.log_scale.tolist())
                x = norm(step.norm, x)[::-1]
                half = len(x) // 2
                hidden = x[:half]
                for place in (0, 3, 6):
                    rows = step.shift[place].weight.tolist()
                    hidden = [sum(w * h for w, h in zip(row, hidden, strict=True)) for row in rows]
                    hidden = norm(step.shift[place + 1], hidden)
                    hidden = hidden if place == 6 else [max(0.0, h) for h in hidden]
                x = x[:half] + [a + b for a, b in zip(x[half:], hidden, strict=True)]
            if number < len(flow.levels) - 1:
                codes += x[len(x) // 2 :]
                x = x[: len(x) // 2]
        codes += x
        log_prob = sum(-0.5 * math.log(2 * math.pi) - z * z / 2 for z in codes) + log_determinant
        total -= log_prob / (math.log(2) * len(vector))
    return total / len(vectors)


def backwards(flow: Flow, codes: torch.Tensor) -> torch.Tensor:
    """The vectors that codes came from: every step undone, the last first."""
    vectors = codes[:, :0]
    for level, part in zip(reversed(flow.levels), reversed(torch.split(codes, flow.leaving, dim=-1)), strict=True):
        vectors = torch.cat([vectors, part], dim=-1)
        for step in reversed(level):
            kept, moved = vectors[:, : step.kept], vectors[:, step.kept :]
            vectors = torch.cat([kept, moved - step.shift(kept)], dim=-1).flip(-1)
            vectors = vectors * (-3.0 * step.norm.log_scale).exp() - step.norm.bias
    return vectors


@pytest.mark.parametrize("dimensions", [8, 11, 24])
def test_loss_equals_a_naive_transcription(dimensions: int) -> None:
    flow = stirred(dimensions, width=5)
    vectors = np.random.default_rng(1).normal(size=(4, dimensions))
    assert flow.loss(torch.from_numpy(vectors)).item() == pytest.approx(naive_loss(flow, vectors), abs=1e-10)


@pytest.mark.parametrize(("dimensions", "levels"), [(8, 3), (13, 3), (5, 2), (32, 1)])
def test_it_runs_backwards_exactly(dimensions: int, levels: int) -> None:
    flow = stirred(dimensions, levels=levels)
    vectors = torch.randn(6, dimensions, dtype=torch.float64)
    codes = flow(vectors)
    assert codes.shape == vectors.shape and not torch.allclose(codes, vectors)
    torch.testing.assert_close(backwards(flow, codes), vectors, atol=1e-12, rtol=0)


def test_log_determinant_equals_the_jacobians() -> None:
    flow = stirred(11, width=4)
    vector = torch.randn(1, 11, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda x: flow(x)[0], vector)[:, 0]
    normal = torch.distributions.Normal(0.0, 1.0).log_prob(flow(vector)).sum()
    expected = normal + torch.linalg.slogdet(jacobian).logabsdet
    torch.testing.assert_close(flow.log_prob(vector)[0], expected, atol=1e-10, rtol=0)


def test_it_starts_as_a_norm_of_the_sample() -> None:
    data = torch.from_numpy(drawn(200, 16)).double()
    data[:, 3] = 7.0  # nothing to scale there
    flow = Flow(16).double()
    flow.start_from(data)
    codes = flow(data).detach()
    torch.testing.assert_close(codes.mean(dim=0), torch.zeros(16, dtype=torch.float64), atol=1e-9, rtol=0)
    spread = codes.std(dim=0, unbiased=False).sort().values
    assert spread[0] < 1e-9 and torch.allclose(spread[1:], torch.ones(15, dtype=torch.float64), atol=1e-9)
    hidden = [part for step in flow.levels[0] for part in step.shift if isinstance(part, ActNorm)]
    assert all(part.bias.any() for part in hidden[0::3])  # the norms inside couplings start from data too
    assert not list(flow.modules())[1]._forward_pre_hooks


def test_fitting_makes_the_loss_small_and_is_seeded() -> None:
    vectors, held_out = np.split(drawn(900, 16), [700])
    before = torch.random.get_rng_state()
    counts: list[int] = []
    first = fit_flow(vectors, seed=3, advance=counts.append)
    assert torch.equal(torch.random.get_rng_state(), before)  # nobody else's numbers are drawn
    assert sum(counts) == 700 and max(counts) == 32
    start = Flow(16)
    start.start_from(torch.from_numpy(vectors))
    with torch.no_grad():
        fitted, started = (each.loss(torch.from_numpy(held_out)) for each in (first, start))
    assert fitted < started - 0.05
    again, other = fit_flow(vectors, seed=3), fit_flow(vectors, seed=4)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.levels[0][0].norm.bias, other.levels[0][0].norm.bias)
    assert not first.training


def test_too_few_dimensions_are_refused() -> None:
    with pytest.raises(ConfigError, match="needs at least 8 dimensions, got 7"):
        Flow(7)


def test_a_loss_that_is_no_number_stops_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_room, "INITIALISED_FROM", 10)
    vectors = drawn(40, 8)
    vectors[:, 0] = np.linspace(0, 1, 40)
    vectors[vectors[:, 0].argmax()] = 3e38
    with pytest.raises(TrainingError, match="far larger than the others"):
        fit_flow(vectors, seed=0)
