"""Batches: every text once, within the budget, with little padding, at the least cost."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinpass.text.batch import cut


def padded_tokens(lengths: np.ndarray, batches: list[np.ndarray]) -> int:
    return int(sum(len(batch) * lengths[batch].max() for batch in batches))


@given(lengths=st.lists(st.integers(1, 300), max_size=200), budget=st.integers(1, 2000), cost=st.floats(0, 500))
def test_every_text_once_and_within_the_budget(lengths: list[int], budget: int, cost: float) -> None:
    array = np.array(lengths, dtype=np.int64)
    batches = cut(array, token_budget=budget, batch_cost=cost)
    assert sorted(int(i) for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * array[batch].max() <= budget


@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=7), cost=st.sampled_from([0.0, 3.0, 20.0]))
def test_no_other_grouping_by_length_is_cheaper(lengths: list[int], cost: float) -> None:
    array = np.sort(np.array(lengths, dtype=np.int64))[::-1]
    batches = cut(array, token_budget=10**6, batch_cost=cost)
    ours = padded_tokens(array, batches) + cost * len(batches)
    for cuts in itertools.product([False, True], repeat=len(array) - 1):
        groups = np.split(np.arange(len(array)), [place + 1 for place, here in enumerate(cuts) if here])
        assert ours <= padded_tokens(array, groups) + cost * len(groups) + 1e-9


def test_padding_stays_under_five_per_cent() -> None:
    lengths = np.random.default_rng(0).gamma(2.0, 12.0, size=3000).astype(np.int64).clip(3, 256)
    batches = cut(lengths, token_budget=4096)
    assert padded_tokens(lengths, batches) < 1.05 * lengths.sum()


@pytest.mark.parametrize("name", ["sts-dev.csv", "sts-test.csv"])
def test_padding_on_real_sentences(name: str, shared) -> None:
    path = shared / "data/senteval/downstream/STS/STSBenchmark" / name
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    lengths = np.array([len(row[place].split()) + 4 for row in rows for place in (5, 6)])
    assert padded_tokens(lengths, cut(lengths, token_budget=4096)) < 1.05 * lengths.sum()
