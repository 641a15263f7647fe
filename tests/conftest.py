"""Fixtures that every room's tests may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from twinpass import processor
from twinpass.errors import ConfigError

# Two workers share the cores (pyproject.toml), so each computes with one thread; read when torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# As a verb does: a limit on the processor's instructions must be set before any test loads torch.
processor.prepare(processor.BF16)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "bf16: computes in bf16; skipped where the processor cannot")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("bf16"):
        try:
            processor.check(processor.BF16)  # what decides for users decides here
        except ConfigError as reason:
            pytest.skip(str(reason))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data next to the repository; tests that need it are skipped without it."""
    folder = Path(os.environ.get("TWINPASS_SHARED", Path(__file__).parents[2] / "shared"))
    if not folder.is_dir():
        pytest.skip(f"needs the folder of real data, which is not at {folder} (set TWINPASS_SHARED to name it)")
    return folder
