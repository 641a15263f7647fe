"""The five jobs of examples/five_jobs.py are done from start to end, on a tiny model."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "examples" / "five_jobs.py"
NEEDS = {"backend-engineer": ["fastapi", "uvicorn", "openai"], "sentence-transformers-user": ["sentence_transformers"]}


@pytest.mark.parametrize(
    "job", ["data-scientist", "researcher", "backend-engineer", "python-user", "sentence-transformers-user"]
)
def test_a_job_is_done(job: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    for library in NEEDS.get(job, []):
        pytest.importorskip(library)
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "argv", ["five_jobs.py", job, "--model", model, "--folder", str(tmp_path / "work")])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert f"== {job}: done" in capsys.readouterr().out


def test_every_job_is_tested() -> None:
    jobs = runpy.run_path(str(SCRIPT))["JOBS"]
    (parameters,) = (mark.args[1] for mark in test_a_job_is_done.pytestmark)
    assert [*jobs] == parameters
