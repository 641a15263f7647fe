"""Fitted layers: what they compute, and that they stay with the model wherever it goes."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tiny import SENTENCES, WORDS

from twinpass import Encoder
from twinpass.encoder.flow import Flow
from twinpass.encoder.layers import FITS, apply_layer, fit_whitening, linear_layer, whiten, with_layer
from twinpass.encoder.model import Dense, Normalize
from twinpass.equations import uniformity
from twinpass.errors import ConfigError, InputError

TEXTS = [" ".join(words) for words in zip(WORDS, WORDS[3:], WORDS[11:], strict=False)]


def fit_layer(encoder: Encoder, texts: list[str], name: str, **options: int) -> Encoder:
    """Append a layer that is fitted to the encoder's vectors of the texts."""
    return with_layer(encoder, FITS[name](encoder.encode(texts), **options))


@pytest.fixture(scope="module")
def encoder(checkpoints) -> Encoder:
    return Encoder.load(checkpoints("bert"), pooler="avg_first_last", device="cpu")


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    """Vectors like those of a raw encoder: a mean ten times their spread, variances over six powers of ten."""
    random = np.random.default_rng(0)
    rotation, _ = np.linalg.qr(random.normal(size=(48, 48)))
    spread = np.logspace(0.2, -2.8, 48)
    return (random.normal(size=(600, 48)) * spread @ rotation + random.normal(size=48)).astype(np.float32)


def naive_whitening(vectors: np.ndarray, keep: int) -> np.ndarray:
    """As Su et al. print it."""
    exact = vectors.astype(np.float64)
    mu = exact.mean(axis=0)
    covariance = sum(np.outer(x - mu, x - mu) for x in exact) / len(exact)
    u, s, _ = np.linalg.svd(covariance)
    return (exact - mu) @ (u @ np.diag(1 / np.sqrt(s)))[:, :keep]


@pytest.mark.parametrize("keep", [None, 20])
def test_whitening_is_the_papers_in_float32(vectors, keep: int | None) -> None:
    layer = FITS["whitening"](vectors, keep=keep)
    assert isinstance(layer, Dense)
    found, expected = apply_layer(layer, vectors), naive_whitening(vectors, keep or 48)
    assert found.dtype == np.float32 and found.shape == (600, keep or 48)
    signs = np.sign((found * expected).sum(axis=0))  # the sign of a direction is free
    assert np.abs(found * signs - expected).max() < 1e-4 * np.abs(expected).max()
    np.testing.assert_allclose(np.cov(found.T, bias=True), np.eye(keep or 48), atol=1e-3)
    np.testing.assert_allclose(found, whiten(vectors, fit_whitening(vectors, keep=keep)), atol=1e-3)


def test_many_vectors_are_taken_in_blocks(vectors, monkeypatch) -> None:
    whole = fit_whitening(vectors)
    monkeypatch.setattr("twinpass.encoder.layers.BLOCK", 7)
    assert len(vectors) % 7 and len(vectors) > 14
    np.testing.assert_allclose(whiten(vectors, fit_whitening(vectors)), whiten(vectors, whole), rtol=1e-4, atol=1e-5)


def test_centring_and_top_components_are_their_formulas(vectors) -> None:
    exact = vectors.astype(np.float64)
    centred = exact - exact.mean(axis=0)
    np.testing.assert_allclose(apply_layer(FITS["centring"](vectors), vectors), centred, atol=1e-5)
    axes = np.linalg.svd(centred, full_matrices=False)[2]
    for removed in (1, 3):
        expected = np.array([x - sum((u @ x) * u for u in axes[:removed]) for x in centred])
        found = apply_layer(FITS["top-components"](vectors, components=removed), vectors)
        np.testing.assert_allclose(found, expected, atol=1e-4)
    by_itself = apply_layer(FITS["top-components"](np.tile(vectors, 5)[:, :210]), np.tile(vectors, 5)[:, :210])
    assert np.linalg.matrix_rank(by_itself, tol=1e-3) < 48 - 1  # a hundredth of 210 dimensions: two


@pytest.mark.parametrize("name", list(FITS))
def test_every_layer_is_seeded_reports_and_spreads_vectors_out(name: str, vectors) -> None:
    counts: list[int] = []
    layer = FITS[name](vectors, seed=1, advance=counts.append)
    assert sum(counts) == len(vectors)
    after = apply_layer(layer, vectors)
    assert np.isfinite(after).all() and after.dtype == np.float32
    np.testing.assert_array_equal(apply_layer(FITS[name](vectors, seed=1), vectors), after)
    assert uniformity(torch.from_numpy(after)) < uniformity(torch.from_numpy(vectors)) - 1


