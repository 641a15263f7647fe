"""A grid of runs: every combination of some fields' values, with every seed, each in a folder of its own."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import math
import statistics
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from twinpass.config import NEW_MODEL, PART_FIELDS, Run, parts_of
from twinpass.config.checks import in_words
from twinpass.encoder.any_model import check_model
from twinpass.encoder.folder import hash_folder, path_of
from twinpass.encoder.load import BUILTIN
from twinpass.encoder.pooling import find_pooler
from twinpass.errors import ConfigError, InputError, OutputError, TwinpassError, UserError
from twinpass.files import explaining, locked, sha256, sharing
from twinpass.log import FILE as LOG
from twinpass.log import Result, has_log, read_log
from twinpass.progress import Log, ignore
from twinpass.registry import suggest
from twinpass.text.sources import content_of

Grid = Mapping[str, Sequence[Any]]
# What a sweep sets itself, and what is not a property of the trained model.
FIXED = ("data", "output", "dev", "seed", "device", "tensorboard")
LONGEST_NAME = 150  # bytes of a folder's name, without seed and hash; file systems take 255
PAGE, FILE = "sweep.html", "sweep.json"
RUN, RESULT = "run.json", "result.json"
# What a training writes beside its model, and a sweep beside its runs; loading reads none of it.
RECORDS = (RUN, RESULT, LOG, "report.html", "tensorboard", PAGE, FILE)


@dataclass(frozen=True)
class Trial:
    """One run of a sweep: the values that it tries, and the run, whose output is a folder of its own."""

    number: int  # its place in the plan, from 1
    values: dict[str, Any]
    run: Run
    digest: str  # of the run and of what it reads

    @property
    def folder(self) -> Path:
        """The run's output folder."""
        return Path(self.run.output)

    @property
    def lock(self) -> Path:
        """The lock file of the run, whatever its folder is called."""
        return self.folder.parent / f".{self.digest}.lock"

    def begun(self) -> Trial:
        """Return the trial in the folder where it was finished or begun: another grid gives it another name."""
        found = [path for path in self.folder.parent.glob(f"*-{self.digest}") if path.is_dir()]
        found.sort(key=lambda path: (not (path / RESULT).is_file(), path != self.folder, path.name))
        return replace(self, run=self.run.replace(output=str(found[0]))) if found else self


@dataclass(frozen=True)
class Tried:
    """A trial that has ended: with scores, or without where it failed."""

    trial: Trial
    before: float | None  # the dev score of the starting model, None if it is not known
    score: float  # the best dev score, NaN if the run failed
    result: Result | None  # none where it failed


