"""Compare two models on the same items: a paired bootstrap, and "no difference shown" where there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from twinpass.display import Displayed, Grid
from twinpass.encoder.any_model import Encode, Model
from twinpass.encoder.vector_cache import Cache
from twinpass.errors import ConfigError, InputError
from twinpass.evaluation.answers import Answers, answers_from_json
from twinpass.evaluation.evaluate import SEED, Job, Settings, describe_options, evaluate, make_jobs
from twinpass.evaluation.results import SCALE, Results, labelled
from twinpass.evaluation.statistics import RESAMPLES, Array, interval, two_sided_p
from twinpass.evaluation.tasks import GROUPS
from twinpass.files import read_sealed
from twinpass.progress import Log, Progress, ignore, silent
from twinpass.provenance import provenance
from twinpass.text.tables import check_table, write_table

if TYPE_CHECKING:
    from twinpass.encoder.encoder import Encoder

SAME = "no difference shown"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """First minus second on one task, times 100, with its 95 % interval, p, and what that shows."""

    task: str
    metric: str
    first: float
    second: float
    difference: float
    low: float
    high: float
    p: float
    n: int
    verdict: str


_FIELDS = [field.name for field in fields(Difference)]


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(Displayed):
    """Two models on the same items: the difference on each task, then on the average of a whole group."""

    first: str
    second: str
    seed: int
    differences: list[Difference]
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def grids(self) -> list[Grid]:
        """Return one table, a row for each task."""
        columns = ["task", "metric", "A", "B", "A - B", "95 % interval", "p", "n", "shown"]
        rows = [
            [
                entry.task,
                entry.metric,
                f"{entry.first:.2f}",
                f"{entry.second:.2f}",
                f"{entry.difference:+.2f}",
                f"{entry.low:+.2f} to {entry.high:+.2f}",
                f"{entry.p:.3f}",
                f"{entry.n:,}",
                entry.verdict,
            ]
            for entry in self.differences
        ]
        title = f"A = {self.first}, B = {self.second} (x 100, paired bootstrap)"
        return [Grid(title, columns, rows, words=("metric", "shown"))]

    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary per task."""
        return [asdict(entry) for entry in self.differences]


class _Answers(NamedTuple):
    """A model's name and the items behind its scores, by task."""

    name: str
    items: Mapping[str, Answers]


def compare(
    first: str | Path | Results | Encoder | Model | Encode,
    second: str | Path | Results | Encoder | Model | Encode,
    tasks: str | Sequence[str] | None = None,
    *,
    data: str | Path | None = None,
    protocol: str = "full",
    split: str = "test",
    regressor: bool = False,
    columns: str | Sequence[str] | None = None,
    score: str | None = None,
    resamples: int = RESAMPLES,
    seed: int = SEED,
    output: str | Path | None = None,
    cache: bool | Cache = True,
    progress: Progress = silent,
    log: Log = ignore,
    **loading: Any,
) -> Comparison:
    """Compare two models, or two results of `evaluate` (also as .json files), item by item.

    A paired bootstrap: both are resampled alike, so that what is hard for both cancels out. Where the interval of the
    difference contains zero, the verdict is "no difference shown". The options are those of `evaluate`; they apply
    to the sides that are models. `output` also writes a row for each task to a .csv, .parquet or .jsonl file.
    """
    if resamples < 1:
        raise ConfigError(f"resamples is {resamples}; a comparison needs at least 1.")
    if output is not None:
        check_table(output)
    settings = Settings(data, protocol, split, regressor, columns, score, resamples, seed)
    jobs: list[Job] = []  # the data is read once for both
    sides = []
    for source in (first, second):
        if isinstance(source, Results):
            sides.append(_take(source))
        elif isinstance(source, (str, Path)) and str(source).endswith(".json"):
            sides.append(_read(Path(source)))
        else:
            jobs = jobs or make_jobs(tasks, settings)
            options: dict[str, Any] = {"resamples": resamples, "seed": seed, "cache": cache, **loading}
            sides.append(_take(evaluate(source, jobs, progress=progress, log=log, **options)))
    found = Comparison(
        first=sides[0].name,
        second=sides[1].name,
        seed=seed,
        differences=_compare(*sides, resamples=resamples, seed=seed),
        provenance=provenance(options=describe_options(tasks, settings, loading)),
    )
    if output is not None:
        both = {"first_model": found.first, "second_model": found.second}
        write_table(output, [both | record for record in found.records()], columns=[*both, *_FIELDS])
    return found


