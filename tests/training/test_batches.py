"""Batches of classes hold every class twice or more, and the parts of a mixture come in turn, from any step on."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from twinpass.training.batches import Batches, ClassBatches, MixedBatches, whose_turn


def classes_of(*sizes: int) -> np.ndarray:
    return np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))


def balanced(classes: np.ndarray, size: int, seed: int = 1) -> ClassBatches:
    return ClassBatches(len(classes), size, seed, needs_negatives=True, classes=classes)


@pytest.mark.parametrize("sizes", [(5, 4), (2, 2), (30, 3, 7), (1, 9, 8, 1), (2,) * 40, (3,) * 21, (50, 2)])
@pytest.mark.parametrize("size", [4, 7, 16])
def test_every_class_of_a_batch_has_two_rows_in_it(sizes: tuple[int, ...], size: int) -> None:
    classes = classes_of(*sizes)
    batches = balanced(classes, size)
    for epoch in range(3):
        found = [rows for _, rows in batches.since(epoch * batches.per_epoch, until=(epoch + 1) * batches.per_epoch)]
        usable = [row for row in range(len(classes)) if sizes[classes[row]] > 1]
        assert sorted(np.concatenate(found).tolist()) == usable
        assert all(min(Counter(classes[rows].tolist()).values()) >= 2 for rows in found)
        assert all(abs(len(rows) - size) <= 2 for rows in found[:-1])
        assert 2 <= len(found[-1]) <= size + 5  # a rest of three may join it


def test_classes_are_spread_over_the_epoch() -> None:
    """A class that is a third of the rows is in every batch of 12, and about a third of it."""
    classes = classes_of(100, 200)
    shares = [float((classes[rows] == 0).mean()) for _, rows in balanced(classes, 12).since(0, until=25)]
    assert min(shares) > 0 and max(shares) < 0.7


def test_a_step_takes_the_same_rows_of_classes_wherever_one_starts() -> None:
    batches = balanced(classes_of(9, 8, 5), 6)
    whole = [(step, rows.tolist()) for step, rows in batches.since(0, until=9)]
    assert [(step, rows.tolist()) for step, rows in batches.since(4, until=9)] == whole[4:]
    assert whole[0][1] != whole[batches.per_epoch][1]
    assert [rows.tolist() for _, rows in balanced(classes_of(9, 8, 5), 6, seed=2).since(0, until=1)] != [whole[0][1]]


@pytest.mark.parametrize(
    ("shares", "turns"),
    [
        (("1", "1"), [0, 1, 0, 1, 0, 1]),
        (("1", "1", "1"), [0, 1, 2, 0, 1, 2]),
        (("1", "0.5"), [0, 1, 0, 0, 1, 0]),
        (("0.25", "0.75"), [1, 0, 1, 1, 1, 0]),
    ],
)
def test_parts_come_by_their_shares(shares: tuple[str, ...], turns: list[int]) -> None:
    assert whose_turn([Fraction(share) for share in shares], 6).tolist() == turns


def test_shares_of_many_digits_take_turns() -> None:
    shares = [Fraction(f"0.{digits}") for digits in ("123456789", "987654321", "314159265", "271828183")]
    turns = np.bincount(whose_turn(shares, 1000))
    assert turns.tolist() == pytest.approx([float(1000 * share / sum(shares)) for share in shares], abs=1)


def test_no_part_is_ever_more_than_a_step_from_its_share() -> None:
    shares = [Fraction("0.7"), Fraction("0.2"), Fraction("0.333")]
    turns = whose_turn(shares, 500)
    for part, share in enumerate(shares):
        taken = np.cumsum(turns == part)
        assert np.abs(taken - np.arange(1, 501) * float(share / sum(shares))).max() <= 1.5


def test_a_mixture_takes_each_part_in_its_own_order_from_any_step() -> None:
    first, second = Batches(10, 4, 1, needs_negatives=True), Batches(7, 3, 1, needs_negatives=True)
    mixed = MixedBatches([first, second], [Fraction(1), Fraction(1, 2)])
    whole = list(mixed.since(0, until=12))
    ours = [rows for _, rows in whole if rows[0] < 10]
    theirs = [rows - 10 for _, rows in whole if rows[0] >= 10]
    for found, part in ((ours, first), (theirs, second)):
        expected = [rows for _, rows in part.since(0, until=len(found))]
        assert [rows.tolist() for rows in found] == [rows.tolist() for rows in expected]
    for start in range(12):
        again = [(step, rows.tolist()) for step, rows in mixed.since(start, until=12)]
        assert again == [(step, rows.tolist()) for step, rows in whole[start:]]
    # An epoch: until all 3 batches of the first part were taken, with half as many of the second.
    assert mixed.per_epoch == 5


@pytest.mark.parametrize("shares", [("1", "1"), ("1", "0.001"), ("0.3", "0.7"), ("2", "1", "0.25"), ("1", "7")])
def test_an_epoch_of_a_mixture_sees_the_first_part_once(shares: tuple[str, ...]) -> None:
    parts = [Batches(21, 4, 1, needs_negatives=True) for _ in shares]
    mixed = MixedBatches(parts, [Fraction(share) for share in shares])
    assert whose_turn(mixed.shares, mixed.per_epoch).tolist().count(0) == parts[0].per_epoch


@pytest.mark.parametrize("batches", [2, 4])
def test_several_epochs_of_a_mixture_are_rounded_once(batches: int) -> None:
    parts = [Batches(4 * batches, 4, 1, needs_negatives=True) for _ in range(5)]
    mixed = MixedBatches(parts, [Fraction(1), *[Fraction(1, 3)] * 4])
    for epochs in range(1, 12):
        turns = whose_turn(mixed.shares, mixed.steps_in(epochs)).tolist()
        assert abs(turns.count(0) - epochs * batches) <= 1, "the first part is seen so often"
        assert abs(len(turns) - epochs * batches * Fraction(7, 3)) <= 2
