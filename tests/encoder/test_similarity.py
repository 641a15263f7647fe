"""Cosines of texts: what is compared with what, how it is shown and written."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from tests.tiny import SENTENCES

from twinpass import Encoder
from twinpass.encoder import similarity
from twinpass.encoder.encoder import TruncationWarning
from twinpass.encoder.similarity import compare
from twinpass.errors import ConfigError, OutputError

LEFT, RIGHT = ["the cat sat", "a dog", "many people"], ["a cat", "the dog"]


@pytest.fixture(scope="module")
def encoder(checkpoints) -> Encoder:
    return Encoder.load(checkpoints("bert"), pooler="avg", device="cpu")


def cosine(encoder: Encoder, one: str, other: str) -> float:
    u, v = encoder.encode(one).astype(float), encoder.encode(other).astype(float)
    return sum(u * v) / (sum(u * u) ** 0.5 * sum(v * v) ** 0.5)


def test_two_texts_give_one_number(encoder) -> None:
    found = encoder.similarity("a dog", "the cat sat")
    expected = cosine(encoder, "a dog", "the cat sat")
    assert found.kind == "pair" and found.values.shape == (1,) and float(found) == pytest.approx(expected, abs=1e-5)
    assert repr(found) == f"{expected:.4f}" and f"{expected:.4f}" in found._repr_html_()
    assert found.to_dict()["cosine"] == pytest.approx(expected, abs=1e-5)


def test_lists_give_a_matrix_or_pairs(encoder) -> None:
    matrix = encoder.similarity(LEFT, RIGHT)
    expected = np.array([[cosine(encoder, one, other) for other in RIGHT] for one in LEFT])
    assert matrix.kind == "matrix"
    np.testing.assert_allclose(matrix.values, expected, atol=1e-5)
    assert list(matrix.records()[1]) == ["left", "right", "cosine"] and len(matrix.records()) == 6
    assert matrix.records()[1]["right"] == RIGHT[1]
    assert next(csv.reader(io.StringIO(matrix.to_csv()))) == ["text", *RIGHT]
    pairs = encoder.similarity(LEFT[:2], RIGHT, pairwise=True)
    np.testing.assert_allclose(pairs.values, np.diag(expected), atol=1e-5)
    assert pairs.to_csv().startswith("left,right,cosine\nthe cat sat,a cat,")
    assert all(text in repr(pairs) for text in RIGHT)
    row = encoder.similarity("a dog", RIGHT)
    np.testing.assert_allclose(row.values, expected[1:2], atol=1e-5)
    alone = encoder.similarity(LEFT)
    np.testing.assert_allclose(np.diag(alone.values), 1.0, atol=1e-5)
    np.testing.assert_allclose(alone.values, alone.values.T, atol=1e-6)


def test_max_tokens_is_passed_on(encoder) -> None:
    with pytest.warns(TruncationWarning):
        cut = encoder.similarity(SENTENCES[0], "the cat", max_tokens=4)
    assert float(cut) == pytest.approx(1.0, abs=1e-5)


def test_a_list_has_no_single_cosine_and_lengths_must_fit(encoder) -> None:
    with pytest.raises(ValueError, match="size 1"):
        float(encoder.similarity(LEFT, RIGHT))
    with pytest.raises(ConfigError, match="two lists of equal length, got 3 and 2"):
        encoder.similarity(LEFT, RIGHT, pairwise=True)
    with pytest.raises(ConfigError, match="two lists of equal length, got 3 and 0"):
        encoder.similarity(LEFT, pairwise=True)


def test_files_are_written_whole_under_a_known_suffix(encoder, tmp_path: Path) -> None:
    found = encoder.similarity(LEFT, RIGHT)
    found.write(tmp_path / "m.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "m.npy"), found.values)
    with pytest.raises(OutputError, match=r"ends in \.csv, \.npy, \.parquet or \.jsonl"):
        found.write(tmp_path / "m.txt")


def test_a_matrix_too_large_to_hold_is_refused_before_work(monkeypatch) -> None:
    monkeypatch.setattr(similarity, "MOST_CELLS", 5)
    with pytest.raises(ConfigError, match="3 x 2 cosines is too large"):
        compare(lambda texts, normalize: pytest.fail("encoded"), LEFT, RIGHT)


def test_zero_vectors_have_cosine_zero() -> None:
    found = compare(lambda texts, normalize: np.zeros((2, 4), np.float32), ["a"], ["b"], pairwise=True)
    assert found.values.tolist() == [0.0]
