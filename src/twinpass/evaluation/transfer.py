"""Transfer: what a logistic regression on frozen vectors can tell, by SentEval's procedures.

Three procedures, by what the task comes with: one pool of rows (nested folds), train and test (folds on train pick
the L2), or train, dev and test (dev picks it).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from twinpass.encoder.any_model import Encode
from twinpass.evaluation.features import text_features
from twinpass.evaluation.folds import Fold, cross_validation, hold_out
from twinpass.evaluation.items import Predictions
from twinpass.evaluation.logistic import Problem, fit, make_problem, predict
from twinpass.evaluation.protocols import FULL, TransferProtocol
from twinpass.evaluation.reading import Data, senteval_order

Ints = npt.NDArray[np.int64]


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
    """Outer folds are tested; inside each, inner folds pick the L2; then a refit on the outer training rows."""
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
    """Folds of the training rows pick the L2; a refit on all of them meets the test rows."""
    problem, (train, test) = _prepare(encode, data, [("train",), ("test",)])
    folds = cross_validation(train, problem.y.numpy(), protocol.folds, seed=protocol.seed)
    rounded = np.round(100 * _dev_scores(problem, folds, protocol).mean(axis=0), 2)
    l2 = np.array(protocol.l2)[[rounded.argmax()]]
    (weights,) = _refit(problem, [train], l2, protocol)
    items = Predictions(problem.y.numpy()[test], predict(problem, test, weights).numpy())
    return TransferScores(float(rounded.max()), _percent(items.gold, items.predicted), tuple(l2.tolist()), items)


def _train_dev_test(encode: Encode, data: Data, protocol: TransferProtocol) -> TransferScores:
    """The dev rows pick the L2 and stop the training; a refit would end in the very same weights."""
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


def _prepare(encode: Encode, data: Data, groups: list[tuple[str, ...]]) -> tuple[Problem, list[npt.NDArray[np.intp]]]:
    """One problem of all rows, and for each group of parts the numbers of its rows."""
    sorted_groups = [senteval_order([data.parts[name] for name in group]) for group in groups]
    texts = [row for group in sorted_groups for row in group.texts]
    labels = np.array([target for group in sorted_groups for target in group.targets], dtype=np.int64)
    edges = np.cumsum([len(group.texts) for group in sorted_groups])[:-1]
    features = torch.from_numpy(text_features(encode, texts))
    problem = make_problem(features, torch.from_numpy(labels), data.task.classes)
    return problem, np.split(np.arange(len(labels)), edges)


def _dev_scores(problem: Problem, folds: list[Fold], protocol: TransferProtocol) -> npt.NDArray[np.float64]:
    """Accuracy (folds, L2 values) on the rows each fold keeps apart."""
    return fit(problem, folds, torch.tensor([protocol.l2] * len(folds)), protocol).accuracy.double().numpy()


def _refit(
    problem: Problem, rows: list[npt.NDArray[np.intp]], l2: npt.NDArray[np.float64], protocol: TransferProtocol
) -> list[torch.Tensor]:
    """Train once more on each set of rows with its chosen L2, stopped on a small part of them."""
    folds = [hold_out(r, protocol.held_out, seed=protocol.seed) for r in rows]
    return list(fit(problem, folds, torch.from_numpy(l2)[:, None].float(), protocol).weights[:, 0])


def _percent(gold: Ints, predicted: Ints) -> float:
    return round(100 * float(np.mean(gold == predicted)), 2)


def _mean(accuracies: Sequence[float] | npt.NDArray[np.float64]) -> float:
    return round(float(np.mean(accuracies)), 2)
