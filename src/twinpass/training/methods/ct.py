"""Contrastive tension (Carlsson et al., 2021): two encoders agree on a sentence and on nothing else."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from twinpass.config import Run
from twinpass.errors import ConfigError
from twinpass.text.rows import Rows
from twinpass.training.data import read_data
from twinpass.training.method import METHODS, Method, Numbers, Start, Trainable

NEGATIVES = 7  # to one positive
# The authors' code: 1e-5, and a fifth of it less after every 500 steps until 2e-6 is left.
STAIR, STAIRS = 500, 5


@METHODS.register("ct")
class ContrastiveTension(Method):
    """An anchor goes through the first copy; itself and seven other sentences go through the second."""

    title = "contrastive tension (CT; Carlsson et al., 2021)"
    objective = "CT (Carlsson et al.): two copies of an encoder agree on a sentence and on nothing else"
    main = "second"  # it sees more sentences than the first
    texts_per_example = 2 + NEGATIVES
    negatives = float(NEGATIVES)

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        first = self.load_plain_encoder("first")
        second = copy.deepcopy(first) if start.checkpoint is None else self.load_plain_encoder("second")
        self.encoders = first, second
        self.models = {"first": first, "second": second}
        for encoder in self.encoders:
            encoder.model.eval()  # dropout is off in CT; gradients flow all the same
        self.data = read_data(self.rows, self.tokenizer(first))
        self.per_step = self.run.batch_size // (NEGATIVES + 1)

    @classmethod
    def read(cls, run: Run, rows: Rows, *, model: str, device: torch.device) -> tuple[Run, Rows]:
        """Read every text as a sentence."""
        if run.batch_size % (NEGATIVES + 1):
            raise ConfigError(
                f"ct counts pairs, {NEGATIVES + 1} to an anchor, so batch_size must be a multiple of {NEGATIVES + 1}; "
                f"got {run.batch_size}."
            )
        return super().read(run, rows, model=model, device=device)

    def candidates(self) -> Mapping[str, Trainable]:
        """Return both copies."""
        return self.models

    def make_optimizer(self, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
        """Make RMSprop as the authors' library defines it."""
        return torch.optim.RMSprop(parameters, lr=self.run.learning_rate, alpha=0.9, eps=1e-7)

    def set_rate(self, optimizer: torch.optim.Optimizer, step: int, steps: int) -> None:
        """Lower the rate in stairs, from the peak to a fifth of it."""
        for group in optimizer.param_groups:
            group["lr"] = self.run.learning_rate * (1 - min(step // STAIR, STAIRS - 1) / STAIRS)

    def loss(self, examples: Numbers, random: np.random.Generator) -> Tensor:
        """Encode the anchors once, and each one's own eight candidates."""
        candidates = np.stack([self.draw_candidates(anchor, random) for anchor in examples.tolist()])
        own, candidates = self.processes.share(examples), self.processes.share(candidates)
        if not len(own):
            return torch.zeros(())
        first, second = self.encoders
        anchors = self.encode([first] * len(own), [self.data.ids(anchor) for anchor in own.tolist()])
        others = self.encode([second] * candidates.size, [self.data.ids(text) for text in candidates.ravel().tolist()])
        return self.mean_over_all(tension(anchors, others.view(*candidates.shape, -1)), own, examples)

    def draw_candidates(self, anchor: int, random: np.random.Generator) -> Numbers:
        """Return the anchor and seven sentences drawn from all that have another text."""
        keys = self.data.keys[:, 0]
        drawn = [anchor]
        while len(drawn) <= NEGATIVES:
            draw = random.integers(self.examples, size=NEGATIVES)
            drawn += draw[keys[draw] != keys[anchor]].tolist()
        return np.array(drawn[: NEGATIVES + 1])


def tension(anchors: Tensor, candidates: Tensor) -> Tensor:
    """Return the mean binary cross-entropy of sigmoid(anchor . candidate), the first candidate being the positive.

    `anchors` is (n, d), `candidates` (n, 1 + negatives, d).
    """
    products = torch.einsum("nd,nkd->nk", anchors, candidates)
    expected = torch.zeros_like(products)
    expected[:, 0] = 1.0
    return binary_cross_entropy_with_logits(products, expected)
