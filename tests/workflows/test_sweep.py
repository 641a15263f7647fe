"""`twinpass.sweep`: every combination and seed once, resumed, shared, and compared."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from pathlib import Path

import pytest
from filelock import FileLock
from tests.tiny import WORDS, make_checkpoint

from twinpass import Run, sweep
from twinpass.errors import ConfigError, TrainingError
from twinpass.training.sweep import Tried, combinations, parse_grid, plan, run_all
from twinpass.workflows.sweep import _rank

GRID = {"learning_rate": [1e-4, 3e-3], "batch_size": [4, 8]}
SCORES = ([90.0, math.nan], [50.0, 51.0], [math.nan, math.nan])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("sweep") / "tiny")


@pytest.fixture
def base(tiny: Path, dev: Path, tmp_path: Path, monkeypatch) -> Run:
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "cache"))
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{a} {b} {c}\n" for a, b, c in zip(WORDS, WORDS[3:], WORDS[7:], strict=False)))
    output = str(tmp_path / "runs")
    return Run(data=str(text), model=str(tiny), dev=str(dev), output=output, steps=2, device="cpu", seed=5)


def test_every_combination_and_seed_is_a_run_and_the_best_mean_comes_first(base) -> None:
    found = sweep(base, GRID, seeds=2)
    folders = [path for path in Path(base.output).iterdir() if path.is_dir()]
    assert len(folders) == 8 and len(found.scores) == 4
    means = [statistics.fmean(scores) for _, scores in found.scores]
    assert means == sorted(means, reverse=True) and all(len(scores) == 2 for _, scores in found.scores)
    of_best = [path for path in folders if all(f"{n}={v:g}" in path.name for n, v in found.best.items())]
    assert found.best_model in of_best and len(of_best) == 2
    assert Run.read(found.best_model / "run.json").learning_rate == found.best["learning_rate"]
    low, high = found.interval
    assert low <= max(found.scores[0][1]) <= high
    document = json.loads((Path(base.output) / "sweep.json").read_text())
    assert document["best"] == dict(found.best) and document["versions"] and len(document["settings"]) == 4
    page = (Path(base.output) / "sweep.html").read_text()
    assert "learning_rate" in page and "<svg" in page and found.protocol in page
    assert "best model:" in repr(found) and found.to_pandas().shape[0] == 4


def test_finished_runs_are_found_again_and_a_wider_grid_adds_to_them(base) -> None:
    first = sweep(base, {"learning_rate": [1e-4]})
    weights = first.best_model / "model.safetensors"
    stamp = weights.stat().st_mtime_ns
    said: list[str] = []
    second = sweep(base, {"learning_rate": [1e-4, 3e-3]}, log=said.append)
    assert dict(first.scores[0][0]) in [dict(values) for values, _ in second.scores]
    assert weights.stat().st_mtime_ns == stamp, "it was not trained again"
    sweep(base.replace(steps=3), {"learning_rate": [1e-4]})
    assert sum(path.is_dir() for path in Path(base.output).iterdir()) == 3, "another run has another folder"


def test_what_another_process_works_on_comes_last(base) -> None:
    trials = plan(base, {"batch_size": [4, 8]}, seeds=1)
    Path(base.output).mkdir()
    lock = FileLock(trials[0].folder.parent / f".{trials[0].folder.name}.lock")
    lock.acquire()
    said: list[str] = []
    finished = run_all(trials, lambda run: _result(run), log=said.append)
    assert next(finished).trial is trials[1] and any("postponed" in line for line in said)
    lock.release()
    assert next(finished).trial is trials[0]


def test_an_interrupted_run_stops_the_sweep(base) -> None:
    trials = plan(base, {"batch_size": [4, 8]}, seeds=1)
    with pytest.raises(KeyboardInterrupt):
        list(run_all(trials, lambda run: _result(run, reason="interrupted")))


def test_a_run_that_fails_does_not_end_the_sweep(base) -> None:
    said: list[str] = []
    grid = {"learning_rate": [1e30, 1e-4]}
    found = sweep(base.replace(steps=4), grid, seeds=2, log=said.append)
    assert found.best == {"learning_rate": 1e-4} and "failed, failed" in repr(found)
    assert sum("failed: the " in line for line in said) == 2
    document = json.loads((Path(base.output) / "sweep.json").read_text())
    assert [setting["scores"] for setting in document["settings"]][1] == [None, None]
    assert "failed" in (Path(base.output) / "sweep.html").read_text()
    with pytest.raises(TrainingError, match="no run of the sweep has a dev score: all 1 failed"):
        sweep(base.replace(steps=4), {"learning_rate": [1e30]})


def test_a_run_without_a_dev_score_failed(base) -> None:
    (trial,) = plan(base, {"batch_size": [4]}, seeds=1)
    nothing = dataclasses.replace(_result(trial.run), best={}, before={"score": math.nan})
    (tried,) = run_all([trial], lambda run: nothing)
    assert math.isnan(tried.score)


def test_a_setting_of_which_a_run_failed_is_behind_the_others(base) -> None:
    (trial,) = plan(base, {"batch_size": [4]}, seeds=1)
    lucky, steady, none = ([Tried(trial, 1.0, score, 1) for score in each] for each in SCORES)
    assert sorted([steady, none, lucky], key=_rank) == [none, lucky, steady]


def test_several_processes_are_refused(base, monkeypatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=r"a sweep trains in one process.*without torchrun"):
        sweep(base, GRID)


def _result(run: Run, reason: str = "finished"):
    from twinpass.log import Result

    Path(run.output).mkdir(parents=True, exist_ok=True)
    scores = {"score": 1.0}
    return Result(output=Path(run.output), reason=reason, steps=2, loss=0.1, before=scores, best=scores, last=scores)


def test_a_grid_is_read_by_the_types_of_its_fields() -> None:
    grid = parse_grid(["learning-rate=1e-5,3e-5", "batch_size=64", "dropout=none,0.2", "pooler=cls,avg"])
    assert grid == {"learning_rate": [1e-5, 3e-5], "batch_size": [64], "dropout": [None, 0.2], "pooler": ["cls", "avg"]}
    assert parse_grid(["keep_duplicates=true,false"]) == {"keep_duplicates": [True, False]}
    assert combinations({"a": [1, 2], "b": "xy"}) == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["learning_rate"], "expected NAME=VALUE"),
        (["lerning_rate=1"], "Did you mean 'learning_rate'"),
        (["seed=1,2"], "the same for every run"),
        (["batch_size=many"], "'many' is not a value of batch_size"),
        (["batch_size=4", "batch_size=8"], "given twice"),
    ],
)
def test_a_grid_that_cannot_be_read_is_refused(options, message) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_grid(options)


def test_a_sweep_needs_a_dev_set_and_something_to_vary(base) -> None:
    with pytest.raises(ConfigError, match="pass --dev"):
        sweep(base.replace(dev=None), GRID)
    with pytest.raises(ConfigError, match="something to vary"):
        sweep(base, {})
    with pytest.raises(ConfigError, match="different values"):
        sweep(base, {"batch_size": [4, 4]})
    with pytest.raises(ConfigError, match="batch_size"):
        sweep(base, {"batch_size": [-1]})
