"""Every equation against the paper's formula as naive loops, and its gradient against finite differences."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from twinpass import equations as eq

TAU = 0.05


def vectors(n: int = 5, d: int = 4, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dot(a: Tensor, b: Tensor) -> float:
    return sum(float(p) * float(q) for p, q in zip(a, b, strict=True))


def cosine(a: Tensor, b: Tensor) -> float:
    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def unit(a: Tensor) -> Tensor:
    return a / math.sqrt(dot(a, a))


def naive_nce(h: Tensor, pos: Tensor, tau: float, sim: Callable[[Tensor, Tensor], float] = cosine) -> float:
    losses = []
    for i in range(len(h)):
        below = sum(math.exp(sim(h[i], pos[j]) / tau) for j in range(len(h)))
        losses.append(-math.log(math.exp(sim(h[i], pos[i]) / tau) / below))
    return sum(losses) / len(losses)


def naive_weighted(h: Tensor, pos: Tensor, neg: Tensor, tau: float, alpha: float) -> float:
    losses = []
    for i in range(len(h)):
        below = 0.0
        for j in range(len(h)):
            below += math.exp(cosine(h[i], pos[j]) / tau)
            below += alpha ** (1 if i == j else 0) * math.exp(cosine(h[i], neg[j]) / tau)
        losses.append(-math.log(math.exp(cosine(h[i], pos[i]) / tau) / below))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("tau", [0.05, 0.3, 1.0])
def test_eq1_and_eq4_are_the_loops(tau: float) -> None:
    h, pos = vectors(seed=1), vectors(seed=2)
    wanted = naive_nce(h, pos, tau)
    assert eq.info_nce(h, pos, temperature=tau).item() == pytest.approx(wanted, rel=1e-12)
    assert eq.unsupervised(h, pos, temperature=tau).item() == pytest.approx(wanted, rel=1e-12)


def test_eq1_with_the_dot_product() -> None:
    h, pos = vectors(seed=1), vectors(seed=2)
    loss = eq.info_nce(h, pos, temperature=1.0, similarity="dot")
    assert loss.item() == pytest.approx(naive_nce(h, pos, 1.0, dot), rel=1e-12)


def test_eq1_leaves_masked_candidates_out() -> None:
    h, pos = vectors(3, seed=1), vectors(3, seed=2)
    mask = torch.tensor([[True, True, False], [False, False, False], [False, False, True]])
    terms = []
    for i in range(3):
        kept = [j for j in range(3) if j == i or not mask[i, j]]
        below = sum(math.exp(cosine(h[i], pos[j]) / TAU) for j in kept)
        terms.append(-math.log(math.exp(cosine(h[i], pos[i]) / TAU) / below))
    assert eq.info_nce(h, pos, mask=mask).item() == pytest.approx(sum(terms) / 3, rel=1e-12)


def test_a_batch_of_one_has_nothing_to_tell_apart() -> None:
    assert eq.info_nce(vectors(1), vectors(1, seed=3)).item() == 0.0


def test_a_zero_vector_has_cosine_zero_and_a_finite_loss() -> None:
    assert eq.info_nce(torch.zeros(2, 3), torch.zeros(2, 3)).item() == pytest.approx(math.log(2))


def test_eq2_is_the_loop() -> None:
    x, pos = vectors(seed=1), vectors(seed=2)
    squares = [sum(float(c) ** 2 for c in unit(a) - unit(b)) for a, b in zip(x, pos, strict=True)]
    assert eq.alignment(x, pos).item() == pytest.approx(sum(squares) / len(squares), rel=1e-12)


@pytest.mark.parametrize("block", [1, 2, 3, 100])
def test_eq3_is_the_loop_whatever_the_tiles(block: int) -> None:
    x = vectors(7, seed=4)
    kernels = [
        math.exp(-2 * sum(float(c) ** 2 for c in unit(x[i]) - unit(x[j]))) for i in range(7) for j in range(i + 1, 7)
    ]
    wanted = math.log(sum(kernels) / len(kernels))
    assert eq.uniformity(x, block=block).item() == pytest.approx(wanted, rel=1e-12)


def test_eq3_refuses_a_single_vector() -> None:
    with pytest.raises(ValueError, match="expected 2 or more vectors, got 1"):
        eq.uniformity(vectors(1))


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_eq8_is_the_loop(alpha: float) -> None:
    h, pos, neg = vectors(seed=1), vectors(seed=2), vectors(seed=3)
    wanted = naive_weighted(h, pos, neg, TAU, alpha)
    assert eq.weighted(h, pos, neg, alpha=alpha).item() == pytest.approx(wanted, rel=1e-12)


def test_eq5_is_eq8_with_weight_one() -> None:
    h, pos, neg = vectors(seed=1), vectors(seed=2), vectors(seed=3)
    assert eq.supervised(h, pos, neg).item() == pytest.approx(naive_weighted(h, pos, neg, TAU, 1.0), rel=1e-12)


def test_eq5_mask_covers_positives_and_negatives() -> None:
    h, pos, neg = vectors(2, seed=1), vectors(2, seed=2), vectors(2, seed=3)
    everything = torch.ones(2, 4, dtype=torch.bool)
    assert eq.supervised(h, pos, neg, mask=everything).item() == 0.0


@pytest.mark.parametrize("block", [2, 100])
def test_eq6_is_the_loop(block: int) -> None:
    x, pos, data = vectors(3, seed=1), vectors(3, seed=2), vectors(6, seed=5)
    first = -sum(cosine(a, b) for a, b in zip(x, pos, strict=True)) / 3 / TAU
    second = sum(math.log(sum(math.exp(cosine(a, b) / TAU) for b in data) / 6) for a in data) / 6
    terms = eq.asymptotic(x, pos, data, temperature=TAU, block=block)
    assert terms.positives.item() == pytest.approx(first, rel=1e-12)
    assert terms.negatives.item() == pytest.approx(second, rel=1e-12)


def test_eq7_is_the_loop_and_bounds_eq6() -> None:
    data = vectors(6, seed=5)
    wanted = sum(cosine(a, b) for a in data for b in data) / (TAU * 36)
    assert eq.jensen_bound(data).item() == pytest.approx(wanted, rel=1e-12)
    assert eq.jensen_bound(data) <= eq.asymptotic(data, data, data).negatives


def test_eq1_tends_to_eq6() -> None:
    """With many samples, Eq. 1 less log N comes close to the sum of Eq. 6's terms."""
    x = vectors(4000, 3, seed=6)
    pos = x + 0.1 * vectors(4000, 3, seed=7)
    terms = eq.asymptotic(x, pos, pos, temperature=1.0)
    nce = eq.info_nce(x, pos, temperature=1.0) - math.log(4000)
    assert nce.item() == pytest.approx((terms.positives + terms.negatives).item(), abs=1e-3)


