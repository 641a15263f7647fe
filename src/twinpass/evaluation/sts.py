"""Semantic textual similarity: the cosine of two sentences against human scores.

SentEval also has a regressor for STS-B and SICK-R: a softmax over the scores 1 to 5, read as an expected value. It
learns from the task's training pairs, so its numbers compare only with papers that used one (Table B.1).
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from twinpass.encoder.any_model import Encode
from twinpass.evaluation.answers import Pairs
from twinpass.evaluation.reading import Data, Rows, senteval_order
from twinpass.evaluation.statistics import Array, cosine_scores, pearson
from twinpass.evaluation.transfer import text_features

Floats = npt.NDArray[np.float32]

BINS = 5
_SEED = 1111
_BATCH = 64
_GROUP = 50  # epochs between two evaluations on dev
EPOCHS = 1000
_TENACITY = 3


def score_sts(encode: Encode, data: Data, *, split: str = "test", regressor: bool = False) -> dict[str, Pairs]:
    """Score a task's pairs by 'cosine' and, if asked for and the task has training pairs, by 'regressor'."""
    scored = data.parts if data.task.protocol == "subsets" else {split: data.parts[split]}
    cosine = {name: (pair_cosines(encode, rows.texts), np.array(rows.targets)) for name, rows in scored.items()}
    items = {"cosine": Pairs(cosine)}
    if regressor and data.task.protocol == "splits":
        train, dev, test = (_sorted_features(encode, data.parts[name]) for name in ("train", "dev", split))
        items["regressor"] = Pairs({split: (regress(train, dev, test[0]), test[1])})
    return items


def pair_cosines(encode: Encode, texts: Sequence[tuple[str, ...]]) -> Array:
    """Return the cosine (n,) of the two texts of each pair."""
    first, second = (encode(list(column)) for column in zip(*texts, strict=True))
    return cosine_scores(first, second)


def _sorted_features(encode: Encode, rows: Rows) -> tuple[Floats, Array]:
    """|u - v| beside u * v (n, 2d) and scores, in SentEval's order."""
    ordered = senteval_order([rows])
    return text_features(encode, ordered.texts), np.array(ordered.targets)


def regress(train: tuple[Floats, Array], dev: tuple[Floats, Array], test: Floats, *, max_epochs: int = EPOCHS) -> Array:
    """Fit on train features and scores, stop on dev Pearson, and return the expected score of test rows."""
    order = np.random.RandomState(_SEED)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        model = torch.nn.Linear(train[0].shape[1], BINS)
    optimizer = torch.optim.Adam(model.parameters())
    x, y = torch.from_numpy(train[0]), torch.from_numpy(bin_shares(train[1]))
    best, best_pearson, misses, epochs = copy.deepcopy(model), -1.0, 0, 0
    while misses <= _TENACITY and epochs <= max_epochs:
        with _one_thread():
            for _ in range(_GROUP):
                _train_epoch(model, optimizer, x, y, torch.from_numpy(order.permutation(len(x))))
        epochs += _GROUP
        reached = pearson(_expected(model, dev[0]), dev[1])
        if reached > best_pearson:
            best, best_pearson = copy.deepcopy(model), reached
        else:
            misses += 1
    return _expected(best, test)


def bin_shares(scores: Array) -> Floats:
    """Spread each score over the two whole scores next to it (n, 5); below 1 only its share of 1 is left."""
    distances = np.abs(scores[:, None] - np.arange(1, BINS + 1))
    shares: Floats = np.maximum(1 - distances, 0).astype(np.float32)
    return shares


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Products this small are slower on several threads than on one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _train_epoch(model: torch.nn.Linear, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, order: Tensor) -> None:
    for rows in torch.split(order, _BATCH):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x[rows]).softmax(dim=-1), y[rows])
        torch.autograd.backward(loss)
        optimizer.step()


@torch.inference_mode()
def _expected(model: torch.nn.Linear, features: Floats) -> Array:
    shares = model(torch.from_numpy(features)).softmax(dim=-1).double()
    expected: Array = (shares @ torch.arange(1, BINS + 1).double()).numpy()
    return expected
