"""Every registered pooler against a naive transcription over real hidden states."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.tiny import SENTENCES

from twinpass import Encoder
from twinpass.encoder.pooling import POOLERS, describe_poolers, find_pooler
from twinpass.errors import ConfigError


def naive(name: str, states: list[np.ndarray], pooled: np.ndarray | None) -> np.ndarray:
    """One sentence alone: `states` are its layers' (tokens, width), embedding layer first."""
    last = states[-1]
    tokens = len(last)
    return {
        "cls": lambda: last[0],
        "cls_mlp_train": lambda: last[0],
        "cls_pretrained": lambda: pooled,
        "avg": lambda: sum(last[t] for t in range(tokens)) / tokens,
        "avg_top2": lambda: sum((states[-1][t] + states[-2][t]) / 2 for t in range(tokens)) / tokens,
        "avg_first_last": lambda: sum((states[1][t] + last[t]) / 2 for t in range(tokens)) / tokens,
        "avg_embeddings_last": lambda: sum((states[0][t] + last[t]) / 2 for t in range(tokens)) / tokens,
        "max": lambda: np.array([max(last[:, d]) for d in range(last.shape[1])]),
        "mean_sqrt_length": lambda: sum(last[t] for t in range(tokens)) / tokens**0.5,
        "weighted_mean": lambda: sum((t + 1) * last[t] for t in range(tokens)) / sum(t + 1 for t in range(tokens)),
        "last_token": lambda: last[-1],
        "mask": lambda: last[-3],  # [MASK] . [SEP]
    }[name]()


@pytest.mark.parametrize("name", list(POOLERS))
def test_pooler_equals_its_definition(name: str, checkpoints) -> None:
    encoder = Encoder.load(checkpoints("bert"), pooler=name, fresh_head_seed=1)
    vectors = encoder.encode(SENTENCES)
    for sentence, vector in zip(SENTENCES, vectors, strict=True):
        with torch.no_grad():
            output = encoder.model.transformer(**encoder.pad(encoder.tokenize([sentence])), output_hidden_states=True)
        states = [layer[0].numpy() for layer in output.hidden_states]
        if name == "cls_mlp":
            linear = encoder.model.head.linear
            expected = np.tanh(linear.weight.detach().numpy() @ states[-1][0] + linear.bias.detach().numpy())
        else:
            expected = naive(name, states, output.pooler_output[0].numpy())
        np.testing.assert_allclose(vector, expected, atol=1e-5)


def test_plus_concatenates(checkpoints) -> None:
    both = Encoder.load(checkpoints("bert"), pooler="cls+avg_top2")
    vectors = both.encode(SENTENCES)
    assert vectors.shape[1] == both.dimensions == 64
    cls = Encoder.load(checkpoints("bert"), pooler="cls").encode(SENTENCES)
    top = Encoder.load(checkpoints("bert"), pooler="avg_top2").encode(SENTENCES)
    np.testing.assert_allclose(vectors, np.hstack([cls, top]), atol=1e-6)


def test_head_applies_in_training_and_is_kept_only_where_the_pooler_says(checkpoints) -> None:
    for name, kept in (("cls_mlp", True), ("cls_mlp_train", False)):
        encoder = Encoder.load(checkpoints("bert"), pooler=name, fresh_head_seed=1, dropout=0.0)
        features = encoder.pad(encoder.tokenize(SENTENCES[:3]))
        with torch.no_grad():
            learning = encoder.model.train()(features)
            testing = encoder.model.eval()(features)
        assert torch.allclose(learning, testing, atol=1e-6) is kept


def test_a_wrong_name_is_explained() -> None:
    with pytest.raises(ConfigError, match=r"no pooler named 'cls_mpl'. Did you mean 'cls_mlp'\? Known: "):
        find_pooler("cls_mpl")
    assert all(name in describe_poolers() for name in POOLERS)