@pytest.mark.filterwarnings("ignore:the vectors vary in 31")  # the sum over a layer norm's outputs is fixed
@pytest.mark.parametrize("name", ["whitening", "flow"])
def test_a_layer_stays_with_the_model(name: str, encoder, tmp_path: Path) -> None:
    before, own = encoder.encode(SENTENCES), encoder.fingerprint
    fitted = fit_layer(encoder, TEXTS, name, seed=1)
    expected = apply_layer(FITS[name](encoder.encode(TEXTS), seed=1), before)
    np.testing.assert_allclose(fitted.encode(SENTENCES), expected, atol=1e-4)
    np.testing.assert_array_equal(encoder.encode(SENTENCES), before)
    assert fitted.fingerprint != own == encoder.fingerprint
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted.save(tmp_path / "fitted")
    loaded = Encoder.load(tmp_path / "fitted", device="cpu")
    np.testing.assert_array_equal(loaded.encode(SENTENCES), fitted.encode(SENTENCES))
    assert (loaded.fingerprint, loaded.dimensions) == (fitted.fingerprint, fitted.dimensions)
    other = Encoder.load(tmp_path / "fitted", pooler="cls", device="cpu")
    assert len(other.model.layers) == 0  # fitted to another pooler's vectors


def test_sentence_transformers_loads_what_is_linear(encoder, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    unit = with_layer(encoder, Normalize())
    fitted = fit_layer(fit_layer(unit, TEXTS, "top-components", components=2), TEXTS, "whitening", keep=9)
    assert [type(layer) for layer in fitted.model.layers] == [Normalize, Dense, Dense]  # after Normalize, in order
    assert fitted.dimensions == 9
    fitted.save(tmp_path / "fitted")
    theirs = SentenceTransformer(str(tmp_path / "fitted"), device="cpu")
    np.testing.assert_allclose(theirs.encode(SENTENCES), fitted.encode(SENTENCES), atol=1e-3)


def test_a_flow_is_said_to_be_ours_alone(encoder, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    fitted = fit_layer(encoder, TEXTS, "flow")
    with pytest.warns(UserWarning, match="sentence-transformers cannot load this model: it has no layer like a flow"):
        fitted.save(tmp_path / "fitted")
    with pytest.raises(ImportError, match="OnlyTwinpassLoadsThisModel"):
        SentenceTransformer(str(tmp_path / "fitted"), device="cpu")
    assert sorted(path.name for path in (tmp_path / "fitted" / "3_Flow").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]


@pytest.mark.bf16
def test_half_precision_stops_before_fitted_layers(checkpoints) -> None:
    rough = Encoder.load(checkpoints("bert"), pooler="avg", device="cpu", precision="bf16")
    far = rough.encode(TEXTS) + 1000.0
    shifted = with_layer(with_layer(rough, linear_layer(np.full(32, -1000.0), np.eye(32))), FITS["centring"](far))
    assert shifted.precision == "bf16"
    expected = rough.encode(SENTENCES) + 1000.0 - far.mean(axis=0)
    np.testing.assert_allclose(shifted.encode(SENTENCES), expected, atol=1e-2)


def test_a_model_in_training_stays_in_training(checkpoints) -> None:
    encoder = Encoder.load(checkpoints("bert"), pooler="avg", device="cpu")
    encoder.model.train()
    assert with_layer(encoder, Flow(32)).model.training and encoder.model.training


def test_few_sentences_are_warned_of(encoder) -> None:
    few = pytest.warns(UserWarning, match=r"fitted to only 10 sentences.* 320 or more are advised")
    with few, pytest.warns(UserWarning, match="vary in 9 directions only"):
        fitted = fit_layer(encoder, TEXTS[:10], "whitening")
    assert fitted.dimensions == 9


@pytest.mark.parametrize(
    ("name", "wishes", "message"),
    [
        ("whitenign", {}, "no layer to fit named 'whitenign'. Did you mean 'whitening'?"),
        ("flow", {"keep": 8}, "flow does not take 'keep'"),
        ("whitening", {"components": 8}, "whitening does not take 'components'"),
        ("whitening", {"keep": 33}, "between 1 and 32 dimensions, not 33"),
        ("top-components", {"components": 32}, "1 to 31 can be removed, not 32"),
        ("top-components", {"components": 0}, "1 to 31 can be removed, not 0"),
    ],
)
def test_wrong_wishes_are_explained(name: str, wishes: dict[str, int], message: str, encoder) -> None:
    with pytest.raises(ConfigError) as caught:
        fit_layer(encoder, TEXTS, name, **wishes)
    assert message in str(caught.value)


def test_vectors_that_cannot_be_fitted_are_refused(vectors) -> None:
    broken = vectors.copy()
    broken[[5, 9], 3] = np.nan
    for bad, message in (
        (broken, "2 of 600 vectors hold a non-finite value, the first in row 6"),
        (vectors[:1], "at least two different sentences"),
        (np.ones_like(vectors), "all 600 vectors are the same"),
    ):
        with pytest.raises(InputError, match=message):
            FITS["whitening"](bad)
