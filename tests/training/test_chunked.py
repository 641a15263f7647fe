"""Chunks put vectors back in order, and replaying them gives the gradient of the direct computation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.training.tiny_runs import make_sentences

from twinpass.encoder.encoder import Encoder
from twinpass.equations import info_nce
from twinpass.training.chunked import cut_chunks, encode_cached, encode_directly


@pytest.fixture
def encoder(tiny) -> Encoder:
    return Encoder.load(tiny, pooler="cls_mlp", fresh_head_seed=0, device="cpu")


def gradient(encode, encoders: list[Encoder], *, budget: int) -> tuple[float, list[np.ndarray]]:
    """Return loss and gradient of a batch of 12 pairs, dropout on, from one seed."""
    models = [encoder.model.train() for encoder in dict.fromkeys(encoders)]
    for model in models:
        model.zero_grad()
    ids = encoders[0].tokenize(make_sentences(24))
    chunks = cut_chunks(ids, [encoders[0]] * 12 + [encoders[-1]] * 12, token_budget=budget)
    assert len(chunks) > len(models)
    torch.manual_seed(3)
    encoded = encode(chunks, ids, dimensions=32)
    loss = info_nce(encoded.vectors[:12], encoded.vectors[12:])
    loss.backward()
    encoded.propagate()
    grads = [p.grad.clone().numpy() for model in models for p in model.parameters() if p.grad is not None]
    return loss.item(), grads


@pytest.mark.parametrize("budget", [16, 60])
@pytest.mark.parametrize("dual", [False, True])
def test_replayed_gradients_are_the_direct_ones(encoder: Encoder, tiny, budget: int, dual: bool) -> None:
    encoders = [encoder]
    if dual:
        encoders.append(Encoder.load(tiny, pooler="cls_mlp", fresh_head_seed=1, device="cpu"))
    loss, direct = gradient(encode_directly, encoders, budget=budget)
    cached_loss, cached = gradient(encode_cached, encoders, budget=budget)
    assert cached_loss == loss
    assert len(cached) == len(direct) > 20
    for one, other in zip(cached, direct, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * np.abs(other).max())


def test_dropout_was_on_in_that_comparison(encoder: Encoder) -> None:
    loss, _ = gradient(encode_directly, [encoder], budget=60)
    encoder.model.transformer.eval()
    ids = encoder.tokenize(make_sentences(24))
    chunks = cut_chunks(ids, [encoder] * 24, token_budget=60)
    vectors = encode_directly(chunks, ids, dimensions=32).vectors
    assert info_nce(vectors[:12], vectors[12:]).item() != loss


def test_replaying_leaves_the_generator_where_the_forward_pass_did(encoder: Encoder) -> None:
    gradient(encode_directly, [encoder], budget=60)
    after = torch.get_rng_state()
    gradient(encode_cached, [encoder], budget=60)
    assert torch.equal(torch.get_rng_state(), after)


def test_vectors_come_back_in_order(encoder: Encoder) -> None:
    texts = make_sentences(20)
    ids = encoder.tokenize(texts)
    encoder.model.eval()
    with torch.no_grad():
        vectors = encode_directly(cut_chunks(ids, [encoder] * 20, token_budget=40), ids, dimensions=32).vectors
    np.testing.assert_allclose(vectors.numpy(), encoder.encode(texts), atol=1e-5)


def test_two_rows_of_one_sentence_get_different_masks(encoder: Encoder) -> None:
    encoder.model.train()
    ids = encoder.tokenize(["the cat sat on the mat"] * 2)
    first, second = encode_directly(cut_chunks(ids, [encoder] * 2), ids, dimensions=32).vectors
    assert not torch.allclose(first, second)


def test_no_sentences_are_no_vectors() -> None:
    assert encode_cached([], [], dimensions=5).vectors.shape == (0, 5)
