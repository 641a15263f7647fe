"""Each view's objective is its equation, with the run's settings."""

from __future__ import annotations

import math

import torch

from twinpass import equations
from twinpass.config import Run
from twinpass.text.views import VIEWS
from twinpass.training.objectives import OBJECTIVES

PASSES = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
H, POSITIVE, NEGATIVE = PASSES


def test_every_view_has_an_objective() -> None:
    assert list(OBJECTIVES) == list(VIEWS)


def test_the_dropout_objective_is_eq_4() -> None:
    run = Run(temperature=0.2)
    wanted = equations.unsupervised(H, POSITIVE, temperature=0.2)
    assert torch.equal(OBJECTIVES["dropout"]([H, POSITIVE], run, None), wanted)


def test_a_shared_mask_uses_the_one_pass_twice() -> None:
    wanted = equations.unsupervised(H, H)
    assert torch.equal(OBJECTIVES["dropout"]([H], Run(share_dropout_mask=True), None), wanted)


def test_the_triplets_objective_is_eq_8() -> None:
    run = Run(hard_negative_weight=2.0)
    wanted = equations.weighted(H, POSITIVE, NEGATIVE, alpha=2.0)
    assert torch.equal(OBJECTIVES["triplets"]([H, POSITIVE, NEGATIVE], run, None), wanted)


def test_the_dot_product_goes_without_a_temperature() -> None:
    wanted = equations.info_nce(H, POSITIVE, similarity="dot", temperature=1.0)
    assert torch.equal(OBJECTIVES["pairs"]([H, POSITIVE], Run(similarity="dot"), None), wanted)


def test_the_mask_reaches_the_equation() -> None:
    everything = torch.ones(4, 4, dtype=torch.bool)
    assert OBJECTIVES["pairs"]([H, POSITIVE], Run(), everything).item() == 0.0
    assert not math.isclose(OBJECTIVES["pairs"]([H, POSITIVE], Run(), None).item(), 0.0)
