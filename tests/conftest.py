"""Fixtures that every room's tests may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from twinpass import processor
from twinpass.errors import ConfigError

# Two workers share the cores (pyproject.toml), so each computes with one thread; read when torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What is tested is what comes out, not how long an example takes on a machine that is busy.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# As a verb does: a limit on the processor's instructions must be set before any test loads torch or openvino.
PROBES = (processor.BF16, processor.INT8)
for probe in PROBES:
    processor.prepare(probe)


def pytest_configure(config: pytest.Config) -> None:
    for probe in PROBES:
        config.addinivalue_line("markers", f"{probe.name}: computes in {probe.name}; skipped where it does not work")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for probe in PROBES:
        if item.get_closest_marker(probe.name):
            try:
                processor.check(probe)  # what decides for users decides here
            except ConfigError as reason:
                pytest.skip(str(reason))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data next to the repository; tests that need it are skipped without it."""
    folder = Path(os.environ.get("TWINPASS_SHARED", Path(__file__).parents[2] / "shared"))
    if not folder.is_dir():
        pytest.skip(f"needs the folder of real data, which is not at {folder} (set TWINPASS_SHARED to name it)")
    return folder


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny random model, saved by us, so that it knows its pooler."""
    from tests.tiny import make_checkpoint

    from twinpass.encoder.encoder import Encoder

    bare = make_checkpoint(tmp_path_factory.mktemp("bare") / "model")
    folder = tmp_path_factory.mktemp("tiny") / "model"
    Encoder.load(bare, pooler="avg", device="cpu").save(folder)
    return str(folder)


@pytest.fixture(scope="session")
def exported(model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The tiny model as an exported one, which needs no torch."""
    pytest.importorskip("openvino")
    from tests.tiny import export

    return str(export(model, tmp_path_factory.mktemp("exported") / "model"))


@pytest.fixture
def sentences(tmp_path: Path) -> Path:
    """Three lines, two of them alike."""
    path = tmp_path / "in" / "sentences.txt"
    path.parent.mkdir()
    path.write_text("the cat sat on the mat\na dog\nthe cat sat on the mat\n", encoding="utf-8")
    return path


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    """Forty scored pairs of words."""
    from tests.tiny import WORDS

    path = tmp_path / "dev.csv"
    rows = [f"{WORDS[i]} {WORDS[i + 1]},{WORDS[i + i % 5]} {WORDS[i + 1]},{5 - i % 5}" for i in range(40)]
    path.write_text("sentence1,sentence2,score\n" + "\n".join(rows) + "\n")
    return path
