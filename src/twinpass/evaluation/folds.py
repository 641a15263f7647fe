"""Splitting rows the way SentEval does, so that every model of a task sees the same rows as there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.intp]


class Fold(NamedTuple):
    """Rows to train on, in order, and rows to stop on; drawn is what was shuffled before training began."""

    train: Rows
    dev: Rows
    drawn: int = 0


def stratified_folds(labels: npt.NDArray[np.int64], folds: int, *, seed: int) -> npt.NDArray[np.intp]:
    """Return the fold (n,) that each row is tested in; classes spread evenly, as scikit-learn spreads them."""
    rng = np.random.RandomState(seed)
    names, first_seen = np.unique(labels, return_index=True)
    in_order = names[np.argsort(first_seen)]
    # Deal the rows, class after class, to the folds in turn: this says how many of a class each fold gets.
    dealt = np.repeat(in_order, [np.count_nonzero(labels == name) for name in in_order])
    fold_of = np.empty(len(labels), dtype=np.intp)
    for name in in_order:
        share = [np.count_nonzero(dealt[start::folds] == name) for start in range(folds)]
        places = np.repeat(np.arange(folds), share)
        rng.shuffle(places)
        fold_of[labels == name] = places
    return fold_of


def cross_validation(rows: Rows, labels: npt.NDArray[np.int64], folds: int, *, seed: int) -> list[Fold]:
    """Split rows (indices into labels) into folds: train on all but one, stop on that one."""
    fold_of = stratified_folds(labels[rows], folds, seed=seed)
    return [Fold(rows[fold_of != k], rows[fold_of == k]) for k in range(folds)]


def hold_out(rows: Rows, part: float, *, seed: int) -> Fold:
    """Keep a random part of the rows to stop on and train on the rest."""
    order = np.random.RandomState(seed).permutation(len(rows))
    kept = int(part * len(rows))
    return Fold(rows[order[kept:]], rows[order[:kept]], drawn=len(rows))
