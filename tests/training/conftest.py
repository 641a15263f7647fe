"""A tiny model, a few sentences, and children that can be killed."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiny import FAMILIES, make_checkpoint, make_tokenizer
from tests.training.tiny_runs import NAMES, make_word_vectors
from transformers import BertForMaskedLM

from twinpass.config import Run


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bare three-layer BERT of 32 dimensions."""
    return make_checkpoint(tmp_path_factory.mktemp("training") / "tiny")


@pytest.fixture(scope="session")
def models(tiny: Path, masked: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What each method starts from."""
    words = make_word_vectors(tmp_path_factory.mktemp("words") / "vectors.txt")
    return dict.fromkeys(NAMES, tiny) | {"infersent": words, "teacher": tiny, "diffcse": masked}


@pytest.fixture(scope="session")
def masked(tmp_path_factory) -> Path:
    """A tiny BERT with a masked-language-model head."""
    folder = tmp_path_factory.mktemp("masked") / "model"
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    model = BertForMaskedLM(FAMILIES["bert"](vocab_size=len(tokenizer), pad_token_id=0))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.2)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def make_run(tiny: Path, tmp_path: Path):
    """Return a function that makes a short run of the tiny model."""

    def make(**fields: Any) -> Run:
        short = {"model": str(tiny), "output": str(tmp_path / "out"), "steps": 4, "batch_size": 8, "device": "cpu"}
        return Run(**(short | {"learning_rate": 1e-3} | fields))

    return make


@pytest.fixture(scope="session")
def children():
    """Processes that start fast: their server has imported everything and computed nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.training.tiny_runs", "transformers.models.bert.modeling_bert", "accelerate"])
    return context
