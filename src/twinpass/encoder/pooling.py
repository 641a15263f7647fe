"""Poolers: from the hidden states of every token to one vector per sentence.

A checkpoint names its pooler, and loading uses that one. `a+b` concatenates two poolers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from twinpass.encoder.template import POOLER as TEMPLATE_POOLER
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
    in_template: bool = False  # whether it reads a place of a template, which a model with one tells it


POOLERS: Registry[Pooler] = Registry("pooler")


def find_pooler(name: str) -> Pooler:
    """Return a registered pooler, or the concatenation that `a+b` names."""
    if "+" not in name:
        return POOLERS[name]
    parts = [POOLERS[part] for part in name.split("+")]
    if any(part.head != "none" for part in parts):
        raise ConfigError(f"pooler {name!r}: a pooler with an MLP cannot be joined with another.")
    if any(part.in_template for part in parts):
        raise ConfigError(f"pooler {name!r}: a pooler of a template cannot be joined with another.")
    return Pooler(
        pool=lambda output, mask: torch.cat([part.pool(output, mask) for part in parts], dim=-1),
        about=" beside ".join(part.about for part in parts),
        layers=next((part.layers for part in parts if part.layers), None),
    )


def describe_poolers() -> str:
    """Return one line per pooler, for error messages and help texts."""
    return "\n".join(f"  {name:<20} {POOLERS[name].about}" for name in POOLERS)


def masked_mean(states: Tensor, mask: Tensor) -> Tensor:
    """Average token states (n, tokens, width) where the mask is 1."""
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
    states: Tensor = output.last_hidden_state
    last = (mask.sum(dim=1).clamp(min=1) - 1).view(-1, 1, 1)
    return states.gather(1, last.expand(-1, 1, states.shape[-1])).squeeze(1)


def state_at(place: int) -> Pool:
    """Return the pooler of the token at a place, counted from the end of each row if it is negative."""

    def pool(output: Any, mask: Tensor) -> Tensor:
        states: Tensor = output.last_hidden_state
        if place >= 0:
            return states[:, place]
        where = (mask.sum(dim=1) + place).view(-1, 1, 1)
        return states.gather(1, where.expand(-1, 1, states.shape[-1])).squeeze(1)

    return pool


def _nowhere(output: Any, mask: Tensor) -> Tensor:
    raise ConfigError("the pooler 'mask' reads the mask token of a template, and this model has none.")


def _add(name: str, pool: Pool, about: str, **more: Any) -> None:
    POOLERS.add(name, Pooler(pool=pool, about=about, **more))


_add("cls_mlp", _cls, "[CLS], then a Linear + tanh (the paper's supervised models)", head="kept", mode="cls")
_add(
    "cls_mlp_train",
    _cls,
    "[CLS]; the Linear + tanh is for training only (the paper's unsupervised models)",
    head="training",
    mode="cls",
)
_add("cls", _cls, "[CLS] of the last layer, no MLP", mode="cls")
_add(
    "cls_pretrained",
    _pretrained,
    "[CLS] through the checkpoint's own pretrained pooler (the authors' released supervised models)",
)
_add("avg", _average(-1), "masked mean of the last layer (SBERT, CT, MiniLM)", mode="mean")
_add(
    "avg_top2",
    _average(-2, -1),
    "masked mean of the last two layers (as in BERT-flow's paper; its code: first, last)",
    layers=(-2, -1),
)
_add(
    "avg_first_last",
    _average(1, -1),
    "masked mean of the first transformer layer and the last (BERT-whitening; BERT-flow's code)",
    layers=(1, -1),
)
_add(
    "avg_embeddings_last",
    _average(0, -1),
    "masked mean of the embedding layer and the last (the paper's row 'first-last avg.', 56.70)",
    layers=(0, -1),
)
_add("max", _max, "maximum over tokens of the last layer", mode="max")
_add(
    "mean_sqrt_length",
    _mean_sqrt_length,
    "sum over tokens divided by the square root of their number",
    mode="mean_sqrt_len_tokens",
)
_add("weighted_mean", _weighted_mean, "mean weighted by position, later tokens more", mode="weightedmean")
_add("last_token", _last_token, "state of the last token", mode="lasttoken")
_add(
    TEMPLATE_POOLER,
    _nowhere,
    'mask token of a template around the text: This sentence : "[X]" means [MASK] . (PromptBERT)',
    in_template=True,
)
