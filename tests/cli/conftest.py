from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from twinpass.cli.main import ENVIRONMENT, main


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Run a command in this process."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)  # so that what main sets is unset after the test

    def run(*arguments: object, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(int(stop.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def command() -> Callable[..., Ran]:
    """Run a command as a user does, in a process of its own, away from any network."""

    def command(*arguments: object, env: dict[str, str] | None = None, **options: object) -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", "twinpass", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=600,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **(env or {})},
            **options,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return command
