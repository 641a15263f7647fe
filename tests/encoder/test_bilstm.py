"""InferSent's encoder: an LSTM in both directions, its maximum over time, saved and opened by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from twinpass.encoder.any_model import open_model
from twinpass.encoder.bilstm import BiLstmEncoder
from twinpass.encoder.wordvectors import WordVectors
from twinpass.errors import ConfigError, ModelError

WORDS = "the 1 0 2\ncat 0 2 -1\nsat -1 1 0.5\n. 4 4 4\nnew york 3 3 0\n\u0085x 1 1 1\n"
TEXTS = ["the cat sat.", "", "sat", "The CAT unknown", "words nobody knows", "the cat sat.", "new new york"]


@pytest.fixture
def words(tmp_path: Path) -> WordVectors:
    (tmp_path / "words.txt").write_text(WORDS, encoding="utf-8")
    return WordVectors.load(tmp_path / "words.txt")


@pytest.fixture
def encoder(words: WordVectors) -> BiLstmEncoder:
    torch.manual_seed(0)
    return BiLstmEncoder.fresh(words, hidden=4, device=torch.device("cpu"))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def naive_lstm(inputs: np.ndarray, weights: dict[str, np.ndarray], end: str) -> list[np.ndarray]:
    """One direction, word by word: input, forget, cell and output gates."""
    hidden = cell = np.zeros(4)
    states = []
    for x in inputs:
        gates = weights[f"lstm.weight_ih_l0{end}"] @ x + weights[f"lstm.bias_ih_l0{end}"]
        gates = gates + weights[f"lstm.weight_hh_l0{end}"] @ hidden + weights[f"lstm.bias_hh_l0{end}"]
        i, f, g, o = np.split(gates, 4)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        hidden = sigmoid(o) * np.tanh(cell)
        states.append(hidden)
    return states


def test_a_vector_is_the_maximum_over_both_directions(encoder) -> None:
    weights = {name: tensor.double().numpy() for name, tensor in encoder.model.state_dict().items()}
    for text, vector in zip(TEXTS, encoder.encode(TEXTS), strict=True):
        known = encoder.words.rows(text)
        inputs = encoder.words.vectors[known].astype(float) if known else np.zeros((1, 3))
        forward = naive_lstm(inputs, weights, "")
        backward = naive_lstm(inputs[::-1], weights, "_reverse")
        np.testing.assert_allclose(vector, np.concatenate([np.max(forward, 0), np.max(backward, 0)]), atol=1e-6)


def test_order_batches_and_repeats_change_nothing(encoder, monkeypatch) -> None:
    whole = encoder.encode(TEXTS)
    assert whole.shape == (7, 8) == (len(TEXTS), encoder.dimensions) and whole.dtype == np.float32
    np.testing.assert_array_equal(whole[0], whole[5])
    monkeypatch.setattr("twinpass.encoder.bilstm.TOKEN_BUDGET", 2)
    np.testing.assert_allclose(encoder.encode(iter(TEXTS[::-1]))[::-1], whole, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(encoder.encode(TEXTS, normalize=True), axis=1), 1, rtol=1e-6)
    assert encoder.encode([]).shape == (0, 8)


def test_a_saved_encoder_is_opened_by_name_and_gives_the_same_vectors(encoder, tmp_path) -> None:
    encoder.save(tmp_path / "model")
    model = open_model(tmp_path / "model")
    np.testing.assert_array_equal(model.encode(TEXTS), encoder.encode(TEXTS))
    assert model.fingerprint == encoder.fingerprint
    with torch.no_grad():
        encoder.model.lstm.bias_hh_l0.add_(1)
    assert model.fingerprint != encoder.fingerprint
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "bilstm.json",
        "model.safetensors",
        "words.txt",
    ]


def test_a_damaged_folder_is_explained(encoder, tmp_path) -> None:
    folder = tmp_path / "model"
    encoder.save(folder)
    words = (folder / "words.txt").read_bytes()
    (folder / "words.txt").write_bytes(words + b"one more\n")
    with pytest.raises(ModelError, match="has 7 words for 6 vectors"):
        BiLstmEncoder.load(folder)
    (folder / "words.txt").write_bytes(words)
    facts = json.loads((folder / "bilstm.json").read_text())
    (folder / "bilstm.json").write_text(json.dumps(facts | {"hidden": 5}))
    with pytest.raises(ModelError, match="cannot load"):
        BiLstmEncoder.load(folder)
    (folder / "bilstm.json").write_text(json.dumps(facts | {"format": 9}))
    with pytest.raises(ModelError, match="format 9 is not 1"):
        BiLstmEncoder.load(folder)
    (folder / "bilstm.json").write_text(json.dumps(facts))
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="cannot load"):
        BiLstmEncoder.load(folder)


def test_it_is_opened_on_the_device_that_is_named(encoder, tmp_path: Path) -> None:
    encoder.save(tmp_path / "saved")
    with pytest.raises(ConfigError, match="no-such-device"):
        open_model(tmp_path / "saved", device="no-such-device")
    assert open_model(tmp_path / "saved", device="cpu").encode(TEXTS).shape == (len(TEXTS), 8)
