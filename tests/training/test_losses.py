"""The losses beyond the paper's equations are their formulas, written as loops, and so are their gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from twinpass import equations
from twinpass.training.losses import ranked_pairs, same_class, several_negatives

DRAW = torch.Generator().manual_seed(1)
H, POSITIVE, NEGATIVE = (torch.randn(n, 5, generator=DRAW, dtype=torch.float64) for n in (4, 4, 6))
OWNER = torch.tensor([0, 0, 0, 2, 3, 3])  # row 1 has none
TAU = 0.3


def sim(a: Tensor, b: Tensor, similarity: str = "cosine") -> float:
    return float(a @ b) if similarity == "dot" else float(a @ b / a.norm() / b.norm())


def naive_several(alpha: float, similarity: str, mask: Tensor | None) -> float:
    losses = []
    for i in range(4):
        below = 0.0
        for j in range(4):
            if j == i or mask is None or not mask[i, j]:
                below += math.exp(sim(H[i], POSITIVE[j], similarity) / TAU)
        for m in range(6):
            if mask is None or not mask[i, 4 + m]:
                below += (alpha if OWNER[m] == i else 1.0) * math.exp(sim(H[i], NEGATIVE[m], similarity) / TAU)
        losses.append(-math.log(math.exp(sim(H[i], POSITIVE[i], similarity) / TAU) / below))
    return sum(losses) / 4


@pytest.mark.parametrize("alpha", [1.0, 2.5])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("masked", [False, True])
def test_several_negatives_are_the_naive_sum(alpha: float, similarity: str, masked: bool) -> None:
    mask = torch.rand(4, 10, generator=torch.Generator().manual_seed(2)) < 0.3 if masked else None
    options = {"alpha": alpha, "temperature": TAU, "similarity": similarity, "mask": mask}
    found = several_negatives(H, POSITIVE, NEGATIVE, OWNER, **options)
    assert found.item() == pytest.approx(naive_several(alpha, similarity, mask))


def test_one_negative_each_is_eq_8_and_none_is_eq_1() -> None:
    one = several_negatives(H, POSITIVE, NEGATIVE[:4], torch.arange(4), alpha=2.0)
    assert torch.equal(one, equations.weighted(H, POSITIVE, NEGATIVE[:4], alpha=2.0))
    none = several_negatives(H, POSITIVE, NEGATIVE[:0], OWNER[:0], alpha=2.0)
    assert none.item() == pytest.approx(equations.info_nce(H, POSITIVE).item())


def naive_same_class(h: Tensor, classes: list[int], mask: Tensor | None) -> float:
    losses = []
    for i, own in enumerate(classes):
        positives = [p for p, other in enumerate(classes) if other == own and p != i]
        others = [a for a in range(len(h)) if a != i and (a in positives or mask is None or not mask[i, a])]
        below = sum(math.exp(sim(h[i], h[a]) / TAU) for a in others)
        if positives:
            shares = [math.log(math.exp(sim(h[i], h[p]) / TAU) / below) for p in positives]
            losses.append(-sum(shares) / len(positives))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("classes", [[0, 0, 1, 1, 1, 0], [0, 0, 0, 0, 2, 2], [0, 1, 1, 1, 2, 2], [3] * 6])
@pytest.mark.parametrize("masked", [False, True])
def test_same_class_is_the_naive_mean_over_all_positives(classes: list[int], masked: bool) -> None:
    mask = torch.rand(6, 6, generator=torch.Generator().manual_seed(2)) < 0.3 if masked else None
    found = same_class(NEGATIVE, torch.tensor(classes), temperature=TAU, mask=mask)
    assert found.item() == pytest.approx(naive_same_class(NEGATIVE, classes, mask))


@pytest.mark.parametrize("scores", [[1.0, 3.0, 2.0, 3.0], [0.5, 0.4, 0.3, 0.2], [1.0, 1.0, 1.0, 1.0]])
def test_ranked_pairs_is_the_naive_sum(scores: list[float]) -> None:
    total = 1.0
    for i in range(4):
        for j in range(4):
            if scores[i] > scores[j]:
                total += math.exp((sim(H[j], POSITIVE[j]) - sim(H[i], POSITIVE[i])) / TAU)
    found = ranked_pairs(H, POSITIVE, torch.tensor(scores), temperature=TAU)
    assert found.item() == pytest.approx(math.log(total))


def test_the_gradients_are_those_of_finite_differences() -> None:
    h, positive, negative = (each.clone().requires_grad_() for each in (H, POSITIVE, NEGATIVE))
    scores, classes = torch.tensor([1.0, 3.0, 2.0, 3.0]), torch.tensor([0, 0, 1, 1, 2, 1])
    mask = torch.zeros(6, 6, dtype=torch.bool).index_fill(1, torch.tensor([2]), True)
    cases = [
        (lambda a, b, c: several_negatives(a, b, c, OWNER, alpha=2.0, temperature=TAU), (h, positive, negative)),
        (lambda c: same_class(c, classes, temperature=TAU, mask=mask), (negative,)),
        (lambda a, b: ranked_pairs(a, b, scores, temperature=TAU), (h, positive)),
    ]
    for loss, inputs in cases:
        assert torch.autograd.gradcheck(loss, inputs)
