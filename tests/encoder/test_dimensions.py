"""Shorter vectors: the first numbers, of length one, in every place that encodes; as sentence-transformers has them."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import twinpass
from twinpass.encoder.dimensions import UntrainedSizeWarning
from twinpass.encoder.encoder import Encoder
from twinpass.encoder.folder import read_settings
from twinpass.encoder.layers import FITS, with_layer
from twinpass.errors import ConfigError, ModelError
from twinpass.search.index import Index

TEXTS = ["the cat sat on the mat", "a dog", "how many people find water?", "a dog"]


def first_numbers(vectors: np.ndarray, size: int) -> np.ndarray:
    return np.array([row[:size] / np.sqrt(np.sum(row[:size].astype(float) ** 2)) for row in vectors])


@pytest.fixture
def trained(model: str, tmp_path: Path) -> str:
    """The tiny model as one that was trained for 16 and 8 dimensions."""
    encoder = Encoder.load(model, device="cpu")
    encoder.settings = replace(encoder.settings, matryoshka=(32, 16, 8))
    encoder.save(tmp_path / "trained")
    return str(tmp_path / "trained")


def test_the_first_numbers_are_kept_and_scaled(trained: str):
    whole = Encoder.load(trained, device="cpu")
    vectors, short = whole.encode(TEXTS), Encoder.load(trained, device="cpu", dimensions=8)
    assert (short.dimensions, short.whole_dimensions, whole.dimensions) == (8, 32, 32)
    np.testing.assert_allclose(short.encode(TEXTS), first_numbers(vectors, 8), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(whole.encode(TEXTS, dimensions=8), short.encode(TEXTS), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(short.encode(TEXTS[0]), first_numbers(vectors, 8)[0], rtol=1e-5, atol=1e-6)
    (block,) = short.encode_stream(TEXTS)
    np.testing.assert_allclose(block.vectors, first_numbers(vectors, 8), rtol=1e-5, atol=1e-6)
    cosine = float(first_numbers(vectors, 8)[0] @ first_numbers(vectors, 8)[1])
    assert float(short.similarity(*TEXTS[:2])) == pytest.approx(cosine, abs=1e-5)
    np.testing.assert_array_equal(whole.encode(TEXTS, dimensions=32), vectors)


def test_sentence_transformers_gives_the_same_vectors(trained: str):
    library = pytest.importorskip("sentence_transformers")
    theirs = library.SentenceTransformer(trained, device="cpu", truncate_dim=8).encode(TEXTS, normalize_embeddings=True)
    ours = Encoder.load(trained, device="cpu", dimensions=8).encode(TEXTS)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_shorter_model_is_another_model_with_the_same_weights(trained: str):
    whole, short = (Encoder.load(trained, device="cpu", dimensions=size) for size in (None, 8))
    assert (
        len({whole.fingerprint, short.fingerprint, Encoder.load(trained, device="cpu", dimensions=16).fingerprint}) == 3
    )
    assert Encoder.load(trained, device="cpu", dimensions=32).fingerprint == whole.fingerprint


def test_what_a_model_was_trained_for_does_not_change_its_fingerprint(model: str, trained: str):
    assert Encoder.load(model, device="cpu").fingerprint == Encoder.load(trained, device="cpu").fingerprint
    assert read_settings(Path(trained)).matryoshka == (32, 16, 8)


def test_a_size_that_was_not_trained_is_warned_of_once(model: str, trained: str):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Encoder.load(trained, device="cpu", dimensions=16).encode(TEXTS, dimensions=8)
        Encoder.load(model, device="cpu", dimensions=32)
    with pytest.warns(UntrainedSizeWarning, match="not trained for 8 dimensions .it was trained for whole vectors"):
        Encoder.load(model, device="cpu", dimensions=8)
    encoder = Encoder.load(trained, device="cpu")
    with pytest.warns(UntrainedSizeWarning, match="trained for 32, 16, 8"):
        encoder.encode(TEXTS, dimensions=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder.encode(TEXTS, dimensions=5)


def test_impossible_sizes_are_refused(trained: str):
    for size in (0, 33):
        with pytest.raises(ConfigError, match=f"dimensions is {size}; .* has 32, so expected 1 to 32"):
            Encoder.load(trained, device="cpu", dimensions=size)
    short = Encoder.load(trained, device="cpu", dimensions=8)
    with pytest.raises(ConfigError, match="has 8, so expected 1 to 8"):
        short.encode(TEXTS, dimensions=16)


def test_impossible_sizes_are_refused_before_weights_are_read(trained: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("twinpass.encoder.load._load_transformer", lambda *_, **__: pytest.fail("weights were read"))
    with pytest.raises(ConfigError, match=r"dimensions is 33; .* has 32"):
        Encoder.load(trained, device="cpu", dimensions=33)
    with pytest.raises(ConfigError, match=r"dimensions is 65; .* has 64"):
        Encoder.load(trained, pooler="avg+cls", device="cpu", dimensions=65)


def test_a_layer_that_changes_the_size_decides_which_sizes_are_impossible(model: str, tmp_path: Path):
    encoder = Encoder.load(model, device="cpu")
    fitted = with_layer(encoder, FITS["whitening"](encoder.encode(TEXTS), keep=2))
    fitted.save(tmp_path / "fitted")
    assert Encoder.load(tmp_path / "fitted", device="cpu", dimensions=2).dimensions == fitted.dimensions == 2
    with pytest.raises(ConfigError, match=r"dimensions is 3; .* has 2"):
        Encoder.load(tmp_path / "fitted", device="cpu", dimensions=3)


def test_what_changes_a_model_needs_all_of_it(trained: str, tmp_path: Path):
    short = Encoder.load(trained, device="cpu", dimensions=8)
    with pytest.raises(ConfigError, match="fitting a layer needs all of them"):
        twinpass.fit(short, "whitening", TEXTS, output=tmp_path / "w")
    with pytest.raises(ConfigError, match="training needs all of them"):
        twinpass.train(twinpass.Run(output=str(tmp_path / "t"), steps=1), rows=TEXTS, encoder=short)
    short.save(tmp_path / "saved")  # the folder holds the whole model
    assert Encoder.load(tmp_path / "saved", device="cpu").dimensions == 32


def test_damaged_sizes_are_found(trained: str):
    path = Path(trained) / "twinpass.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(document | {"matryoshka": [8, "x"]}), encoding="utf-8")
    with pytest.raises(ModelError, match="matryoshka"):
        Encoder.load(trained, device="cpu")


def test_an_index_remembers_its_size(trained: str, tmp_path: Path):
    index = Index.build(tmp_path / "index", TEXTS[:3], encoder=trained, device="cpu", dimensions=8)
    assert (index.dimensions, index.model["dimensions"]) == (8, 8)
    again = Index.open(tmp_path / "index", device="cpu")
    assert again.encoder.dimensions == 8
    assert again.search("a dog", 1)[0].text == "a dog"
    with pytest.raises(ModelError):
        Index.open(tmp_path / "index", device="cpu", dimensions=16).search("a dog", 1)


def test_stored_vectors_remember_their_size(trained: str, tmp_path: Path):
    source = tmp_path / "texts.txt"
    source.write_text("\n".join(TEXTS), encoding="utf-8")
    made = twinpass.encode_file(source, tmp_path / "v.parquet", model=trained, dimensions=8, device="cpu")
    assert made.dimensions == 8
    index = Index.load_vectors(tmp_path / "index", tmp_path / "v.parquet")
    assert index.search("a dog", 1)[0].text == "a dog" and index.encoder.dimensions == 8


def test_an_exported_model_is_shortened_too(exported: str, model: str, tmp_path: Path):
    with pytest.warns(UntrainedSizeWarning):
        short, torch_short = Encoder.load(exported, dimensions=8), Encoder.load(model, device="cpu", dimensions=8)
    whole = Encoder.load(exported)
    np.testing.assert_allclose(short.encode(TEXTS), first_numbers(whole.encode(TEXTS), 8), rtol=1e-4, atol=1e-5)
    assert short.fingerprint != whole.fingerprint
    Index.build(tmp_path / "index", TEXTS[:3], encoder=torch_short)
    assert Index.open(tmp_path / "index", encoder=short).search("a dog", 1)[0].text == "a dog"  # queries by the export


def test_evaluate_scores_several_sizes(trained: str, tmp_path: Path):
    pairs = tmp_path / "pairs.csv"
    rows = [
        ("the cat", "a dog", 1.0),
        ("water", "the water", 5.0),
        ("people find oil", "people find it", 4.0),
        ("a", "mat", 2),
    ]
    pairs.write_text("sentence1,sentence2,score\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows), encoding="utf-8")
    options = {"device": "cpu", "cache": False, "resamples": 50}
    found = twinpass.evaluate(trained, f"scored:{pairs}", dimensions="8,32,16", **options)
    assert list(found.by_dimensions) == [32, 16, 8]
    for size, each in found.by_dimensions.items():
        alone = twinpass.evaluate(
            Encoder.load(trained, device="cpu", dimensions=size), f"scored:{pairs}", cache=False, resamples=50
        )
        assert alone.tasks[0].scores[0].value == pytest.approx(each.tasks[0].scores[0].value)
        assert each.label == f"{trained} ({size} dimensions)"
    assert found.tasks[0].scores == found.by_dimensions[32].tasks[0].scores
    assert {record["model"] for record in found.records()} == {f"{trained} ({size} dimensions)" for size in (32, 16, 8)}
    assert "score over dimensions" in repr(found) and list(found.to_dict()["by_dimensions"]) == ["32", "16", "8"]
    one = twinpass.evaluate(lambda texts: np.ones((len(texts), 4)), f"scored:{pairs}", dimensions=2, cache=False)
    assert one.computing == {"dimensions": "2"} and not one.by_dimensions
    with pytest.raises(ConfigError, match="expected 1 to 32"):
        twinpass.evaluate(trained, f"scored:{pairs}", dimensions=64, **options)
    with pytest.raises(ConfigError, match="expected comma-separated sizes"):
        twinpass.evaluate(trained, f"scored:{pairs}", dimensions="small", **options)