def combinations(grid: Grid) -> list[dict[str, Any]]:
    """Return every combination of the values, the last field varying fastest."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def plan(run: Run, grid: Grid, *, seeds: int) -> list[Trial]:
    """Return the runs of a sweep, each in a folder whose name ends in a hash of the run and of what it reads."""
    _check_grid(grid)
    if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1:
        raise ConfigError(f"seeds: expected a whole number, 1 or more, got {seeds!r}.")
    if not run.output:
        raise ConfigError("a sweep needs an output folder. Name one (in Python: Run(output=...)).")
    text_content, model_content = functools.cache(_text_content), functools.cache(_model_content)
    check_start = functools.cache(_check_start)  # most runs share theirs
    trials: list[Trial] = []
    for values in combinations(grid):
        for seed in range(run.seed, run.seed + seeds):
            changed = run.replace(**values, seed=seed).check()
            check_start(changed.pooler, _models_of(changed), changed.trust_pickle, changed.trust_remote_code)
            described = _describe(changed, text_content, model_content)
            digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:8]
            named = ",".join(f"{name}={_in_a_name(value)}" for name, value in values.items())
            named = named.encode()[:LONGEST_NAME].decode(errors="ignore")
            # The name is for people: runs are found by the hash.
            folder = Path(run.output) / f"{named},seed={seed}-{digest}"
            trials.append(Trial(len(trials) + 1, values, changed.replace(output=str(folder)), digest))
    return trials


def _check_start(pooler: str | None, models: tuple[str, ...], trust_pickle: bool, trust_remote_code: bool) -> None:
    """Raise UserError for a pooler or a model that does not exist: now, and not when other runs are trained."""
    if pooler is not None:
        find_pooler(pooler)
    for model in models:
        if not model.startswith(NEW_MODEL):
            check_model(model, trust_pickle=trust_pickle, trust_remote_code=trust_remote_code)


def _describe(
    run: Run, text_content: Callable[[str], list[str]], model_content: Callable[[str], str]
) -> dict[str, Any]:
    """Return what makes a run another run: its options, and the content of all that it reads, wherever that lies."""
    named = (*FIXED, "mixture", "model", "teacher", "generator")
    described = {name: value for name, value in asdict(run).items() if name not in named}
    parts = [
        (text_content(part.run.data), str(part.share), {name: getattr(part.run, name) for name in PART_FIELDS})
        for part in parts_of(run)
    ]
    models = list(map(model_content, _models_of(run)))
    return described | {"seed": run.seed, "parts": parts, "dev": text_content(run.dev or ""), "models": models}


def _text_content(text: str) -> list[str]:
    if text == "-" or text.endswith(":-"):
        raise ConfigError("every run of a sweep reads its text, and standard input can be read once. Use a file.")
    return content_of(text)


def _models_of(run: Run) -> tuple[str, ...]:
    """Return the models that a run reads: its start, a teacher or two (rankcse), a generator (diffcse)."""
    teachers = (name.strip() for name in (run.teacher or "").split(","))
    return (run.model, *filter(None, teachers), *filter(None, [run.generator]))


def _model_content(model: str) -> str:
    """Return a hash of a model's files; the built-in model, or one on the hub, stands for itself.

    A run or a sweep that starts from the model may write into its folder, so other runs in there do not count.
    """
    if model == BUILTIN:
        return model
    path = path_of(model)
    if not path.is_dir():
        return sha256(path) if path.is_file() else model
    runs = {file.parent for file in path.rglob(RUN)}
    card = ["README.md"] if path in runs else []
    return hash_folder(path, without=[*RECORDS, *card, *(run.name for run in runs - {path})])


def run_all(trials: Sequence[Trial], train: Callable[[Run], Result], *, log: Log = ignore) -> Iterator[Tried]:
    """Yield the trials as they finish; those that another process works on come last, when it may be done with them.

    `train` resumes a stopped run, and returns the result of a finished one.
    """

    ended = 0

    def run(planned: Trial, wait: bool) -> Tried:
        nonlocal ended
        trial = planned
        log(f"run {trial.number} of {len(trials)}: {trial.folder.name}")
        try:
            with _alone(trial, wait=wait):
                trial = planned.begun()  # under the lock: another process may have made the folder meanwhile
                if trial.folder != planned.folder:
                    log(f"  found as {trial.folder.name}")
                tried = _tried(trial, train(trial.run))
        except OutputError:
            raise
        except TwinpassError as error:  # the other settings are still worth trying
            if isinstance(error, UserError) and not ended:  # nothing is lost yet
                raise
            log(f"  failed: {error}")
            tried = Tried(trial, _start_in_log(trial.folder), math.nan, None)
        ended += 1
        return tried

    yield from sharing(trials, run, log=log)


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


def rank(scores: Sequence[float]) -> tuple[bool, float]:
    """Return by what settings are compared: one of which a run failed is behind those of which none did."""
    return len(finished(scores)) == len(scores), mean(scores) if finished(scores) else -math.inf


@contextlib.contextmanager
def _alone(trial: Trial, *, wait: bool) -> Iterator[None]:
    """Let one process at a time work on a trial."""
    with explaining(trial.folder.parent):
        trial.folder.parent.mkdir(parents=True, exist_ok=True)
    # The lock file stays: a process on another machine may be waiting for it, would not see it removed, and would then
    # hold a lock that nobody else can find.
    with locked(trial.lock, wait=wait):
        yield


def _tried(trial: Trial, result: Result) -> Tried:
    if not result.finished or result.interrupted:
        raise KeyboardInterrupt
    if not result.before:
        raise ConfigError("a sweep needs a dev set to choose by: pass --dev.")
    return Tried(trial, result.before["score"], result.best.get("score", math.nan), result)


def _start_in_log(folder: Path) -> float | None:
    """Return the dev score of the model that a failed run started from, None if it was not scored."""
    try:
        starts = [scores for step, scores in read_log(folder).dev if step == 0] if has_log(folder) else []
    except InputError:  # the run has failed already
        return None
    return starts[0].get("score", math.nan) if starts else None


def _check_grid(grid: Grid) -> None:
    if not isinstance(grid, Mapping) or not grid:
        raise ConfigError(
            "a sweep needs something to vary, such as --grid learning_rate=1e-5,3e-5 "
            '(in Python: {"learning_rate": [1e-5, 3e-5]}).'
        )
    _check_names(grid)
    for name, values in grid.items():
        try:
            listed = isinstance(values, Sequence) and not isinstance(values, (str, bytes))
            fits = listed and 0 < len(set(values)) == len(values)
        except TypeError:  # a value that cannot be compared by its hash, such as a list
            fits = False
        if not fits:
            raise ConfigError(
                f"--grid {name}: expected a list of one or more different values, got {values!r}. Put a single value "
                "into a list, and write a value that is a list itself as a tuple."
            )


def _check_names(names: Iterable[str]) -> None:
    known = [name for name in get_type_hints(Run) if name not in FIXED]
    for name in names:
        if name not in known:
            same = " It is the same for every run of a sweep." if name != "seed" else " Use --seeds N, from --seed on."
            hint = same if name in FIXED else suggest(str(name), known)
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
    raise ConfigError(f"--grid {name}: expected {in_words(hint)}, got {text!r}.")


def _in_a_name(value: Any) -> str:
    """Return a value as part of a folder's name; of a long one, its end."""
    text = f"{value:g}" if isinstance(value, float) else str(value)[-40:]
    return "".join(letter if letter.isalnum() or letter in ".-_+" else "_" for letter in text)
