"""The network: a transformer, a pooler, perhaps a head, perhaps layers after it."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from twinpass.encoder.pooling import find_pooler, state_at

ACTIVATIONS: dict[str, type[nn.Module]] = {
    kind.__name__: kind for kind in (nn.Tanh, nn.Identity, nn.ReLU, nn.GELU, nn.Sigmoid, nn.SiLU)
}


class Dense(nn.Module):
    """A linear map and an activation; the MLP over [CLS] is one with tanh."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True, activation: str = "Tanh") -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=bias)
        self.activation = ACTIVATIONS[activation]()

    def forward(self, vectors: Tensor) -> Tensor:
        """Map (n, inputs) to (n, outputs)."""
        mapped: Tensor = self.activation(self.linear(vectors))
        return mapped


class Normalize(nn.Module):
    """Scale every vector to length one."""

    def forward(self, vectors: Tensor) -> Tensor:
        """Map (n, width) to unit vectors of the same shape."""
        return F.normalize(vectors, dim=-1)


class SentenceModel(nn.Module):
    """Token ids to sentence vectors.

    In training mode the head always applies; in evaluation mode only if the pooler keeps it.
    """

    def __init__(
        self,
        transformer: nn.Module,
        *,
        pooler: str,
        head: nn.Module | None,
        layers: nn.Sequential,
        place: int | None = None,
    ) -> None:
        super().__init__()
        self.transformer = transformer
        self.place = place  # of the mask token, where texts stand in a template
        self.pooler = find_pooler(pooler)
        if place is not None:
            self.pooler = replace(self.pooler, pool=state_at(place))
        self.pooled = len(pooler.split("+"))  # vectors that the pooler concatenates
        self.head = head
        self.layers = layers

    @property
    def dimensions(self) -> int:
        """The length of a vector."""
        mapped = [layer.linear.out_features for layer in self.layers.children() if isinstance(layer, Dense)]
        if mapped:
            return mapped[-1]
        transformer: Any = self.transformer
        return int(transformer.config.hidden_size) * self.pooled

    def forward(self, features: Mapping[str, Tensor]) -> Tensor:
        """Map padded token ids (n, tokens) to vectors (n, dimensions)."""
        vectors: Tensor = self.pooler.pool(self.hidden(features), features["attention_mask"])
        if self.head is not None and (self.training or self.pooler.head == "kept"):
            vectors = self.head(vectors)
        kind = vectors.device.type
        if torch.is_autocast_enabled(kind):  # full precision: fitted layers subtract numbers that are nearly equal
            with torch.autocast(kind, enabled=False):
                vectors = self.layers(vectors.float())
        else:
            vectors = self.layers(vectors)
        return vectors

    def hidden(self, features: Mapping[str, Tensor]) -> Any:
        """Run the transformer alone, keeping every layer's states only if the pooler needs them."""
        return self.transformer(**features, output_hidden_states=self.pooler.layers is not None, return_dict=True)


def fresh_head(width: int, *, seed: int, deviation: float = 0.02) -> Dense:
    """Make the MLP over [CLS] as BERT initialises its layers, from its own seed."""
    head = Dense(width, width, activation="Tanh")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        head.linear.weight.normal_(0.0, deviation, generator=generator)
        head.linear.bias.zero_()
    return head


class WeightsSeen:
    """A model's weights at one moment, to tell cheaply whether any was changed or replaced since.

    torch counts changes of a tensor as versions, but not those by fused optimizers or through `weight.data`: for these,
    a few values of every tensor are compared. Only a change of single values that torch does not count goes unnoticed.
    """

    def __init__(self, model: nn.Module) -> None:
        # Weak references: an address alone may be that of a newer tensor, and dropped weights must not be kept alive.
        self._seen = [(name, weakref.ref(tensor), mark) for name, tensor, mark in _weights(model)]

    def unchanged(self, model: nn.Module) -> bool:
        """Tell whether the model has the same weights, by identity, memory, version and some values."""
        now = list(_weights(model))
        return len(now) == len(self._seen) and all(
            name == old_name and reference() is tensor and mark == old_mark
            for (name, tensor, mark), (old_name, reference, old_mark) in zip(now, self._seen, strict=True)
        )


def _weights(model: nn.Module) -> Iterator[tuple[str, Tensor, tuple[object, ...]]]:
    for name, tensor in itertools.chain(model.named_parameters(), model.named_buffers()):
        some = tensor.detach().view(-1)[:: max(1, tensor.numel() // 4)].tolist() if tensor.is_contiguous() else []
        # Tensors made in inference mode have no version: NaN equals nothing, so they count as changed.
        yield name, tensor, (tensor.data_ptr(), float("nan") if tensor.is_inference() else tensor._version, some)
