"""Many logistic regressions trained at once, each exactly as SentEval trains one.

Hand-written for two reasons. The published numbers depend on SentEval's seeds, shuffles, optimiser steps and stopping
rule, so a fit must repeat them step by step; a library's solver finds other weights. And one task needs up to 410
fits, which take hours one after another. SentEval seeds every fit alike, so two fits on equally many rows start from
the same weights and visit the same positions in the same order: such fits step together. A batch is gathered once per
fold and multiplied with the weights of all its L2 values in one batched product. Nothing is approximated; only the
loop over fits is gone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from twinpass.evaluation.protocols import TransferProtocol

_BATCH_NUMBERS = 1 << 19  # gathered numbers of one step: 2 MB, the size of a core's cache


class Fold(NamedTuple):
    """Rows to train on, in order, and rows to stop on; drawn is how many rows were shuffled before training began."""

    train: npt.NDArray[np.intp]
    dev: npt.NDArray[np.intp]
    drawn: int = 0


class Fitted(NamedTuple):
    """Best weights (folds, L2 values, classes, d + 1; the bias last) and their dev accuracy (folds, L2 values)."""

    weights: Tensor
    accuracy: Tensor


class Problem(NamedTuple):
    """Features with a last column of ones (n, d + 1), and their classes (n,)."""

    x: Tensor
    y: Tensor
    classes: int


def make_problem(features: Tensor, labels: Tensor, classes: int) -> Problem:
    """Append the column that carries the bias."""
    ones = torch.ones(len(features), 1, dtype=features.dtype)
    return Problem(torch.cat([features, ones], dim=1), labels, classes)


def fit(problem: Problem, folds: Sequence[Fold], l2: Tensor, protocol: TransferProtocol) -> Fitted:
    """Train one model for each fold and each of its L2 values (folds, values)."""
    shape = (*l2.shape, problem.classes, problem.x.shape[1])
    fitted = Fitted(problem.x.new_empty(shape), problem.x.new_empty(l2.shape))
    chunks = _alike(folds, max(1, _BATCH_NUMBERS // (protocol.batch_size * problem.x.shape[1])))
    first = _first_weights(problem, protocol.seed)  # outside the threads, which share torch's seed
    threads = torch.get_num_threads()
    # One chunk per thread rather than each product on all threads: small products do not gain from several threads,
    # and the result does not depend on how many there are.
    with ThreadPoolExecutor(min(threads, len(chunks)), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        parts = pool.map(lambda c: _fit_together(problem, [folds[i] for i in c], first, l2[c], protocol), chunks)
        for chunk, part in zip(chunks, parts, strict=True):
            fitted.weights[chunk], fitted.accuracy[chunk] = part
    torch.set_num_threads(threads)  # some mathematics libraries share a worker's setting
    return fitted


def _alike(folds: Sequence[Fold], most: int) -> list[list[int]]:
    """Indices of folds that step together: equally many rows, equally shuffled, and few enough for the cache."""
    groups: dict[tuple[int, int], list[int]] = {}
    for number, fold in enumerate(folds):
        groups.setdefault((len(fold.train), fold.drawn), []).append(number)
    return [group[i : i + most] for group in groups.values() for i in range(0, len(group), most)]


@torch.inference_mode()
def predict(problem: Problem, rows: np.ndarray, weights: Tensor) -> Tensor:
    """Return the class (n,) of each of the rows by one model's weights (classes, d + 1)."""
    return (problem.x[torch.from_numpy(rows)] @ weights.T).argmax(dim=1)


@torch.inference_mode()
def _fit_together(
    problem: Problem, folds: list[Fold], first: Tensor, l2: Tensor, protocol: TransferProtocol
) -> tuple[Tensor, Tensor]:
    """Train folds of one size; a fold is dropped once all its models have stopped."""
    weights = first.repeat(*l2.shape, 1, 1)
    best = _Best(weights, protocol.tenacity)
    step = _Step(protocol.optimizer, weights, l2)
    rows = torch.from_numpy(np.stack([fold.train for fold in folds]))
    order = np.random.RandomState(protocol.seed)
    if folds[0].drawn:
        order.permutation(folds[0].drawn)
    epochs = 0
    while len(best.alive) and epochs <= protocol.max_epochs:
        for _ in range(protocol.epoch_size):
            shuffled = rows[best.alive][:, torch.from_numpy(order.permutation(rows.shape[1]))]
            _train_epoch(problem, shuffled, step, protocol.batch_size)
        epochs += protocol.epoch_size
        dev = [folds[i] for i in best.alive.tolist()]
        step.keep(best.update(step.weights, _dev_accuracy(problem, dev, step.weights)))
    return best.weights, best.accuracy


