"""Jobs: what each task asked for needs encoded, and how it is scored once that is done."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from twinpass.encoder.any_model import Encode, Model
from twinpass.errors import ConfigError
from twinpass.evaluation.confidence import interval
from twinpass.evaluation.correlation import Array
from twinpass.evaluation.hub import read_hub_task
from twinpass.evaluation.items import Items, Pairs
from twinpass.evaluation.protocols import TRANSFER
from twinpass.evaluation.reading import Data, Rows, read_task
from twinpass.evaluation.results import SCALE, Score, TaskResult
from twinpass.evaluation.sts import score_sts
from twinpass.evaluation.tasks import Task
from twinpass.evaluation.transfer import score_transfer

HUB = "hub"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What holds for all tasks of one evaluation."""

    data: str | Path | None = None  # a folder in SentEval's layout, or "hub"
    protocol: str = "full"  # of transfer: "full" or "fast"
    split: str = "test"  # of STS-B and SICK-R
    regressor: bool = False
    resamples: int = 2000
    seed: int = 42
    most: int | None = None  # rows of each part that are scored: a quick look, not a protocol


class Job(NamedTuple):
    """One task: the texts it needs, and how to score it once they are encoded.

    It is given a function that looks up those vectors, and the model, for tasks that bring texts of their own.
    """

    name: str
    texts: Iterable[str]
    run: Callable[[Encode, Model], TaskResult]


def task_job(task: Task, settings: Settings) -> Job:
    """Read a task's data and say how to score it."""
    TRANSFER[settings.protocol]  # a wrong name shows now, not after the encoding
    data = _some(_read(task, settings), settings.most)
    texts = [text for rows in data.parts.values() for row in rows.texts for text in row]
    run = _sts_run if task.kind == "sts" else _transfer_run
    return Job(task.name, texts, lambda encode, model: run(encode, data, settings))


def resample(items: Mapping[str, Items], name: str, settings: Settings) -> dict[str, dict[str, Array]]:
    """Resample every kind of items of a task; the task's name picks the draws, so that two models share them."""
    return {
        kind: entry.samples(resamples=settings.resamples, seed=settings.seed, name=name)
        for kind, entry in items.items()
    }


def make_scores(items: Items, samples: Mapping[str, Array], *, protocol: str, over: str, n: int) -> list[Score]:
    """One score for each of the items' values; a name of two words says over what it is taken."""
    scores = []
    for name, value in items.values().items():
        place, _, metric = name.rpartition(" ")
        low, high = interval(SCALE * samples[name])
        count = len(items.subsets[place][1]) if isinstance(items, Pairs) and place in items.subsets else n
        scores.append(
            Score(
                metric=metric, over=place or over, protocol=protocol, value=SCALE * value, low=low, high=high, n=count
            )
        )
    return scores


def _some(data: Data, most: int | None) -> Data:
    """Keep so many rows of each part, evenly spread."""
    if most is None:
        return data
    parts = {}
    for name, rows in data.parts.items():
        places = range(0, len(rows.targets), max(1, len(rows.targets) // most))
        parts[name] = Rows([rows.texts[i] for i in places], [rows.targets[i] for i in places])
    return data._replace(parts=parts)


def _read(task: Task, settings: Settings) -> Data:
    if settings.data is None:
        raise ConfigError(f"{task.name} needs data: name its folder with --data (SentEval's layout), or 'hub'.")
    if str(settings.data) == HUB:
        return read_hub_task(task, split=settings.split)
    if task.kind == "transfer":
        return read_task(task, settings.data)
    if task.protocol == "subsets":
        return read_task(task, settings.data)
    parts = ("train", "dev", "test") if settings.regressor else (settings.split,)
    if settings.split not in {part.name for part in task.parts}:
        raise ConfigError(f"{task.name} has no split {settings.split!r}: train, dev and test are its splits.")
    return read_task(task, settings.data, parts=parts)


def _sts_run(encode: Encode, data: Data, settings: Settings) -> TaskResult:
    task = data.task
    items = score_sts(encode, data, split=settings.split, regressor=settings.regressor)
    samples = resample(items, task.name, settings)
    scores = []
    for kind, entry in items.items():
        protocol = "regressor" if kind == "regressor" else "no regressor"
        scores += make_scores(entry, samples[kind], protocol=protocol, over="all", n=sum(entry.sizes))
    if task.protocol == "subsets" and len(data.parts) < len(task.parts):  # the hub's copies do not say the subsets
        scores = [score for score in scores if score.over == "all"]
    return TaskResult(
        task=task.name,
        kind=task.kind,
        split="test" if task.protocol == "subsets" else settings.split,
        scores=scores,
        items=items,
        samples=samples,
        files=data.sha256,
        notes=_notes(scores),
        licence=task.licence,
        citation=task.citation,
    )


def _notes(scores: list[Score]) -> list[str]:
    constant = sorted({score.over for score in scores if math.isnan(score.value)})
    if not constant:
        return []
    where = ", ".join(constant)
    return [f"no correlation for {where}: every pair there got the same score, so there is nothing to correlate"]


def _transfer_run(encode: Encode, data: Data, settings: Settings) -> TaskResult:
    task = data.task
    found = score_transfer(encode, data, protocol=TRANSFER[settings.protocol])
    items = {"test": found.items}
    samples = resample(items, task.name, settings)
    count = len(found.items.gold)
    accuracy, *others = make_scores(found.items, samples["test"], protocol=settings.protocol, over="test", n=count)
    # SentEval's own number: the mean of the folds' accuracies, each rounded.
    accuracy = Score(**{**vars(accuracy), "value": found.test_accuracy})
    dev = Score(metric="accuracy", over="dev", protocol=settings.protocol, value=found.dev_accuracy)
    if task.name != "MRPC":  # the one task whose F1 is published
        others = []
    chosen = ", ".join(f"{value:g}" for value in dict.fromkeys(found.l2))
    return TaskResult(
        task=task.name,
        kind=task.kind,
        split="test",
        scores=[accuracy, *others, dev],
        items=items,
        samples=samples,
        files=data.sha256,
        notes=[f"L2 chosen on dev: {chosen}"],
        licence=task.licence,
        citation=task.citation,
    )
