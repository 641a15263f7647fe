"""A grid of runs: every combination of some fields' values, with every seed, each in a folder of its own."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import statistics
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from twinpass.config import Run
from twinpass.errors import ConfigError, OutputError, TrainingError
from twinpass.files import explaining, locked
from twinpass.log import Result
from twinpass.progress import Log, ignore
from twinpass.registry import suggest

Grid = Mapping[str, Sequence[Any]]
# What a sweep sets itself, and what is not a property of the trained model.
FIXED = ("data", "output", "dev", "seed", "device", "tensorboard")


@dataclass(frozen=True)
class Trial:
    """One run of a sweep: the values that it tries, and the run, whose output is a folder of its own."""

    values: dict[str, Any]
    run: Run

    @property
    def folder(self) -> Path:
        """The run's output folder."""
        return Path(self.run.output)


@dataclass(frozen=True)
class Tried:
    """A trial that has ended: with scores, or without where it failed."""

    trial: Trial
    before: float  # the dev score of the starting model
    score: float  # the best dev score, NaN if the run failed
    step: int | None


def combinations(grid: Grid) -> list[dict[str, Any]]:
    """Return every combination of the values, the last field varying fastest."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def plan(run: Run, grid: Grid, *, seeds: int) -> list[Trial]:
    """Return the runs of a sweep; a folder's name ends in a hash of its run, so other settings get other folders."""
    _check_grid(grid)
    if seeds < 1:
        raise ConfigError(f"a sweep takes at least one seed, got {seeds}.")
    trials = []
    for values in combinations(grid):
        for seed in range(run.seed, run.seed + seeds):
            changed = run.replace(**values, seed=seed)
            described = {name: value for name, value in asdict(changed).items() if name not in ("output", "device")}
            digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:8]
            named = ",".join(f"{name}={_in_a_name(value)}" for name, value in values.items())
            folder = Path(run.output) / f"{named},seed={seed}-{digest}"
            trials.append(Trial(values, changed.replace(output=str(folder)).check()))
    return trials


def run_all(trials: Sequence[Trial], train: Callable[[Run], Result], *, log: Log = ignore) -> Iterator[Tried]:
    """Yield the trials as they finish; those that another process works on come last, when it may be done with them.

    `train` resumes a stopped run, and returns the result of a finished one.
    """
    waiting = list(enumerate(trials, start=1))
    for wait in (False, True):
        postponed = []
        for number, trial in waiting:
            log(f"run {number} of {len(trials)}: {trial.folder.name}")
            try:
                with _alone(trial, wait=wait):
                    tried = _tried(trial, train(trial.run))
            except _Busy:
                log("  another process works on it: postponed")
                postponed.append((number, trial))
                continue
            except TrainingError as error:  # it diverged: the other settings are still worth trying
                log(f"  failed: {error}")
                tried = Tried(trial, math.nan, math.nan, None)
            yield tried
        waiting = postponed


def parse_grid(options: Iterable[str]) -> dict[str, list[Any]]:
    """Read `learning_rate=1e-5,3e-5` and the like, each value as the type of its field."""
    grid: dict[str, list[Any]] = {}
    for option in options:
        name, equals, values = option.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not values.strip():
            raise ConfigError(f"expected NAME=VALUE,VALUE..., got {option!r}. Example: --grid learning_rate=1e-5,3e-5")
        _check_names([name])
        if name in grid:
            raise ConfigError(f"--grid {name} was given twice. Put all its values into one.")
        grid[name] = [_value(name, text.strip()) for text in values.split(",")]
    return grid


def finished(scores: Sequence[float]) -> list[float]:
    """Return the scores of the runs that have one."""
    return [score for score in scores if not math.isnan(score)]


def mean(scores: Sequence[float]) -> float:
    """Return the mean over the runs that have a score, NaN if there is none."""
    return statistics.fmean(finished(scores)) if finished(scores) else math.nan


def deviation(scores: Sequence[float]) -> float | None:
    """Return the standard deviation over seeds, where several have a score."""
    return statistics.stdev(finished(scores)) if len(finished(scores)) > 1 else None


class _Busy(Exception):
    """Another process works on it."""


@contextlib.contextmanager
def _alone(trial: Trial, *, wait: bool) -> Iterator[None]:
    """Let one process at a time work on a trial."""
    with explaining(trial.folder.parent):
        trial.folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(trial.folder.parent / f".{trial.folder.name}.lock", wait=wait))
        except OutputError:
            if wait:
                raise
            raise _Busy from None
        yield


def _tried(trial: Trial, result: Result) -> Tried:
    if not result.finished or result.interrupted:
        raise KeyboardInterrupt
    if not result.before:
        raise ConfigError("a sweep needs a dev set to choose by: pass --dev.")
    return Tried(trial, result.before["score"], result.best.get("score", math.nan), result.best_step)


def _check_grid(grid: Grid) -> None:
    if not grid:
        raise ConfigError("a sweep needs something to vary, such as --grid learning_rate=1e-5,3e-5")
    _check_names(grid)
    for name, values in grid.items():
        if len(set(values)) != len(values) or not values:
            raise ConfigError(f"--grid {name}: expected one or more different values, got {list(values)}.")


def _check_names(names: Iterable[str]) -> None:
    known = [name for name in get_type_hints(Run) if name not in FIXED]
    for name in names:
        if name not in known:
            hint = " It is the same for every run of a sweep." if name in FIXED else suggest(name, known)
            raise ConfigError(f"a sweep cannot vary {name!r}.{hint}")


def _value(name: str, text: str) -> Any:
    """Read a value as the type of its field."""
    hint = get_type_hints(Run)[name]
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if text.lower() == "none" and type(None) in kinds:
        return None
    if bool in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        if kind in kinds:
            try:
                return kind(text)
            except ValueError:
                continue
    if str in kinds:
        return text
    raise ConfigError(f"--grid {name}: {text!r} is not a value of {name}.")


def _in_a_name(value: Any) -> str:
    """Return a value as part of a folder's name."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return "".join(letter if letter.isalnum() or letter in ".-_+" else "_" for letter in text)