class _Best:
    """The best weights so far of every model, and which folds (alive) have models that have not stopped."""

    def __init__(self, weights: Tensor, tenacity: int) -> None:
        models = weights.shape[:2]
        self.weights, self.tenacity = weights.clone(), tenacity
        self.accuracy = weights.new_full(models, -1.0)
        self.misses = torch.zeros(models, dtype=torch.long)
        self.running = torch.ones(models, dtype=torch.bool)
        self.alive = torch.arange(len(weights))

    def update(self, weights: Tensor, accuracy: Tensor) -> Tensor:
        """Keep the weights that improved the dev accuracy of the alive folds; return which of them continue."""
        alive = self.alive
        better = self.running[alive] & (accuracy > self.accuracy[alive])
        fold, value = torch.where(better)
        self.weights[alive[fold], value] = weights[fold, value]
        self.accuracy[alive[fold], value] = accuracy[fold, value]
        # Misses are never reset: they are counted over the whole training, as in SentEval.
        self.running[alive] &= better | (self.misses[alive] < self.tenacity)
        self.misses[alive] += ~better
        still = self.running[alive].any(dim=1)
        self.alive = alive[still]
        return still


def _first_weights(problem: Problem, seed: int) -> Tensor:
    """The weights (classes, d + 1) that torch gives a linear layer right after this seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = torch.nn.Linear(problem.x.shape[1] - 1, problem.classes)
    return torch.cat([layer.weight, layer.bias[:, None]], dim=1).detach().to(problem.x.dtype)


class _Step:
    """The weights of all running models (folds, values, classes, d + 1) and one optimiser's step for them.

    Adam and RMSprop as torch's defaults, weight decay inside the gradient.
    """

    def __init__(self, optimizer: str, weights: Tensor, l2: Tensor) -> None:
        self.adam = optimizer == "adam"
        self.weights = weights
        self.l2 = l2[:, :, None, None].to(weights.dtype)
        self.mean, self.square = torch.zeros_like(weights), torch.zeros_like(weights)
        self.steps = 0

    def keep(self, still: Tensor) -> None:
        """Continue with these folds only."""
        self.weights, self.l2 = self.weights[still], self.l2[still]
        self.mean, self.square = self.mean[still], self.square[still]

    def __call__(self, gradient: Tensor) -> None:
        """Change the weights by one step along a gradient, which is overwritten."""
        self.steps += 1
        gradient.addcmul_(self.weights, self.l2)
        if not self.adam:
            self.square.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
            self.weights.addcdiv_(gradient, self.square.sqrt().add_(1e-8), value=-0.01)
            return
        self.mean.lerp_(gradient, 0.1)
        self.square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        size = self.square.sqrt().div_(math.sqrt(1 - 0.999**self.steps)).add_(1e-8)
        self.weights.addcdiv_(self.mean, size, value=-1e-3 / (1 - 0.9**self.steps))


def _train_epoch(problem: Problem, shuffled: Tensor, step: _Step, batch_size: int) -> None:
    """Take every fold's rows (folds, n) once, a batch at a time."""
    folds, values, classes, width = step.weights.shape
    one_hot = torch.nn.functional.one_hot(problem.y[shuffled], classes).to(problem.x.dtype)
    targets = one_hot.transpose(1, 2).unsqueeze(1)
    for start in range(0, shuffled.shape[1], batch_size):
        batch = shuffled[:, start : start + batch_size]
        size = batch.shape[1]
        x = problem.x.index_select(0, batch.reshape(-1)).view(folds, size, width)
        logits = torch.bmm(step.weights.view(folds, -1, width), x.transpose(1, 2))
        # The gradient of softmax and mean cross-entropy in the logits, written out.
        error = logits.view(folds, values, classes, size).softmax(dim=2)
        error.sub_(targets[..., start : start + batch_size]).div_(size)
        step(torch.bmm(error.view(folds, -1, size), x).view_as(step.weights))


def _dev_accuracy(problem: Problem, folds: list[Fold], weights: Tensor) -> Tensor:
    accuracy = weights.new_empty(weights.shape[:2])
    for number, fold in enumerate(folds):
        dev = torch.from_numpy(fold.dev)
        predicted = torch.einsum("nd,vcd->nvc", problem.x[dev], weights[number]).argmax(dim=2)
        right = (predicted == problem.y[dev][:, None]).sum(dim=0)
        accuracy[number] = right.to(weights.dtype) / len(dev)
    return accuracy
