from __future__ import annotations

from pathlib import Path

import pytest
from tests.tiny import make_checkpoint

from twinpass.encoder.encoder import Encoder


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny random model, saved by us, so that it knows its pooler."""
    bare = make_checkpoint(tmp_path_factory.mktemp("bare") / "model")
    folder = tmp_path_factory.mktemp("tiny") / "model"
    Encoder.load(bare, pooler="avg", device="cpu").save(folder)
    return str(folder)


@pytest.fixture
def sentences(tmp_path: Path) -> Path:
    """Three lines, two of them alike."""
    path = tmp_path / "in" / "sentences.txt"
    path.parent.mkdir()
    path.write_text("the cat sat on the mat\na dog\nthe cat sat on the mat\n", encoding="utf-8")
    return path
