"""Queries of exported models: an index answers those of its own model, and of what was exported from it."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.tiny import WORDS

from twinpass.bulk.encode_file import encode_file
from twinpass.encoder.encoder import Encoder
from twinpass.errors import ModelError
from twinpass.search.index import Index
from twinpass.search.manifest import read_manifest, write_manifest

TEXTS = ["the cat sat on the mat", "a dog", "how many people find water", "she said that"]
LINES = [" ".join(words) for words in zip(WORDS, WORDS[3:], WORDS[11:], WORDS[20:], strict=False)]


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path: Path) -> None:
    """A cache of exports of its own, and a built-in corpus that needs no reading of the installed packages."""
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("twinpass.text.docs.docstrings.docs_sentences", lambda: LINES)


def index_of(model: str, folder: Path) -> Path:
    Index.build(folder, TEXTS, encoder=Encoder.load(model, device="cpu"))
    return folder


def test_what_was_exported_from_the_model_asks_and_does_not_add(model: str, exported: str, tmp_path: Path):
    folder = index_of(model, tmp_path / "index")
    expected = Index.open(folder, device="cpu").search("a dog", 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # fp32 as the index: nothing to say
        index = Index.open(folder, encoder=exported)
        found = index.search("a dog", 3)
    assert [hit.text for hit in found] == [hit.text for hit in expected]
    assert np.allclose([hit.score for hit in found], [hit.score for hit in expected], atol=1e-5)
    with pytest.raises(ModelError, match="was built with the model"):
        index.add(["one more"])
    with pytest.raises(ModelError, match="was built with the model"):
        Index.open(folder, encoder=exported, max_tokens=10).search("a dog")


def test_another_precision_is_mentioned(model: str, exported: str, tmp_path: Path):
    folder = index_of(model, tmp_path / "index")
    manifest = read_manifest(folder)
    write_manifest(folder, replace(manifest, model={**manifest.model, "precision": "bf16"}))
    with pytest.warns(UserWarning, match="were encoded in bf16, queries are in fp32"):
        Index.open(folder, encoder=exported).search("a dog")


def test_an_index_of_an_exported_model_loads_it_again(model: str, exported: str, tmp_path: Path):
    folder = index_of(exported, tmp_path / "index")
    index = Index.open(folder)
    assert index.search("a dog", 1)[0].text == "a dog"
    assert index.model["runtime"] == "openvino"
    index.add(["one more"])
    assert len(index) == 5
    with pytest.raises(ModelError, match="was built with the model"):
        Index.open(folder, encoder=model, runtime="torch", device="cpu").search("a dog")


@pytest.mark.filterwarnings("ignore:.*once, and cached")
@pytest.mark.parametrize(
    "options", [{"runtime": "openvino"}, pytest.param({"precision": "int8"}, marks=pytest.mark.int8)], ids=str
)
def test_an_index_of_a_model_that_openvino_ran_loads_it_so_again(model: str, options: dict[str, str], tmp_path: Path):
    pytest.importorskip("nncf")
    Index.build(tmp_path / "built", TEXTS, encoder=model, **options)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    encode_file(tmp_path / "texts.txt", tmp_path / "vectors.parquet", model=model, **options)
    Index.load_vectors(tmp_path / "loaded", tmp_path / "vectors.parquet")
    for name in ("built", "loaded"):
        index = Index.open(tmp_path / name)
        assert index.search("a dog", 1)[0].text == "a dog"
        assert (index.encoder.runtime_name, index.encoder.precision) == ("openvino", options.get("precision", "fp32"))
        assert index.add(["one more"]).added == 1
        assert Index.open(tmp_path / name, encoder=model).search("a dog", 1)[0].text == "a dog"  # it has moved, say
        with pytest.raises(ModelError, match="was built with the model"):
            Index.open(tmp_path / name, runtime="torch", device="cpu").search("a dog")
