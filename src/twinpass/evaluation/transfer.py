"""Transfer: the accuracy of a logistic regression on frozen vectors, by SentEval's procedures.

There are three, by what the task comes with: one pool of rows (nested folds), train and test (folds on train choose
the L2), or train, dev and test (dev chooses it). Rows are split as SentEval splits them, so that every model of a task
sees the same rows as there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from twinpass.encoder.any_model import Encode
from twinpass.evaluation.answers import Predictions
from twinpass.evaluation.logistic import Fold, Problem, fit, make_problem, predict
from twinpass.evaluation.protocols import FULL, TransferProtocol
from twinpass.evaluation.reading import Data, senteval_order

Floats = npt.NDArray[np.float32]
Classes = npt.NDArray[np.int64]
Places = npt.NDArray[np.intp]


class TransferScores(NamedTuple):
    """Dev and test accuracy in per cent as SentEval rounds them, the L2 chosen, and the test predictions."""

    dev_accuracy: float
    test_accuracy: float
    l2: tuple[float, ...]
    items: Predictions


def score_transfer(encode: Encode, data: Data, *, protocol: TransferProtocol = FULL) -> TransferScores:
    """Train and test on one transfer task."""
    return _PROCEDURES[data.task.protocol](encode, data, protocol)


def _nested(encode: Encode, data: Data, protocol: TransferProtocol) -> TransferScores:
    """Outer folds are tested; inside each, inner folds choose the L2; then a refit on the outer training rows."""
    problem, (rows,) = _prepare(encode, data, [tuple(data.parts)])
    labels = problem.y.numpy()
    outer = cross_validation(rows, labels, protocol.folds, seed=protocol.seed)
    inner = [f for o in outer for f in cross_validation(o.train, labels, protocol.folds, seed=protocol.seed)]
    dev = _dev_scores(problem, inner, protocol).reshape(len(outer), protocol.folds, -1)
    rounded = np.round(100 * dev.mean(axis=1), 2)
    l2 = np.array(protocol.l2)[rounded.argmax(axis=1)]
    predicted = np.zeros(len(labels), dtype=np.int64)
    accuracies = []
    for fold, weights in zip(outer, _refit(problem, [o.train for o in outer], l2, protocol), strict=True):
        predicted[fold.dev] = predict(problem, fold.dev, weights).numpy()
        accuracies.append(_percent(labels[fold.dev], predicted[fold.dev]))
    items = Predictions(labels, predicted)
    return TransferScores(_mean(rounded.max(axis=1)), _mean(accuracies), tuple(l2.tolist()), items)


def _train_test(encode: Encode, data: Data, protocol: TransferProtocol) -> TransferScores:
    """Folds of the training rows choose the L2; a refit on all of them predicts the test rows."""
    problem, (train, test) = _prepare(encode, data, [("train",), ("test",)])
    folds = cross_validation(train, problem.y.numpy(), protocol.folds, seed=protocol.seed)
    rounded = np.round(100 * _dev_scores(problem, folds, protocol).mean(axis=0), 2)
    l2 = np.array(protocol.l2)[[rounded.argmax()]]
    (weights,) = _refit(problem, [train], l2, protocol)
    items = Predictions(problem.y.numpy()[test], predict(problem, test, weights).numpy())
    return TransferScores(float(rounded.max()), _percent(items.gold, items.predicted), tuple(l2.tolist()), items)


def _train_dev_test(encode: Encode, data: Data, protocol: TransferProtocol) -> TransferScores:
    """The dev rows choose the L2 and stop the training; a refit would give the same weights."""
    problem, (train, dev, test) = _prepare(encode, data, [("train",), ("dev",), ("test",)])
    fitted = fit(problem, [Fold(train, dev)], torch.tensor([protocol.l2]), protocol)
    rounded = np.round(100 * fitted.accuracy[0].double().numpy(), 2)
    best = int(rounded.argmax())
    items = Predictions(problem.y.numpy()[test], predict(problem, test, fitted.weights[0, best]).numpy())
    accuracy = _percent(items.gold, items.predicted)
    return TransferScores(float(rounded[best]), accuracy, (protocol.l2[best],), items)


_PROCEDURES: dict[str, Callable[[Encode, Data, TransferProtocol], TransferScores]] = {
    "folds": _nested,
    "train-test": _train_test,
    "splits": _train_dev_test,
}


def _prepare(encode: Encode, data: Data, groups: list[tuple[str, ...]]) -> tuple[Problem, list[Places]]:
    """One problem of all rows, and for each group of parts the indices of its rows."""
    sorted_groups = [senteval_order([data.parts[name] for name in group]) for group in groups]
    texts = [row for group in sorted_groups for row in group.texts]
    labels = np.array([target for group in sorted_groups for target in group.targets], dtype=np.int64)
    edges = np.cumsum([len(group.texts) for group in sorted_groups])[:-1]
    features = torch.from_numpy(text_features(encode, texts))
    problem = make_problem(features, torch.from_numpy(labels), data.task.classes)
    return problem, np.split(np.arange(len(labels)), edges)


def _dev_scores(problem: Problem, folds: list[Fold], protocol: TransferProtocol) -> npt.NDArray[np.float64]:
    """Accuracy (folds, L2 values) on the rows each fold holds out."""
    return fit(problem, folds, torch.tensor([protocol.l2] * len(folds)), protocol).accuracy.double().numpy()


def _refit(
    problem: Problem, rows: list[Places], l2: npt.NDArray[np.float64], protocol: TransferProtocol
) -> list[torch.Tensor]:
    """Train again on each set of rows with its chosen L2, stopped on a small part of them."""
    folds = [hold_out(r, protocol.held_out, seed=protocol.seed) for r in rows]
    return list(fit(problem, folds, torch.from_numpy(l2)[:, None].float(), protocol).weights[:, 0])


def _percent(gold: Classes, predicted: Classes) -> float:
    return round(100 * float(np.mean(gold == predicted)), 2)


def _mean(accuracies: Sequence[float] | npt.NDArray[np.float64]) -> float:
    return round(float(np.mean(accuracies)), 2)


def text_features(encode: Encode, texts: Sequence[tuple[str, ...]]) -> Floats:
    """Return the vectors of single texts (n, d), or |u - v| beside u * v for pairs (n, 2d)."""
    sides = [encode(list(column)) for column in zip(*texts, strict=True)]
    if len(sides) == 1:
        return np.asarray(sides[0], dtype=np.float32)
    u, v = sides
    return np.hstack([np.abs(u - v), u * v]).astype(np.float32)


def stratified_folds(labels: Classes, folds: int, *, seed: int) -> Places:
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


def cross_validation(rows: Places, labels: Classes, folds: int, *, seed: int) -> list[Fold]:
    """Split rows (indices into labels) into folds: train on all but one, stop on that one."""
    fold_of = stratified_folds(labels[rows], folds, seed=seed)
    return [Fold(rows[fold_of != k], rows[fold_of == k]) for k in range(folds)]


def hold_out(rows: Places, part: float, *, seed: int) -> Fold:
    """Keep a random part of the rows to stop on and train on the rest."""
    order = np.random.RandomState(seed).permutation(len(rows))
    kept = int(part * len(rows))
    return Fold(rows[order[kept:]], rows[order[:kept]], drawn=len(rows))
