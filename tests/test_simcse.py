"""The drop-in for the authors' tool: their arguments, their return shapes; their released checkpoints."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tiny import SENTENCES, make_checkpoint

from twinpass import SimCSE
from twinpass.encoder.encoder import Encoder
from twinpass.encoder.load import RELEASED
from twinpass.errors import ConfigError, InputError, ModelError
from twinpass.search.index import Index

TEXTS = [text for text in SENTENCES if text]
SUP, UNSUP = "princeton-nlp/sup-simcse-bert-base-uncased", "princeton-nlp/unsup-simcse-bert-base-uncased"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def hub(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub cache on this machine that holds two checkpoints under the names of released ones."""
    from huggingface_hub import constants

    for name in (SUP, UNSUP, "someone/sup-simcse-bert-base-uncased"):
        home = tmp_path / f"models--{name.replace('/', '--')}"
        shutil.copytree(checkpoint, home / "snapshots" / ("0" * 40))
        (home / "refs").mkdir()
        (home / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


@pytest.fixture(scope="module")
def simcse(checkpoint: Path) -> SimCSE:
    return SimCSE(str(checkpoint), device="cpu", pooler="cls")


def their_vectors(folder: Path, texts: list[str], *, pooled: bool) -> np.ndarray:
    """Compute vectors as the authors' tool does, one sentence at a time."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    rows = []
    with torch.no_grad():
        for text in texts:
            output = model(**tokenizer(text, return_tensors="pt", truncation=True, max_length=64))
            rows.append(output.pooler_output[0] if pooled else output.last_hidden_state[0, 0])
    vectors = torch.stack(rows).numpy()
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_released_checkpoints_pool_as_their_authors_do(hub: None, checkpoint: Path) -> None:
    for name, pooled in ((SUP, True), (UNSUP, False)):
        expected = their_vectors(checkpoint, TEXTS, pooled=pooled)
        np.testing.assert_allclose(Encoder.load(name, device="cpu").encode(TEXTS, normalize=True), expected, atol=1e-5)
        np.testing.assert_allclose(SimCSE(name, device="cpu").encode(TEXTS, return_numpy=True), expected, atol=1e-5)
    assert len(RELEASED) == 8


def test_other_names_are_not_guessed_at(hub: None, checkpoint: Path) -> None:
    with pytest.raises(ModelError, match="bare transformer"):
        SimCSE("someone/sup-simcse-bert-base-uncased")
    with pytest.raises(ModelError, match="bare transformer"):
        SimCSE(str(checkpoint))


def test_their_names_of_poolers(checkpoint: Path) -> None:
    for pooler, pooled in (("cls", True), ("cls_before_pooler", False)):
        vectors = SimCSE(str(checkpoint), device="cpu", pooler=pooler).encode(TEXTS, return_numpy=True)
        np.testing.assert_allclose(vectors, their_vectors(checkpoint, TEXTS, pooled=pooled), atol=1e-5)


def test_shapes_of_encode(simcse: SimCSE) -> None:
    one, several = simcse.encode("a dog"), simcse.encode(TEXTS)
    assert isinstance(one, torch.Tensor) and one.shape == (32,) and several.shape == (len(TEXTS), 32)
    assert simcse.encode("a dog", keepdim=True).shape == (1, 32)
    assert isinstance(simcse.encode("a dog", return_numpy=True), np.ndarray)
    assert float(one.norm()) == pytest.approx(1.0, abs=1e-6)
    assert float(simcse.encode("a dog", normalize_to_unit=False, device="cpu").norm()) > 1.01


def test_shapes_of_similarity(simcse: SimCSE) -> None:
    keys = simcse.encode(TEXTS, return_numpy=True)
    number = simcse.similarity("a dog", "the cat sat on the mat")
    assert type(number) is float
    row = simcse.similarity("a dog", TEXTS)
    assert row.shape == (len(TEXTS),) and row[0] == pytest.approx(number, abs=1e-6)
    assert simcse.similarity(["a dog", "oil"], "water").shape == (2, 1)
    matrix = simcse.similarity(["a dog", "oil"], TEXTS)
    np.testing.assert_allclose(matrix, simcse.similarity(["a dog", "oil"], keys * 3), atol=1e-6)
    np.testing.assert_allclose(matrix[0], row, atol=1e-6)
    assert type(simcse.similarity("a dog", keys[0])) is float


@pytest.mark.parametrize("options", [{}, {"use_faiss": False}, {"use_faiss": True, "faiss_fast": True}])
def test_search(simcse: SimCSE, options: dict) -> None:
    simcse.build_index(TEXTS[:5], **options)
    simcse.add_to_index(TEXTS[5:])
    found = simcse.search("a dog", threshold=-1, top_k=3)
    row = simcse.similarity("a dog", TEXTS)
    assert [score for _, score in found] == pytest.approx(sorted(row.tolist(), reverse=True)[:3], abs=1e-5)
    assert found[0] == ("a dog", pytest.approx(1.0, abs=1e-5)) and isinstance(found[0], tuple)
    several = simcse.search(["a dog", "water"], threshold=0.99999, top_k=2)
    assert [[text for text, _ in each] for each in several] == [["a dog", "a dog"], []]


def test_a_file_and_a_saved_index(simcse: SimCSE, tmp_path: Path, checkpoint: Path) -> None:
    path = tmp_path / "texts"
    path.write_text("a dog\n\nthe cat sat on the mat\n", encoding="utf-8")
    simcse.build_index(str(path))
    assert simcse.index["sentences"] == ["a dog", "the cat sat on the mat"]
    with pytest.raises(InputError, match="no sentence to index"):
        simcse.build_index([])
    assert len(simcse.index["sentences"]) == 2
    simcse.save_index(tmp_path / "index")
    assert len(Index.open(tmp_path / "index")) == 2
    again = SimCSE(str(checkpoint), device="cpu", pooler="cls")
    with pytest.raises(ConfigError, match="no index yet"):
        again.search("a dog")
    again.load_index(tmp_path / "index")
    assert again.search("a dog", top_k=1) == simcse.search("a dog", top_k=1)
    other = SimCSE(str(checkpoint), device="cpu", pooler="cls_before_pooler")
    with pytest.raises(ModelError, match="cannot be compared"):
        other.load_index(tmp_path / "index")
