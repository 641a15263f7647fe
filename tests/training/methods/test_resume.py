"""A stopped run of any method resumes where it was saved, and ends as if it had never stopped."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.tiny_runs import NAMES, make_sentences, rows_for, run_for, spread

from twinpass.config import Run
from twinpass.errors import ConfigError, OutputError
from twinpass.files import sha256
from twinpass.log import Result, Started, Stepped
from twinpass.training.checkpoint import newest, optimizer_tensors, restore_optimizer
from twinpass.training.loop import train

pytestmark = pytest.mark.filterwarnings("ignore:.*no masked-language-model head")
STEPS = 7


def seven_steps(name: str, models: dict[str, Path], output: Path, **fields: Any) -> Run:
    return run_for(name, models, output, **{"steps": STEPS, "eval_every": 2, "save_every": 3, **fields})


def stop_at(step: int, number: signal.Signals) -> Any:
    """A listener that sends this process a signal after a step."""
    return lambda event: os.kill(os.getpid(), number) if isinstance(event, Stepped) and event.step == step else None


def die(run: Run, rows: list[Any], step: int) -> None:
    torch.set_num_threads(1)
    train(run, rows=rows, evaluate=spread, on_event=stop_at(step, signal.SIGKILL), resume=True)


def logged(output: Path) -> list[int]:
    lines = map(json.loads, (output / "log.jsonl").read_text().splitlines())
    return [line["step"] for line in lines if line["event"] == "stepped"]


def same(one: Result, other: Result) -> bool:
    facts = [(each.loss, each.kept, each.before, each.best, each.last, each.best_step) for each in (one, other)]
    weights = [sha256(each.output / "model.safetensors") for each in (one, other)]
    return facts[0] == facts[1] and weights[0] == weights[1]


@pytest.mark.parametrize("name", NAMES)
def test_an_interrupted_run_ends_bit_identical(name: str, models: dict[str, Path], tmp_path: Path) -> None:
    rows = rows_for(name)
    whole = train(seven_steps(name, models, tmp_path / "whole"), rows=rows, evaluate=spread)
    run = seven_steps(name, models, tmp_path / "stopped")
    stopped = train(run, rows=rows, evaluate=spread, on_event=stop_at(4, signal.SIGINT))
    assert (stopped.reason, stopped.finished, stopped.steps) == ("interrupted", False, 4)
    assert not (tmp_path / "stopped" / "model.safetensors").exists()
    events: list[Any] = []
    resumed = train(run, rows=rows, evaluate=spread, on_event=events.append, resume=True)
    assert isinstance(events[0], Started) and events[0].first_step == 4
    assert resumed.finished and same(whole, resumed)
    assert logged(resumed.output) == list(range(1, STEPS + 1))
    assert {path.name for path in tmp_path.iterdir()} == {"whole", "stopped"}


@pytest.fixture
def one_thread():
    """As many threads as the children have: sums over another number of them end in other last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_a_killed_run_goes_on_from_its_last_save(models, children, tmp_path: Path) -> None:
    rows, run = rows_for("ct"), seven_steps("ct", models, tmp_path / "killed")
    whole = train(seven_steps("ct", models, tmp_path / "whole"), rows=rows, evaluate=spread)
    for step in (2, 5):  # before anything was saved, and between two saves
        child = children.Process(target=die, args=(run, rows, step))
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL and not (tmp_path / "killed" / "model.safetensors").exists()
    assert newest(tmp_path / "killed") == tmp_path / "killed/checkpoints/step-00000003"
    assert same(whole, train(run, rows=rows, evaluate=spread, resume=True))
    assert logged(tmp_path / "killed") == list(range(1, STEPS + 1))


def test_what_was_saved_is_guarded(models: dict[str, Path], tmp_path: Path) -> None:
    rows, run = rows_for("sbert"), seven_steps("sbert", models, tmp_path / "out")
    train(run, rows=rows, on_event=stop_at(4, signal.SIGINT))
    with pytest.raises(OutputError, match=r"or an unfinished run .*Resume it"):
        train(run, rows=rows)
    other = seven_steps("sbert", models, tmp_path / "out", seed=5)
    with pytest.raises(ConfigError, match=r"other settings \(seed: 1 then, 5 now\)"):
        train(other, rows=rows, resume=True)
    with pytest.raises(ConfigError, match="is not the text that"):
        train(run, rows=rows[::-1], resume=True)
    assert train(other, rows=rows, overwrite=True).finished
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_allowed_both_it_goes_on_with_its_own_run_and_replaces_another(models, tmp_path) -> None:
    rows, run = rows_for("ct"), seven_steps("ct", models, tmp_path / "out")
    began: list[Any] = []

    def go_on(run: Run, *, stop: bool) -> int:
        send = stop_at(5, signal.SIGINT) if stop else lambda event: None
        train(run, rows=rows, resume=True, overwrite=True, on_event=lambda event: (began.append(event), send(event)))
        return [event.first_step for event in began if isinstance(event, Started)][-1]

    assert go_on(run, stop=True) == 0
    assert go_on(seven_steps("ct", models, tmp_path / "out", seed=5), stop=True) == 0
    assert go_on(seven_steps("ct", models, tmp_path / "out", seed=5), stop=False) == 5
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_refusal_names_only_what_differs(models, tmp_path) -> None:
    rows, fields = rows_for("ct"), {"columns": ("0",)}
    run = seven_steps("ct", models, tmp_path / "out", **fields)
    train(run, rows=rows, on_event=stop_at(1, signal.SIGINT))
    with pytest.raises(ConfigError, match=r"settings \(seed: 1 then, 5 now\)"):
        train(seven_steps("ct", models, tmp_path / "out", seed=5, **fields), rows=rows, resume=True)


def test_a_model_that_cannot_be_written_leaves_the_checkpoint(models, tmp_path, monkeypatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OutputError("No space left on device")

    run = seven_steps("ct", models, tmp_path / "out", save_every=250)
    with monkeypatch.context() as patch:
        patch.setattr("twinpass.training.loop.Record._write_model", full)
        with pytest.raises(OutputError, match="No space left"):
            train(run, rows=rows_for("ct"))
    assert not (tmp_path / "out" / "model.safetensors").exists()
    assert train(run, rows=rows_for("ct"), resume=True).steps == STEPS


def test_a_failure_to_save_leaves_the_last_save(models, tmp_path, monkeypatch) -> None:
    rows, run = make_sentences(12, seed=5), seven_steps("ct", models, tmp_path / "out")
    train(run, rows=rows, on_event=stop_at(4, signal.SIGINT))

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("twinpass.training.checkpoint.save_file", full)
        with pytest.raises(OutputError, match="No space left"):
            train(run, rows=rows, resume=True)
    assert train(run, rows=rows, resume=True).finished


def test_a_fused_optimizer_finds_its_count_of_steps_beside_the_parameters() -> None:
    """As torch wants it on a GPU; the device "meta" stands for one here."""
    learned, resumed = (torch.nn.Parameter(torch.ones(2, device=device)) for device in ("cpu", "meta"))
    before = torch.optim.AdamW([learned])
    learned.sum().backward()
    before.step()
    tensors = optimizer_tensors(before, {learned: "w"})
    for fused, place in ((True, "meta"), (False, "cpu")):
        after = torch.optim.AdamW([resumed])
        after.param_groups[0]["fused"] = fused
        restore_optimizer(after, {resumed: "w"}, tensors)
        devices = {key: value.device.type for key, value in after.state[resumed].items()}
        assert devices == {"step": place, "exp_avg": "meta", "exp_avg_sq": "meta"}