MASK = torch.tensor([[False, True, False], [False, False, False], [True, False, False]])

GRADIENTS: dict[str, tuple[Callable[..., Tensor], int]] = {
    "eq1": (lambda a, b: eq.info_nce(a, b, temperature=0.5), 2),
    "eq1-dot": (lambda a, b: eq.info_nce(a, b, temperature=1.0, similarity="dot"), 2),
    "eq1-mask": (lambda a, b: eq.info_nce(a, b, temperature=0.5, mask=MASK), 2),
    "eq2": (eq.alignment, 2),
    "eq3": (lambda a: eq.uniformity(a, block=2), 1),
    "eq4": (lambda a, b: eq.unsupervised(a, b, temperature=0.5), 2),
    "eq5": (lambda a, b, c: eq.supervised(a, b, c, temperature=0.5), 3),
    "eq6": (lambda a, b, c: sum(eq.asymptotic(a, b, c, temperature=0.5, block=2)), 3),
    "eq7": (lambda a: eq.jensen_bound(a, temperature=0.5), 1),
    "eq8": (lambda a, b, c: eq.weighted(a, b, c, alpha=2.0, temperature=0.5), 3),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_match_finite_differences(name: str) -> None:
    function, arity = GRADIENTS[name]
    inputs = tuple(vectors(3, 4, seed=k + 10).requires_grad_() for k in range(arity))
    assert torch.autograd.gradcheck(function, inputs)


def test_an_unknown_similarity_is_refused() -> None:
    with pytest.raises(ValueError, match="'cosine' or 'dot'"):
        eq.info_nce(vectors(), vectors(), similarity="euclid")  # type: ignore[arg-type]