def _take(results: Results) -> _Answers:
    """Take the items of results: the cosine of STS, the test predictions of transfer, and so on."""
    tasks = [task for task in results.tasks if task.items]
    return _Answers(results.label, {task.task: next(iter(task.items.values())) for task in tasks})


def _read(path: Path) -> _Answers:
    """Read the items from a result file that `evaluate` wrote."""
    try:
        document = read_sealed(path)
        if "models" in document:
            raise InputError(f"{path} holds the results of several models; compare takes those of one.")
        tasks = [task for task in document["tasks"] if task["items"]]
        items = {task["task"]: answers_from_json(next(iter(task["items"].values()))) for task in tasks}
        return _Answers(f"{labelled(document['model']['name'], document['model'])} ({path})", items)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise InputError(
            f"{path} is not a result file with items: {error!r}. Write one with: twinpass evaluate ... -o FILE.json"
        ) from error


def _compare(first: _Answers, second: _Answers, *, resamples: int, seed: int) -> list[Difference]:
    names = [name for name in first.items if name in second.items]
    if not names:
        tasks = [", ".join(side.items) or "none" for side in (first, second)]
        raise InputError(
            f"{first.name} and {second.name} share no task: {tasks[0]} against {tasks[1]}. "
            "Evaluate both on the same tasks."
        )
    found = {name: _compare_task(name, first, second, resamples=resamples, seed=seed) for name in names}
    for group, members in GROUPS.items():
        if all(member in found for member in members):
            found[f"Avg. {group}"] = _mean([found[member] for member in members])
    return [_difference(name, entry, first, second) for name, entry in found.items()]


class _Found(NamedTuple):
    metric: str
    first: float
    second: float
    samples: Array
    n: int


def _compare_task(name: str, first: _Answers, second: _Answers, *, resamples: int, seed: int) -> _Found:
    """Resample both alike: the same seed and name draw the same items for each."""
    one, two = first.items[name], second.items[name]
    golds = one.targets(), two.targets()
    if one.asked != two.asked or golds[0].shape != golds[1].shape or not np.allclose(*golds):
        raise InputError(
            f"{name}: {first.name} and {second.name} were not scored on the same items "
            f"({len(golds[0]):,} and {len(golds[1]):,}). Evaluate both on the same data."
        )
    key = one.headline
    samples = [entry.samples(resamples=resamples, seed=seed, name=name)[key] for entry in (one, two)]
    return _Found(key, one.values()[key], two.values()[key], samples[0] - samples[1], len(golds[0]))


def _mean(parts: list[_Found]) -> _Found:
    samples: Array = np.mean([part.samples for part in parts], axis=0)
    first, second = (float(np.mean([getattr(part, side) for part in parts])) for side in ("first", "second"))
    return _Found(parts[0].metric, first, second, samples, sum(part.n for part in parts))


def _difference(name: str, found: _Found, first: _Answers, second: _Answers) -> Difference:
    samples = found.samples[np.isfinite(found.samples)]
    low, high = interval(SCALE * samples)
    better = first.name if low > 0 else second.name if high < 0 else None
    return Difference(
        task=name,
        metric=found.metric,
        first=SCALE * found.first,
        second=SCALE * found.second,
        difference=SCALE * (found.first - found.second),
        low=low,
        high=high,
        p=two_sided_p(samples) if len(samples) else float("nan"),
        n=found.n,
        verdict=f"{better} is better" if better else SAME,
    )
