"""The lower layers of a transformer alone."""

from __future__ import annotations

from typing import Any

from torch import nn

from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError, ModelError


def keep_layers(encoder: Encoder, count: int) -> None:
    """Drop every transformer layer above the first `count` of a loaded encoder."""
    transformer: Any = encoder.model.transformer
    total = int(transformer.config.num_hidden_layers)
    if not 1 <= count <= total:
        raise ConfigError(f"{encoder.name} has {total} layers; keep between 1 and {total} of them, not {count}.")
    stacks = [part for part in transformer.modules() if isinstance(part, nn.ModuleList) and len(part) == total]
    if len(stacks) != 1:
        raise ModelError(f"{encoder.name} does not keep its layers in one list, so none can be dropped.")
    del stacks[0][count:]
    transformer.config.num_hidden_layers = count
