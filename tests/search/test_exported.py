"""Queries of exported models: an index answers those of its own model, and of what was exported from it."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from twinpass.encoder.encoder import Encoder
from twinpass.errors import ModelError
from twinpass.search.index import Index
from twinpass.search.manifest import read_manifest, write_manifest

TEXTS = ["the cat sat on the mat", "a dog", "how many people find water", "she said that"]


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
        Index.open(folder, encoder=model, device="cpu").search("a dog")
