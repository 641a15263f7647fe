"""Rows of length one, and of finite numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from twinpass.errors import ModelError
from twinpass.vectors import check_finite, unit


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


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_vector_that_is_not_finite_is_refused_with_its_text(bad: float) -> None:
    vectors, texts = np.ones((4, 2), dtype=np.float32), ["a", "b", "c" * 200, "d"]
    check_finite(vectors, texts, model="m")
    check_finite(np.full((4, 2), 3e38, dtype=np.float32), texts, model="m")  # large, and fine
    vectors[2:, 1] = bad
    expected = rf"m returned NaN or infinity for 2 of 4 texts, the first of them '{'c' * 80}' \(text 102,"
    with pytest.raises(ModelError, match=expected):
        check_finite(vectors, texts, model="m", position=lambda row: 100 + row)
