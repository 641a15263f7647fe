"""InferSent (Conneau et al., 2017): a BiLSTM over frozen word vectors, its maximum over time, and NLI labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from twinpass.config import Run
from twinpass.encoder.bilstm import BiLstmEncoder
from twinpass.encoder.wordvectors import WordVectors
from twinpass.errors import ConfigError
from twinpass.text.rows import Rows
from twinpass.training.chunked import Ids
from twinpass.training.method import METHODS, Start
from twinpass.training.methods.sbert import PairClassifier

DECAY, SHRINK, LOWEST = 0.99, 5.0, 1e-5  # each epoch; after a dev score without a gain; where training ends


@METHODS.register("infersent")
class InferSent(PairClassifier):
    """Both sentences go through one LSTM."""

    title = "InferSent (Conneau et al., 2017)"
    objective = "InferSent (Conneau et al.): BiLSTM-max over word vectors, softmax over (u, v, |u - v|, u * v)"
    features, hidden = "difference and product", 512

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        if start.encoder is not None:
            raise ConfigError("infersent starts from word vectors, not from an encoder. Name their file as the model.")
        self.encoder = self._load_encoder()
        self.encoder.model.train()
        limit = self.run.max_tokens
        self.learn_labels(self.encoder, lambda texts: [row[:limit] for row in self.encoder.word_rows(texts)])
        # The rate of the latest epoch, and by how much dev scores without a gain have divided it.
        self.memory = {"rate": self.run.learning_rate, "shrunk": 1.0}

    def _load_encoder(self) -> BiLstmEncoder:
        if self.start.checkpoint is not None:
            return BiLstmEncoder.load(self.start.checkpoint, device=str(self.device))
        words = WordVectors.load(self.run.model)
        return BiLstmEncoder.fresh(words, hidden=self.run.width or words.dimensions, device=self.device)

    @staticmethod
    def load_saved(folder: Path, device: torch.device) -> BiLstmEncoder:
        """Load a model that was saved."""
        return BiLstmEncoder.load(folder, device=str(device))

    @classmethod
    def read(cls, run: Run, rows: Rows, *, model: str, device: torch.device) -> tuple[Run, Rows]:
        """Read premise, hypothesis and label."""
        if run.model == Run().model:
            raise ConfigError("infersent starts from word vectors. Name their file with -m (in Python: model=...).")
        return super().read(run, rows, model=model, device=device)

    def make_optimizer(self, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
        """Make plain SGD."""
        return torch.optim.SGD(parameters, lr=self.run.learning_rate)

    def set_rate(self, optimizer: torch.optim.Optimizer, step: int, steps: int) -> None:
        """Decay once per epoch, and divide by what dev scores without a gain have cost."""
        epoch = step // self.batches(self.examples).per_epoch
        self.memory["rate"] = self.run.learning_rate * DECAY**epoch
        for group in optimizer.param_groups:
            group["lr"] = self.memory["rate"] / self.memory["shrunk"]

    def note_evaluation(self, *, gain: bool) -> None:
        """Divide the rate by five when the dev score did not rise."""
        self.memory["shrunk"] *= 1.0 if gain else SHRINK

    def exhausted(self) -> bool:
        """Stop once the rate is too small to matter, as the authors do."""
        rate, shrunk = self.memory["rate"], self.memory["shrunk"]
        return shrunk > 1.0 and rate / shrunk < LOWEST

    def vectors(self, ids: Ids) -> Tensor:
        """Encode with the LSTM."""
        return self.encoder.encode_rows(ids)
