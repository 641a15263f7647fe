"""Poolers: from the hidden states of every token to one vector per sentence.

A pooler is named in a checkpoint and obeyed on load. `a+b` concatenates two poolers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from twinpass.errors import ConfigError
from twinpass.registry import Registry

Pool = Callable[[Any, Tensor], Tensor]  # (the transformer's output, attention mask) -> (n, width)


@dataclass(frozen=True, kw_only=True)
class Pooler:
    """How hidden states become one vector, and what comes with it."""

    pool: Pool
    about: str
    head: str = "none"  # none | kept | training: a Linear + tanh over the pooled vector, and when it applies
    layers: tuple[int, ...] | None = None  # hidden states averaged, when more than the last is needed
    mode: str | None = None  # sentence-transformers' name of the same pooling, where it has one


POOLERS: Registry[Pooler] = Registry("pooler")


def find_pooler(name: str) -> Pooler:
    """Return a registered pooler, or the concatenation that `a+b` names."""
    if "+" not in name:
        return POOLERS[name]
    parts = [POOLERS[part] for part in name.split("+")]
    if any(part.head != "none" for part in parts):
        raise ConfigError(f"pooler {name!r}: a pooler with an MLP cannot be joined with another.")
    return Pooler(
        pool=lambda output, mask: torch.cat([part.pool(output, mask) for part in parts], dim=-1),
        about=" beside ".join(part.about for part in parts),
        layers=next((part.layers for part in parts if part.layers), None),
    )


def describe_poolers() -> str:
    """Return one line per pooler, for error messages and help texts."""
    return "\n".join(f"  {name:<20} {POOLERS[name].about}" for name in POOLERS)


def masked_mean(states: Tensor, mask: Tensor) -> Tensor:
    """Average token states (n, tokens, width) over the places where the mask is 1."""
    weights = mask.unsqueeze(-1).to(states.dtype)
    return (states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)


def _cls(output: Any, mask: Tensor) -> Tensor:
    states: Tensor = output.last_hidden_state
    return states[:, 0]


def _pretrained(output: Any, mask: Tensor) -> Tensor:
    pooled: Tensor = output.pooler_output
    return pooled


def _average(*layers: int) -> Pool:
    """Average the token averages of several layers; -1 is the last, 0 the embedding layer."""

    def pool(output: Any, mask: Tensor) -> Tensor:
        chosen = [output.last_hidden_state if layer == -1 else output.hidden_states[layer] for layer in layers]
        return masked_mean(torch.stack(chosen).mean(dim=0) if len(chosen) > 1 else chosen[0], mask)

    return pool


def _max(output: Any, mask: Tensor) -> Tensor:
    states: Tensor = output.last_hidden_state
    return states.masked_fill(mask.unsqueeze(-1) == 0, float("-inf")).amax(dim=1)


def _mean_sqrt_length(output: Any, mask: Tensor) -> Tensor:
    lengths = mask.sum(dim=1, keepdim=True).clamp(min=1).to(output.last_hidden_state.dtype)
    return masked_mean(output.last_hidden_state, mask) * lengths.sqrt()


def _weighted_mean(output: Any, mask: Tensor) -> Tensor:
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device) * mask
    return masked_mean(output.last_hidden_state, places)


def _last_token(output: Any, mask: Tensor) -> Tensor:
    last = mask.sum(dim=1).clamp(min=1) - 1
    states: Tensor = output.last_hidden_state
    return states[torch.arange(len(last), device=states.device), last]


POOLERS.add(
    "cls_mlp",
    Pooler(
        pool=_cls,
        head="kept",
        mode="cls",
        about="[CLS], then a Linear + tanh learned in training and kept (the paper's supervised models)",
    ),
)
POOLERS.add(
    "cls_mlp_train",
    Pooler(
        pool=_cls,
        head="training",
        mode="cls",
        about="[CLS]; the Linear + tanh is for training only (the paper's unsupervised models)",
    ),
)
POOLERS.add("cls", Pooler(pool=_cls, mode="cls", about="[CLS] of the last layer, no MLP"))
POOLERS.add(
    "cls_pretrained",
    Pooler(
        pool=_pretrained,
        about="[CLS] through the checkpoint's own pretrained pooler (the authors' released supervised models)",
    ),
)
POOLERS.add("avg", Pooler(pool=_average(-1), mode="mean", about="masked mean of the last layer (SBERT, CT, MiniLM)"))
POOLERS.add(
    "avg_top2",
    Pooler(pool=_average(-2, -1), layers=(-2, -1), about="masked mean of the last two layers (BERT-flow's own code)"),
)
POOLERS.add(
    "avg_first_last",
    Pooler(
        pool=_average(1, -1),
        layers=(1, -1),
        about="masked mean of the first transformer layer and the last (BERT-whitening)",
    ),
)
POOLERS.add(
    "avg_embeddings_last",
    Pooler(
        pool=_average(0, -1),
        layers=(0, -1),
        about="masked mean of the embedding layer and the last (the paper's row 'first-last avg.', 56.70)",
    ),
)
POOLERS.add("max", Pooler(pool=_max, mode="max", about="maximum over tokens of the last layer"))
POOLERS.add(
    "mean_sqrt_length",
    Pooler(
        pool=_mean_sqrt_length, mode="mean_sqrt_len_tokens", about="sum over tokens divided by the root of their number"
    ),
)
POOLERS.add(
    "weighted_mean",
    Pooler(pool=_weighted_mean, mode="weightedmean", about="mean weighted by position, later tokens more"),
)
POOLERS.add("last_token", Pooler(pool=_last_token, mode="lasttoken", about="state of the last token"))
