"""Contrastive tension (Carlsson et al., 2021): two encoders agree on a sentence and on nothing else."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError
from twinpass.text.rows import Rows
from twinpass.training.baselines.base import (
    BASELINES,
    Baseline,
    Defaults,
    Numbers,
    encode_with_graph,
    load_encoder,
    token_limit,
)
from twinpass.training.baselines.material import Sentences
from twinpass.training.baselines.run import FilledRun
from twinpass.training.data import read_data

NEGATIVES = 7  # to one positive
# The authors' code: 1e-5, and a fifth of it less after every 500 steps until 2e-6 is left.
STAIR, STAIRS = 500, 5


@BASELINES.register("ct")
class ContrastiveTension(Baseline):
    """An anchor goes through the first copy; itself and seven other sentences go through the second."""

    about = "CT (Carlsson et al.): two copies of an encoder agree on a sentence and on nothing else"
    wants = "sentences"
    defaults = Defaults(batch_size=16, learning_rate=1e-5, max_tokens=75)
    clip = math.inf
    texts_per_example = 2 + NEGATIVES
    negatives = float(NEGATIVES)

    def __init__(self, run: FilledRun, rows: Rows, device: torch.device) -> None:
        pairs = run.batch_size
        if pairs % (NEGATIVES + 1):
            raise ConfigError(
                f"ct counts pairs, {NEGATIVES + 1} to an anchor, so batch_size is a multiple of {NEGATIVES + 1}; "
                f"got {pairs}."
            )
        first = load_encoder(run, device)
        first.model.eval()  # dropout is off in CT; gradients flow all the same
        self.encoders: Mapping[str, Encoder] = {"first": first, "second": copy.deepcopy(first)}
        limit = token_limit(run, first)
        self.data = read_data(Sentences(rows), lambda texts: first.tokenize(texts, max_tokens=limit))
        self.examples, self.examples_per_step = len(self.data), pairs // (NEGATIVES + 1)

    def modules(self) -> Mapping[str, nn.Module]:
        """Return both copies."""
        return {name: encoder.model for name, encoder in self.encoders.items()}

    def candidates(self) -> Mapping[str, Encoder]:
        """Return both copies; the second sees more sentences, so it is kept where no dev set decides."""
        return self.encoders

    def make_optimizer(self, run: FilledRun) -> torch.optim.Optimizer:
        """Make RMSprop as the authors' library defines it."""
        return torch.optim.RMSprop(self.parameters().values(), lr=run.learning_rate, alpha=0.9, eps=1e-7)

    def set_rate(self, optimizer: torch.optim.Optimizer, run: FilledRun, step: int, steps: int) -> None:
        """Go down the stairs from the peak to a fifth of it."""
        for group in optimizer.param_groups:
            group["lr"] = run.learning_rate * (1 - min(step // STAIR, STAIRS - 1) / STAIRS)

    def loss(self, examples: Numbers, random: np.random.Generator) -> Tensor:
        """Encode the anchors once, and each with its own eight candidates."""
        candidates = np.stack([self.draw_candidates(anchor, random) for anchor in examples.tolist()])
        first, second = self.encoders.values()
        anchors = encode_with_graph(first, [self.data.ids(anchor) for anchor in examples.tolist()])
        others = encode_with_graph(second, [self.data.ids(text) for text in candidates.ravel().tolist()])
        return tension(anchors, others.view(*candidates.shape, -1))

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
    wanted = torch.zeros_like(products)
    wanted[:, 0] = 1.0
    return binary_cross_entropy_with_logits(products, wanted)
