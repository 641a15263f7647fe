"""`twinpass.train`: a run with a dev set, without what it asks for, with a report, as the verb trains it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.tiny import WORDS, make_checkpoint

from twinpass import Run, train
from twinpass.errors import ConfigError
from twinpass.log import Evaluated, Started
from twinpass.training.loop import train as loop
from twinpass.workflows.dev import rows_to_learn_from


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("workflows") / "tiny")


@pytest.fixture
def make_run(tiny: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "cache"))

    def make(**fields: Any) -> Run:
        short = {"model": str(tiny), "output": str(tmp_path / "out"), "steps": 2, "batch_size": 4, "device": "cpu"}
        return Run(**(short | fields))

    return make


SENTENCES = [f"{a} {b} {c}" for a, b, c in zip(WORDS, WORDS[3:], WORDS[7:], strict=False)]


def test_a_dev_set_is_a_field_of_the_run(make_run, dev) -> None:
    events: list[Any] = []
    result = train(make_run(dev=str(dev)), rows=SENTENCES, on_event=events.append)
    assert [event.step for event in events if isinstance(event, Evaluated)] == [0, 2]
    assert result.protocol.startswith("Spearman x 100") and result.protocol in (result.output / "README.md").read_text()
    assert result.protocol in (result.output / "report.html").read_text()
    assert Run.read(result.output / "run.json").dev == str(dev)
    with pytest.raises(ConfigError, match=r"twinpass.train opens run.dev"):
        loop(make_run(dev=str(dev)), rows=SENTENCES, overwrite=True)


def test_a_function_goes_before_the_runs_dev_set_and_a_report_can_be_left_out(make_run, dev) -> None:
    result = train(make_run(dev=str(dev)), rows=SENTENCES, evaluate=lambda _: 7.0, report=False)
    assert result.best == {"score": 7.0} and not (result.output / "report.html").exists()


def test_keeping_the_start_needs_a_dev_set(make_run, dev) -> None:
    with pytest.raises(ConfigError, match=r"keep_start needs a dev set \(--dev\)"):
        train(make_run(keep_start=True), rows=SENTENCES)
    assert train(make_run(keep_start=True), rows=SENTENCES, evaluate=lambda _: 7.0).best == {"score": 7.0}


@pytest.mark.parametrize("dev_set", ["docs:rich,click", None])
def test_built_in_text_is_taught_without_what_the_built_in_dev_set_asks(make_run, dev_set: str | None) -> None:
    events: list[Any] = []
    train(make_run(data="docs:rich,click", dev=dev_set), on_event=events.append)
    kept = rows_to_learn_from("docs:rich,click", dev="docs:rich,click")
    started = next(event for event in events if isinstance(event, Started))
    assert kept and started.rows == len(kept)


def test_a_run_of_another_method_is_trained_by_the_same_function(make_run) -> None:
    result = train(make_run(method="ct", batch_size=16), rows=SENTENCES)
    assert (result.kept, result.steps) == ("second", 2)
    names = {path.name for path in result.output.iterdir()}
    assert names >= {"model.safetensors", "run.json", "log.jsonl", "README.md", "report.html", "result.json"}
    assert "checkpoints" not in names
