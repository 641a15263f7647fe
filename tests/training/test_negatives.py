"""Duplicates within a batch are not negatives of each other."""

from __future__ import annotations

import numpy as np
import pytest

from twinpass.training.data import text_key
from twinpass.training.negatives import false_negatives, negatives_per_anchor


def keys(*texts: str) -> np.ndarray:
    return np.array([text_key(text) for text in texts], dtype=np.uint64)


def naive(passes: list[list[str]]) -> list[list[bool]]:
    anchors, positives = passes[0], passes[1]
    count = len(anchors)
    table = []
    for i in range(count):
        own = {anchors[i], positives[i]}
        row = [j != i and (positives[j] in own or anchors[j] == anchors[i]) for j in range(count)]
        if len(passes) == 3:
            row += [passes[2][j] in own for j in range(count)]
        table.append(row)
    return table


CASES = [
    [["a", "b", "a", "c"], ["a", "b", "a", "c"]],
    [["a", "b", "c"], ["x", "y", "x"]],
    [["a", "a", "b"], ["x", "y", "z"]],
    [["a", "b", "c"], ["x", "a", "z"]],
    [["a", "b"], ["x", "y"], ["x", "a"]],
    [["a", "b", "b"], ["x", "y", "z"], ["q", "y", "b"]],
]


@pytest.mark.parametrize("passes", CASES)
def test_the_mask_is_the_naive_one(passes: list[list[str]]) -> None:
    assert false_negatives([keys(*column) for column in passes]).tolist() == naive(passes)


def test_one_shared_pass_counts_as_both_views() -> None:
    shared = false_negatives([keys("a", "b", "a")])
    assert shared.tolist() == false_negatives([keys("a", "b", "a")] * 2).tolist()


def test_negatives_are_counted_without_the_masked_ones() -> None:
    columns = [keys("a", "b", "a", "c")] * 2
    assert negatives_per_anchor(columns, None) == 3
    assert negatives_per_anchor(columns, false_negatives(columns)) == 2.5
    assert negatives_per_anchor([*columns, keys("p", "q", "r", "s")], None) == 7
