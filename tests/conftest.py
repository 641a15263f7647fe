"""Fixtures that every room's tests may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data next to the repository; tests that need it are skipped without it."""
    folder = Path(os.environ.get("TWINPASS_SHARED", Path(__file__).parents[2] / "shared"))
    if not folder.is_dir():
        pytest.skip(
            f"needs the folder of real data, which is not at {folder} (set TWINPASS_SHARED to name it)"
        )
    return folder
