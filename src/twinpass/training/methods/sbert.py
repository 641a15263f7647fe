"""Sentence-BERT (Reimers and Gurevych, 2019): a softmax over NLI labels from two sentence vectors."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from twinpass.config import Run
from twinpass.text.nli import LABELS
from twinpass.text.rows import Rows
from twinpass.training.data import LabelledPairs, read_data
from twinpass.training.method import METHODS, Method, Numbers, Start

Features = Literal["difference", "difference and product"]


@METHODS.register("sbert")
class SentenceBert(Method):
    """Both sentences go through one encoder; the classifier is dropped after training."""

    title = "Sentence-BERT (Reimers and Gurevych, 2019)"
    objective = "SBERT (Reimers and Gurevych): softmax over (u, v, |u - v|) on NLI labels"
    texts_per_example = 2

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        self.encoder = self.load_plain_encoder()
        self.models = {"encoder": self.encoder}
        self.classifier = make_classifier(3 * self.encoder.dimensions).to(self.device)
        self.heads = {"classifier": self.classifier}
        self.classes = classes_of(self.rows, self.device)
        limit = self.token_limit(self.encoder)
        self.data = read_data(self.rows, lambda texts: self.encoder.tokenize(texts, max_tokens=limit))
        self.examples, self.per_step = len(self.data), self.run.batch_size

    @classmethod
    def read(cls, run: Run, rows: Rows, *, model: str, device: torch.device) -> tuple[Run, Rows]:
        """Read premise, hypothesis and label."""
        return run, LabelledPairs(rows)

    def loss(self, examples: Numbers, random: np.random.Generator) -> Tensor:
        """Encode premises and hypotheses together and classify the pairs."""
        own = self.processes.share(examples)
        if not len(own):
            return torch.zeros(())
        texts = np.concatenate(self.data.columns(own))
        u, v = self.encode([self.encoder] * len(texts), [self.data.ids(text) for text in texts]).chunk(2)
        loss = softmax_loss(self.classifier, u, v, self.classes[torch.from_numpy(own)], "difference")
        return self.mean_over_all(loss, own, examples)


def classes_of(rows: Rows, device: torch.device) -> Tensor:
    """Return the labels of labelled pairs as numbers."""
    assert isinstance(rows, LabelledPairs)
    return torch.from_numpy(rows.classes).to(device)


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
        return nn.Sequential(nn.Linear(width, len(LABELS)))
    return nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, len(LABELS)))
