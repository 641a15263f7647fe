"""InferSent (Conneau et al., 2017): a BiLSTM over frozen word vectors, its maximum over time, and NLI labels."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from twinpass.encoder.bilstm import BiLstmEncoder
from twinpass.encoder.wordvectors import WordVectors
from twinpass.errors import ConfigError
from twinpass.text.rows import Rows
from twinpass.training.baselines.base import BASELINES, Baseline, Defaults, Numbers
from twinpass.training.baselines.material import LabelledPairs
from twinpass.training.baselines.run import FilledRun
from twinpass.training.baselines.softmax import make_classifier, softmax_loss
from twinpass.training.data import read_data

WIDTH = 2048  # units of the LSTM in each direction
CLASSIFIER = 512  # units of the classifier's hidden layer
DECAY, SHRINK, LOWEST = 0.99, 5.0, 1e-5  # each epoch; after a dev score that is no gain; where training ends


@BASELINES.register("infersent")
class InferSent(Baseline):
    """Both sentences go through one LSTM; the classifier is dropped after training."""

    about = "InferSent (Conneau et al.): BiLSTM-max over word vectors, softmax over (u, v, |u - v|, u * v)"
    wants = "labelled pairs"
    columns = ("premise", "hypothesis", "label")
    texts_per_example = 2
    # The paper cuts no sentence, and 512 words cut next to none.
    defaults = Defaults(batch_size=64, learning_rate=0.1, max_tokens=512, pooler=None, width=WIDTH, eval_every=None)
    clip = 5.0

    def __init__(self, run: FilledRun, rows: Rows, device: torch.device) -> None:
        if run.pooler is not None:
            raise ConfigError(f"infersent takes the maximum over time and no pooler; got {run.pooler!r}.")
        pairs = LabelledPairs(rows)
        words = WordVectors.load(run.model)
        self.encoder = BiLstmEncoder.fresh(words, hidden=run.width or WIDTH, device=device)
        self.encoder.model.train()
        self.classifier = make_classifier(4 * self.encoder.dimensions, hidden=CLASSIFIER).to(device)
        self.classes = torch.from_numpy(pairs.classes).to(device)
        limit = run.max_tokens
        self.data = read_data(pairs, lambda texts: [row[:limit] for row in self.encoder.word_rows(texts)])
        self.examples, self.examples_per_step = len(self.data), run.batch_size
        self.rate, self.shrunk = run.learning_rate, 1.0

    def modules(self) -> Mapping[str, nn.Module]:
        """Return the LSTM and the classifier; the word vectors stay as they are."""
        return {"encoder": self.encoder.model, "classifier": self.classifier}

    def candidates(self) -> Mapping[str, BiLstmEncoder]:
        """Return the encoder."""
        return {"encoder": self.encoder}

    def make_optimizer(self, run: FilledRun) -> torch.optim.Optimizer:
        """Make plain SGD."""
        return torch.optim.SGD(self.parameters().values(), lr=run.learning_rate)

    def set_rate(self, optimizer: torch.optim.Optimizer, run: FilledRun, step: int, steps: int) -> None:
        """Decay once an epoch, and by all that dev scores have cost."""
        epoch = step // -(-self.examples // self.examples_per_step)
        self.rate = run.learning_rate * DECAY**epoch
        for group in optimizer.param_groups:
            group["lr"] = self.rate / self.shrunk

    def note_evaluation(self, *, gain: bool) -> None:
        """Divide the rate by five when the dev score did not rise."""
        self.shrunk *= 1.0 if gain else SHRINK

    def memory(self) -> dict[str, float]:
        """Return the rate, and what dev scores have cost it."""
        return {"rate": self.rate, "shrunk": self.shrunk}

    def remember(self, memory: Mapping[str, float]) -> None:
        """Take both back."""
        self.rate, self.shrunk = memory["rate"], memory["shrunk"]

    def exhausted(self) -> bool:
        """Stop once the rate is too small to matter, as the authors do."""
        return self.shrunk > 1.0 and self.rate / self.shrunk < LOWEST

    def loss(self, examples: Numbers, random: np.random.Generator) -> Tensor:
        """Encode premises and hypotheses together and classify the pairs."""
        texts = np.concatenate(self.data.columns(examples))
        u, v = self.encoder.encode_rows([self.data.ids(text) for text in texts]).chunk(2)
        classes = self.classes[torch.from_numpy(examples)]
        return softmax_loss(self.classifier, u, v, classes, "difference and product")
