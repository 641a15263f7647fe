from __future__ import annotations

from pathlib import Path

import pytest
from tests.tiny import make_checkpoint

from twinpass.encoder.encoder import Encoder


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model, saved by us, so that it knows its pooler."""
    bare = make_checkpoint(tmp_path_factory.mktemp("bare") / "model")
    saved = tmp_path_factory.mktemp("served") / "tiny"
    Encoder.load(bare, pooler="avg", device="cpu").save(saved)
    return saved


@pytest.fixture
def encoder(folder: Path) -> Encoder:
    return Encoder.load(folder, device="cpu")
