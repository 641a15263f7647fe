"""Rows of length one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from twinpass.vectors import unit


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_rows_are_divided_by_their_own_length(kind: type) -> None:
    rows = np.random.default_rng(0).normal(scale=7, size=(5, 3)).astype(kind)
    found = unit(rows)
    assert found.dtype == kind
    for row, scaled in zip(rows, found, strict=True):
        length = math.sqrt(sum(float(x) ** 2 for x in row))
        assert scaled.tolist() == pytest.approx([float(x) / length for x in row], rel=1e-6)


def test_a_zero_row_stays_zero_and_what_was_given_is_not_changed() -> None:
    rows = np.array([[0.0, 0.0], [3.0, 4.0]], dtype=np.float32)
    assert unit(rows).tolist() == [[0, 0], pytest.approx([0.6, 0.8])]
    assert rows.tolist() == [[0, 0], [3, 4]]


def test_no_rows_give_no_rows() -> None:
    assert unit(np.empty((0, 4), dtype=np.float32)).shape == (0, 4)
