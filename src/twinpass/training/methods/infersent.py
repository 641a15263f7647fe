"""InferSent (Conneau et al., 2017): a BiLSTM over frozen word vectors, its maximum over time, and NLI labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from twinpass.config import Run
from twinpass.encoder.bilstm import BiLstmEncoder
from twinpass.encoder.wordvectors import WordVectors
from twinpass.errors import ConfigError
from twinpass.text.rows import Rows
from twinpass.training.data import LabelledPairs, read_data
from twinpass.training.method import METHODS, Method, Numbers, Start
from twinpass.training.methods.sbert import classes_of, make_classifier, softmax_loss

CLASSIFIER = 512  # units of the classifier's hidden layer
DECAY, SHRINK, LOWEST = 0.99, 5.0, 1e-5  # each epoch; after a dev score without a gain; where training ends


@METHODS.register("infersent")
class InferSent(Method):
    """Both sentences go through one LSTM; the classifier is dropped after training."""

    title = "InferSent (Conneau et al., 2017)"
    objective = "InferSent (Conneau et al.): BiLSTM-max over word vectors, softmax over (u, v, |u - v|, u * v)"
    texts_per_example = 2

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        if start.encoder is not None:
            raise ConfigError("infersent starts from word vectors, not from an encoder. Name their file as the model.")
        self.encoder = self._load_encoder()
        self.models = {"encoder": self.encoder}
        self.encoder.model.train()
        self.classifier = make_classifier(4 * self.encoder.dimensions, hidden=CLASSIFIER).to(self.device)
        self.heads = {"classifier": self.classifier}
        self.classes = classes_of(self.rows, self.device)
        limit = self.run.max_tokens
        self.data = read_data(self.rows, lambda texts: [row[:limit] for row in self.encoder.word_rows(texts)])
        self.examples, self.per_step = len(self.data), self.run.batch_size
        self.rate, self.shrunk = self.run.learning_rate, 1.0

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
        return run, LabelledPairs(rows)

    def make_optimizer(self, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
        """Make plain SGD."""
        return torch.optim.SGD(parameters, lr=self.run.learning_rate)

    def set_rate(self, optimizer: torch.optim.Optimizer, step: int, steps: int) -> None:
        """Decay once per epoch, and divide by what dev scores without a gain have cost."""
        epoch = step // -(-self.examples // self.per_step)
        self.rate = self.run.learning_rate * DECAY**epoch
        for group in optimizer.param_groups:
            group["lr"] = self.rate / self.shrunk

    def note_evaluation(self, *, gain: bool) -> None:
        """Divide the rate by five when the dev score did not rise."""
        self.shrunk *= 1.0 if gain else SHRINK

    def memory(self) -> dict[str, float]:
        """Return the rate, and by how much dev scores have lowered it."""
        return {"rate": self.rate, "shrunk": self.shrunk}

    def remember(self, memory: Mapping[str, float]) -> None:
        """Restore both."""
        self.rate, self.shrunk = memory["rate"], memory["shrunk"]

    def exhausted(self) -> bool:
        """Stop once the rate is too small to matter, as the authors do."""
        return self.shrunk > 1.0 and self.rate / self.shrunk < LOWEST

    def loss(self, examples: Numbers, random: np.random.Generator) -> Tensor:
        """Encode premises and hypotheses together and classify the pairs."""
        own = self.processes.share(examples)
        if not len(own):
            return torch.zeros(())
        texts = np.concatenate(self.data.columns(own))
        u, v = self.encoder.encode_rows([self.data.ids(text) for text in texts]).chunk(2)
        classes = self.classes[torch.from_numpy(own)]
        loss = softmax_loss(self.classifier, u, v, classes, "difference and product")
        return self.mean_over_all(loss, own, examples)
