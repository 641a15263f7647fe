"""One of two training processes is killed: the other ends with a clear message, and the run resumes exactly."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest
from tests.training.test_processes import run_two
from tests.training.tiny_runs import join, make_sentences, train_in_process

from twinpass.config import Run
from twinpass.errors import TrainingError
from twinpass.files import sha256
from twinpass.training.loop import train
from twinpass.training.processes import Processes


def train_and_lose(run: Run, rows: list[str], rank: int, count: int, meeting: str, said: str) -> None:
    """Train as one of two; the second dies by SIGKILL after the third step, the first writes down what it is told."""
    join(rank, count, meeting)
    if rank == 1:
        total, asked = Processes.total, 0

        def total_and_die(self: Processes, number: float) -> float:
            nonlocal asked
            asked += 1
            if asked == 3:  # once at the end of each step
                os.kill(os.getpid(), signal.SIGKILL)
            return total(self, number)

        Processes.total = total_and_die  # type: ignore[method-assign]
    try:
        train(run, rows=rows)
    except TrainingError as error:
        Path(said).write_text(str(error), encoding="utf-8")
        os._exit(1)  # the group has lost a member, so it cannot be closed


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_the_other_process_ends_with_a_message_and_the_run_resumes_exactly(make_run, children, tmp_path: Path) -> None:
    fields, rows = {"batch_size": 4, "steps": 6, "save_every": 2}, make_sentences(11)
    whole, torn = (make_run(output=str(tmp_path / name), **fields) for name in ("whole", "torn"))
    run_two(children, train_in_process, whole, rows)
    with tempfile.TemporaryDirectory() as folder:
        told = (2, f"{folder}/meeting", str(tmp_path / "said.txt"))
        pair = [children.Process(target=train_and_lose, args=(torn, rows, rank, *told)) for rank in range(2)]
        for child in pair:
            child.start()
        for child in pair:
            child.join(timeout=600)
    assert [child.exitcode for child in pair] == [1, -signal.SIGKILL]
    said = (tmp_path / "said.txt").read_text(encoding="utf-8")
    assert "process 0 of 2 has lost the connection" in said and "--resume" in said
    assert [folder.name for folder in (tmp_path / "torn" / "checkpoints").iterdir()] == ["step-00000002"]
    run_two(children, train_in_process, torn, rows)
    assert sha256(tmp_path / "torn" / "model.safetensors") == sha256(tmp_path / "whole" / "model.safetensors")
