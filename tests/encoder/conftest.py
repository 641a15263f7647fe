from __future__ import annotations

from pathlib import Path

import pytest
from tests.tiny import make_checkpoint


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory):
    """Bare checkpoints by family, each made once."""
    made: dict[str, Path] = {}

    def checkpoint(family: str = "bert") -> Path:
        if family not in made:
            made[family] = make_checkpoint(tmp_path_factory.mktemp(family) / "model", family)
        return made[family]

    return checkpoint
