"""IS-BERT (Zhang et al., 2020): a sentence's vector distinguishes its own n-grams from those of other sentences.

Local features are linear n-gram convolutions over token states; the sentence's vector is their mean. The windows
wrap around the end of the sentence instead of being padded with zeros. The mean of a linear convolution that wraps
around is the sum of its taps times the mean token state, so the trained vector is exactly mean pooling and one linear
layer: the model is saved as that, and loads anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from twinpass.config import Run
from twinpass.encoder.model import Dense
from twinpass.encoder.pooling import masked_mean
from twinpass.errors import ConfigError
from twinpass.text.rows import Rows
from twinpass.training.chunked import Ids, cut_chunks
from twinpass.training.data import read_data
from twinpass.training.method import METHODS, Method, Numbers, Start, Trainable

WINDOWS = (1, 3, 5)


class Ngrams(nn.Module):
    """Linear convolutions over windows of tokens, side by side; windows wrap around a sentence's end."""

    def __init__(self, width: int, channels: int, windows: Sequence[int] = WINDOWS) -> None:
        super().__init__()
        self.windows = tuple(windows)
        self.maps = nn.ModuleList([nn.Linear(window * width, channels) for window in windows])

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Map token states (n, tokens, width) to local features (n, tokens, windows * channels)."""
        neighbours = [windows_of(states, mask, window) for window in self.windows]
        return torch.cat([linear(each) for linear, each in zip(self.maps, neighbours, strict=True)], dim=-1)

    @torch.no_grad()
    def fold_into(self, dense: Dense) -> None:
        """Set a linear layer to the map from the mean token state to the mean local feature."""
        maps: list[Any] = list(self.maps)
        taps = [each.weight.unflatten(1, (n, -1)) for each, n in zip(maps, self.windows, strict=True)]
        dense.linear.weight.copy_(torch.cat([each.sum(dim=1) for each in taps]))
        dense.linear.bias.copy_(torch.cat([each.bias for each in maps]))


def windows_of(states: Tensor, mask: Tensor, window: int) -> Tensor:
    """Return every token's neighbourhood (n, tokens, window * width), the sentence taken as a ring."""
    lengths = mask.sum(dim=1, keepdim=True)
    places = torch.arange(states.shape[1], device=states.device)[None]
    rows = torch.arange(len(states), device=states.device)[:, None]
    offsets = range(-(window // 2), window // 2 + 1)
    return torch.cat([states[rows, (places + offset) % lengths] for offset in offsets], dim=-1)


@METHODS.register("is-bert")
class IsBert(Method):
    """Mutual information between a sentence's vector and its n-grams, other sentences' n-grams as negatives."""

    title = "IS-BERT (Zhang et al., 2020)"
    objective = "IS-BERT (Zhang et al.): mutual information between a sentence's vector and its own n-grams"
    needs_negatives = True
    several_processes = False  # the loss compares every token of the batch with every sentence

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        self.encoder = self.load_plain_encoder()
        self.models = {"encoder": self.encoder}
        width = int(self.encoder.model.transformer.config.hidden_size)  # type: ignore[union-attr, arg-type]
        channels = width // len(WINDOWS)  # 256 of BERT base's 768, as the authors have it
        self.ngrams = Ngrams(width, channels).to(self.device)
        self.heads = {"ngrams": self.ngrams}
        self.folded = Dense(width, channels * len(WINDOWS), activation="Identity").to(self.device)
        self.folded.requires_grad_(False)  # it only mirrors the convolutions
        self.encoder.model.layers = nn.Sequential(self.folded)
        self.data = read_data(self.rows, self.tokenizer(self.encoder))
        self.negatives = self.per_step - 1.0

    @classmethod
    def read(cls, run: Run, rows: Rows, *, model: str, device: torch.device) -> tuple[Run, Rows]:
        """Read every text as a sentence."""
        if run.pooler != "avg":
            raise ConfigError(f"is-bert's vector is a mean over tokens, so its pooler is avg; got {run.pooler!r}.")
        return super().read(run, rows, model=model, device=device)

    def candidates(self) -> Mapping[str, Trainable]:
        """Return the encoder, its last layer brought up to date."""
        self.ngrams.fold_into(self.folded)
        return self.models

    def loss(self, examples: Numbers, random: np.random.Generator) -> Tensor:
        """Compare every n-gram of the batch with every sentence of it."""
        local, owners, means = self.features([self.data.ids(text) for text in examples])
        keys = torch.from_numpy(self.data.keys[examples, 0].view(np.int64)).to(means.device)
        return jensen_shannon(local, owners, means, keys[:, None] == keys[None, :])

    def features(self, ids: Ids) -> tuple[Tensor, Tensor, Tensor]:
        """Return all local features (m, d), the sentence each belongs to (m,), and their means (n, d)."""
        local, owners, means, order = [], [], [], []
        for chunk in cut_chunks(ids, [self.encoder] * len(ids)):
            inputs = self.encoder.pad([ids[place] for place in chunk.places])
            mask = inputs["attention_mask"]
            with self.processes.accelerator.autocast():
                states = self.encoder.model.hidden(inputs).last_hidden_state
            features = self.ngrams(states.float(), mask)
            places = torch.from_numpy(chunk.places).to(mask.device)
            local.append(features[mask.bool()])
            owners.append(places.repeat_interleave(mask.sum(dim=1)))
            means.append(masked_mean(features, mask))
            order.append(places)
        return torch.cat(local), torch.cat(owners), torch.cat(means)[torch.cat(order).argsort()]


def jensen_shannon(local: Tensor, owners: Tensor, means: Tensor, same: Tensor) -> Tensor:
    """Return minus the Jensen-Shannon estimate of the mutual information of n-grams and sentences.

    `local` (m, d) are n-grams, `owners` (m,) their sentences, `means` (n, d) the sentences; `same` (n, n) is True
    where two sentences have one text, which never counts as a negative.
    """
    scores = local @ means.T
    own = scores.gather(1, owners[:, None])
    foreign = scores[~same[owners]]
    # With JSD's log 2 terms: zero information scores 0, perfect information -2 log 2.
    from_own = softplus(-own).mean() - math.log(2)
    return from_own + (softplus(foreign).mean() - math.log(2) if len(foreign) else 0.0)
