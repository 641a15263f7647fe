"""The objective that SBERT and InferSent share: two vectors side by side, and which label they deserve."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from twinpass.training.baselines.material import CLASSES

Features = Literal["difference", "difference and product"]


def pair_features(u: Tensor, v: Tensor, features: Features) -> Tensor:
    """Return (u, v, |u - v|), and with the product u * v beside them; u and v are (n, d)."""
    parts = [u, v, (u - v).abs()]
    return torch.cat([*parts, u * v] if features == "difference and product" else parts, dim=1)


def softmax_loss(classifier: nn.Module, u: Tensor, v: Tensor, classes: Tensor, features: Features) -> Tensor:
    """Return the mean of -log softmax at each pair's class."""
    return cross_entropy(classifier(pair_features(u, v, features)), classes)


def make_classifier(width: int, *, hidden: int | None = None) -> nn.Sequential:
    """Make a linear map from features to classes, with a hidden layer of tanh before it if asked."""
    if hidden is None:
        return nn.Sequential(nn.Linear(width, len(CLASSES)))
    return nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, len(CLASSES)))
