"""Flow (Li et al., 2020): a small Glow, an invertible network that maps vectors to a standard normal.

A vector is a 1 x 1 image whose channels are its dimensions, so every convolution of Glow is a linear map here. A
level is a row of steps; after each level but the last, half of the channels leaves for the output.
"""

from __future__ import annotations

import itertools
import math
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from twinpass.errors import ConfigError, TrainingError
from twinpass.progress import Advance

Part = TypeVar("Part", bound=nn.Module)

BATCH = 32  # vectors in one step of the optimiser; this and the next three as Li et al. have them
LEARNING_RATE = 1e-3
WEIGHT_DECAY = 0.01
MAX_GRADIENT_NORM = 1.0
# The authors initialise from the first batch. It scores the same, but 32 vectors may miss that a channel varies.
INITIALISED_FROM = 1_024


class ActNorm(nn.Module):
    """Shift and scale every channel by learned numbers that start from data."""

    FASTER = 3.0  # log scales are learned as thirds of themselves, as in Glow

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))
        self.log_scale = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, channels) to the same shape."""
        return (x + self.bias) * (self.FASTER * self.log_scale).exp()

    @torch.no_grad()
    def start_from(self, x: Tensor) -> None:
        """Give these vectors (n, channels) mean 0 and variance 1; a channel that does not vary keeps its scale."""
        self.bias.copy_(-x.mean(dim=0))
        deviation = (x + self.bias).square().mean(dim=0).sqrt()
        varies = deviation > 1e-6 * deviation.max()
        self.log_scale.copy_(torch.where(varies, -deviation.log() / self.FASTER, 0.0))


class Step(nn.Module):
    """One step of Glow: norm, the channels in reverse, and half of them shifted by a function of the others."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.norm = ActNorm(channels)
        self.kept = channels // 2
        self.shift = _shift(self.kept, width, channels - self.kept)

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, channels) to the same shape."""
        x = self.norm(x).flip(-1)
        kept, moved = x[:, : self.kept], x[:, self.kept :]
        return torch.cat([kept, moved + self.shift(kept)], dim=-1)


def _shift(inputs: int, width: int, outputs: int) -> nn.Sequential:
    """Return the small network of a coupling; its last map starts at zero, so that it shifts by nothing."""
    sizes = [inputs, width, width, outputs]
    maps = [nn.Linear(a, b, bias=False) for a, b in itertools.pairwise(sizes)]
    for each in maps[:-1]:
        nn.init.normal_(each.weight, std=0.05)
    nn.init.zeros_(maps[-1].weight)
    first, second, last = ([each, ActNorm(each.out_features)] for each in maps)
    return nn.Sequential(*first, nn.ReLU(), *second, nn.ReLU(), *last)


class Flow(nn.Module):
    """A Glow over vectors: levels of steps, additive couplings, a standard normal prior."""

    def __init__(self, dimensions: int, *, levels: int = 3, depth: int = 3, width: int = 32) -> None:
        super().__init__()
        if dimensions < 2**levels:
            raise ConfigError(f"a flow of {levels} levels needs at least {2**levels} dimensions, got {dimensions}.")
        self.settings = {"dimensions": dimensions, "levels": levels, "depth": depth, "width": width}
        # Half of a level's channels enter the next; if their number is odd, the odd one leaves.
        channels = [dimensions // 2**level for level in range(levels)]
        self.leaving = [here - beyond for here, beyond in zip(channels, [*channels[1:], 0], strict=True)]
        self.levels = nn.ModuleList(nn.Sequential(*(Step(here, width) for _ in range(depth))) for here in channels)

    def forward(self, vectors: Tensor) -> Tensor:
        """Map vectors (n, d) to codes (n, d): what left at each level, one after another."""
        codes: list[Tensor] = []
        for level, leaving in zip(self.levels, self.leaving, strict=True):
            vectors = level(vectors)
            on = vectors.shape[-1] - leaving
            codes.append(vectors[:, on:])
            vectors = vectors[:, :on]
        return torch.cat(codes, dim=-1)

    def log_prob(self, vectors: Tensor) -> Tensor:
        """Return each vector's log density (n,): that of its code plus the log-determinant."""
        codes = self(vectors)
        normal = -0.5 * (codes.square() + math.log(2 * math.pi)).sum(dim=-1)
        # A coupling only shifts: only the norms between couplings change the volume, the same everywhere.
        volumes = [step.norm.FASTER * step.norm.log_scale.sum() for step in _parts(self, Step)]
        log_prob: Tensor = normal + torch.stack(volumes).sum()
        return log_prob

    def loss(self, vectors: Tensor) -> Tensor:
        """Return the average bits per dimension of the vectors, which fitting minimises."""
        return -self.log_prob(vectors).mean() / (math.log(2) * vectors.shape[-1])

    @torch.no_grad()
    def start_from(self, sample: Tensor) -> None:
        """Initialise every norm, in order, from the sample as it arrives there."""
        norms = _parts(self, ActNorm)
        hooks = [norm.register_forward_pre_hook(lambda norm, inputs: norm.start_from(*inputs)) for norm in norms]
        self(sample)
        for hook in hooks:
            hook.remove()


def _parts(whole: nn.Module, kind: type[Part]) -> list[Part]:
    """Return the parts of one kind, in order."""
    return [part for part in whole.modules() if isinstance(part, kind)]


def fit_flow(vectors: NDArray[np.float32], *, seed: int, advance: Advance = lambda count: None) -> Flow:
    """Fit a flow to vectors (n, d) in one epoch; the seed decides its weights and the order of the vectors."""
    data = torch.tensor(vectors, dtype=torch.float32)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        flow = Flow(data.shape[1])
        order = torch.randperm(len(data))
    flow.start_from(data[order[:INITIALISED_FROM]])
    optimizer = torch.optim.AdamW(flow.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    for batch in torch.split(order, BATCH):
        loss = flow.loss(data[batch])
        if not loss.isfinite():
            raise TrainingError("the flow's loss is no longer finite. Are some vectors far larger than the others?")
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(flow.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()
        optimizer.zero_grad()
        advance(len(batch))
    return flow.eval()
