"""Sentence-BERT (Reimers and Gurevych, 2019): a softmax over NLI labels from two sentence vectors."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from twinpass.config import Run
from twinpass.text.nli import LABELS
from twinpass.text.rows import Rows
from twinpass.training.chunked import Ids
from twinpass.training.data import LabelledPairs, Tokenize, read_data
from twinpass.training.method import METHODS, Method, Numbers, Start, Trainable

Features = Literal["difference", "difference and product"]


class PairClassifier(Method):
    """Classifies pairs by their two vectors; the classifier is dropped after training."""

    texts_per_example = 2
    features: ClassVar[Features]
    hidden: ClassVar[int | None] = None  # units of the classifier's hidden layer, if it has one

    @classmethod
    def read(cls, run: Run, rows: Rows, *, model: str, device: torch.device) -> tuple[Run, Rows]:
        """Read premise, hypothesis and label."""
        return run, LabelledPairs(rows)

    def learn_labels(self, encoder: Trainable, tokenize: Tokenize) -> None:
        """Make the classifier over an encoder, and read the pairs."""
        assert isinstance(self.rows, LabelledPairs)
        self.models = {"encoder": encoder}
        parts = 3 if self.features == "difference" else 4
        self.classifier = make_classifier(parts * encoder.dimensions, hidden=self.hidden).to(self.device)
        self.heads = {"classifier": self.classifier}
        self.classes = torch.from_numpy(self.rows.classes).to(self.device)
        self.data = read_data(self.rows, tokenize)

    def vectors(self, ids: Ids) -> Tensor:
        """Return the vectors of tokenised texts."""
        raise NotImplementedError

    def loss(self, examples: Numbers, random: np.random.Generator) -> Tensor:
        """Encode premises and hypotheses together and classify the pairs."""
        own = self.processes.share(examples)
        if not len(own):
            return torch.zeros(())
        texts = np.concatenate(self.data.columns(own))
        u, v = self.vectors([self.data.ids(text) for text in texts]).chunk(2)
        loss = softmax_loss(self.classifier, u, v, self.classes[torch.from_numpy(own)], self.features)
        return self.mean_over_all(loss, own, examples)


@METHODS.register("sbert")
class SentenceBert(PairClassifier):
    """Both sentences go through one encoder."""

    title = "Sentence-BERT (Reimers and Gurevych, 2019)"
    objective = "SBERT (Reimers and Gurevych): softmax over (u, v, |u - v|) on NLI labels"
    features = "difference"

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        self.encoder = self.load_plain_encoder()
        self.learn_labels(self.encoder, self.tokenizer(self.encoder))

    def vectors(self, ids: Ids) -> Tensor:
        """Encode with the encoder."""
        return self.encode([self.encoder] * len(ids), ids)


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
