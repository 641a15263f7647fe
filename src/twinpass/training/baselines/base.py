"""What every baseline says of itself, and the little that they share."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from twinpass.config import Run
from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError
from twinpass.registry import Registry
from twinpass.text.rows import Rows
from twinpass.training.baselines.run import FilledRun
from twinpass.training.chunked import Ids, cut_chunks, encode_directly
from twinpass.training.loop import set_learning_rate
from twinpass.training.watch import Encode

Numbers = NDArray[np.int64]


class Candidate(Protocol):
    """A model that a baseline may leave behind, as an Encoder is one."""

    @property
    def name(self) -> str:
        """What it was made from."""

    @property
    def fingerprint(self) -> str:
        """What it holds."""

    @property
    def model(self) -> nn.Module:
        """Its weights."""

    @property
    def encode(self) -> Encode:
        """From texts to vectors."""

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write it."""


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """What a run takes where it says nothing."""

    batch_size: int
    learning_rate: float
    max_tokens: int
    pooler: str | None = "avg"
    width: int | None = None
    eval_every: int | None = 250  # None: once an epoch


class Baseline(ABC):
    """A method ready to train: its models, its optimizer, and how numbered examples become a loss."""

    about: ClassVar[str]  # one line: who, and what is learned from what
    wants: ClassVar[str]  # "sentences", "labelled pairs" or "documents"
    columns: ClassVar[tuple[str, ...] | None] = None  # what a corpus is asked for where the run names none
    defaults: ClassVar[Defaults]
    warmup: ClassVar[float] = 0.0
    weight_decay: ClassVar[float] = 0.0
    clip: ClassVar[float] = 1.0
    needs_company: ClassVar[bool] = False  # whether an example alone in a batch teaches nothing

    examples: int  # in one epoch
    examples_per_step: int
    texts_per_example: ClassVar[int] = 1  # that go through an encoder
    negatives: float = 0.0  # that an example is told apart from
    mlm_loss: float | None = None  # the masked tokens' part of the last loss, where there is one

    @abstractmethod
    def __init__(self, run: FilledRun, rows: Rows, device: torch.device) -> None: ...

    @abstractmethod
    def modules(self) -> Mapping[str, nn.Module]:
        """Return what is trained, by name."""

    @abstractmethod
    def candidates(self) -> Mapping[str, Candidate]:
        """Return the models that may be kept, as they are now; without a dev set the last one is."""

    @abstractmethod
    def loss(self, examples: Numbers, random: np.random.Generator) -> Tensor:
        """Return the loss of a batch; whatever it draws, it draws from the generator."""

    def backward(self, examples: Numbers, random: np.random.Generator) -> float:
        """Send the loss of a batch back to the parameters and return it."""
        loss = self.loss(examples, random)
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return every trained parameter once, by name."""
        named: dict[nn.Parameter, str] = {}
        for prefix, module in self.modules().items():
            for name, parameter in module.named_parameters():
                if parameter.requires_grad:
                    named.setdefault(parameter, f"{prefix}.{name}")
        return {name: parameter for parameter, name in named.items()}

    def make_optimizer(self, run: FilledRun) -> torch.optim.Optimizer:
        """Make AdamW; only matrices decay, not biases and norms."""
        parameters = self.parameters().values()
        fused = next(iter(parameters)).device.type in ("cpu", "cuda")
        groups = [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": self.weight_decay},
            {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=run.learning_rate, fused=fused)

    def set_rate(self, optimizer: torch.optim.Optimizer, run: FilledRun, step: int, steps: int) -> None:
        """Set the rate of a step (counted from 0): up over the warm-up, then linearly to 0."""
        plan = Run(learning_rate=run.learning_rate, warmup=self.warmup)
        set_learning_rate(optimizer, plan, step, steps)

    def note_evaluation(self, *, gain: bool) -> None:  # noqa: B027 - most have nothing to learn from it
        """Take notice of whether the latest dev score was the best so far."""

    def memory(self) -> dict[str, float]:
        """Return what a resumed run must know beside weights and moments."""
        return {}

    def remember(self, memory: Mapping[str, float]) -> None:  # noqa: B027 - most have nothing to remember
        """Take back what `memory` returned."""

    def exhausted(self) -> bool:
        """Tell whether to stop before the last step."""
        return False


BASELINES: Registry[type[Baseline]] = Registry("baseline")


def load_encoder(run: FilledRun, device: torch.device) -> Encoder:
    """Load the run's model under the run's pooler, without whatever was fitted to its vectors before."""
    if run.width is not None:
        raise ConfigError(f"width is for infersent's LSTM; {run.baseline} takes its model's size.")
    encoder = Encoder.load(run.model, pooler=run.pooler, device=str(device), fresh_head_seed=run.seed)
    # A final normalisation, say, would keep a dot product within 1, where CT's sigmoid is almost flat.
    encoder.model.layers = nn.Sequential()
    encoder.model.train()
    return encoder


def token_limit(run: FilledRun, encoder: Encoder) -> int:
    """Return where texts are cut in training: the run's limit, or the model's where that is lower."""
    limit = run.max_tokens
    return min(limit, encoder.max_tokens or limit)


def encode_with_graph(encoder: Encoder, ids: Ids) -> Tensor:
    """Return the vectors (n, d) of tokenised texts, in order, ready for a backward pass."""
    chunks = cut_chunks(ids, [encoder] * len(ids))
    return encode_directly(chunks, ids, dimensions=encoder.dimensions).vectors
