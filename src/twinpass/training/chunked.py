"""The batch is the unit of the loss, not of the forward pass.

A batch's sentences are sorted by length and cut into chunks, so there is little padding. Each chunk is encoded, the
vectors are put back in order, and the loss is computed over all of them. `encode_directly` keeps every chunk's graph.
`encode_cached` keeps none: the gradient with respect to the vectors is computed first, then each chunk is encoded
again under the same dropout masks to propagate it. Memory is bounded by one chunk, for one more forward pass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twinpass.encoder.encoder import Encoder
from twinpass.text.batch import cut
from twinpass.training.randomness import TorchState

TOKEN_BUDGET = 4_096  # padded tokens in one chunk, unless the run sets chunk_tokens
CHUNK_COST = 128.0  # the fixed cost of one more chunk (forward and backward), in tokens

Ids = Sequence[Any]  # one array of token ids per sentence
Autocast = Callable[[], contextlib.AbstractContextManager[Any]]


class Chunk(NamedTuple):
    """Sentences of near-equal length that go through one encoder together, by their place in the batch."""

    encoder: Encoder
    places: NDArray[np.int64]


class Encoded(NamedTuple):
    """A batch's vectors (sentences, d), and what to call after the loss was propagated back to them."""

    vectors: Tensor
    propagate: Callable[[], None]


def cut_chunks(ids: Ids, encoder_of: Sequence[Encoder], *, token_budget: int | None = None) -> list[Chunk]:
    """Cut sentences into chunks with little padding, each for one encoder."""
    chunks = []
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    for encoder in dict.fromkeys(encoder_of):
        own = np.array([place for place, other in enumerate(encoder_of) if other is encoder], dtype=np.int64)
        parts = cut(lengths[own], token_budget=token_budget or TOKEN_BUDGET, batch_cost=CHUNK_COST)
        chunks += [Chunk(encoder, own[part]) for part in parts]
    return chunks


def encode_directly(
    chunks: Sequence[Chunk], ids: Ids, *, dimensions: int, autocast: Autocast = contextlib.nullcontext
) -> Encoded:
    """Encode every chunk with its graph; the backward pass needs nothing more."""
    vectors = [_encode(chunk, ids, autocast) for chunk in chunks]
    return Encoded(_in_order(vectors, chunks, dimensions), lambda: None)


def encode_cached(
    chunks: Sequence[Chunk], ids: Ids, *, dimensions: int, autocast: Autocast = contextlib.nullcontext
) -> Encoded:
    """Encode without a graph now, and again chunk by chunk once the gradient of the vectors is known."""
    masks, parts = [], []
    with torch.no_grad():
        for chunk in chunks:
            masks.append(TorchState.now(chunk.encoder.device))
            parts.append(_encode(chunk, ids, autocast))
    vectors = _in_order(parts, chunks, dimensions).requires_grad_()

    def replay() -> None:
        gradient = vectors.grad
        if gradient is None:
            return
        after = TorchState.now(vectors.device)
        for chunk, mask in zip(chunks, masks, strict=True):
            mask.restore()
            again = _encode(chunk, ids, autocast)
            torch.autograd.backward(again, gradient[torch.from_numpy(chunk.places)])
        after.restore()

    return Encoded(vectors, replay)


def _encode(chunk: Chunk, ids: Ids, autocast: Autocast) -> Tensor:
    with autocast():
        vectors: Tensor = chunk.encoder.model(chunk.encoder.pad([ids[place] for place in chunk.places]))
    return vectors.float()


def _in_order(parts: Sequence[Tensor], chunks: Sequence[Chunk], dimensions: int) -> Tensor:
    """Put the chunks' vectors back into the batch's order; a process without sentences has no chunk."""
    if not chunks:
        return torch.zeros(0, dimensions)
    order = np.argsort(np.concatenate([chunk.places for chunk in chunks]), kind="stable")
    return torch.cat(list(parts))[torch.from_numpy(order)]
