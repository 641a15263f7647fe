"""Evaluate one model on tasks: encode every sentence once, then score task after task."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

from twinpass.encoder.any_model import Encode, Model, open_model
from twinpass.encoder.vector_cache import Cache, encode_once
from twinpass.evaluation.jobs import Job, Settings, task_job
from twinpass.evaluation.mteb_adapter import run_mteb
from twinpass.evaluation.own import own_job
from twinpass.evaluation.results import Results, TaskResult, average_scores
from twinpass.evaluation.tasks import TASKS, choose
from twinpass.progress import Advance

OWN = ("scored", "labelled", "retrieval", "docs-pairs", "docs")


def make_jobs(
    tasks: str, settings: Settings, *, columns: Sequence[str] | None = None, score: str | None = None
) -> list[Job]:
    """Read the data of the named tasks: groups, tasks and `KIND:PLACE`, with commas between."""
    jobs: list[Job] = []
    for name in split_names(tasks):
        kind, _, place = name.partition(":")
        if kind in OWN and ":" in name:
            jobs.append(own_job(name, settings, columns=columns, score=score))
        elif kind == "mteb" and place:
            jobs.append(_mteb_job(name, place))
        else:
            jobs += [task_job(task, settings) for task in choose(name)]
    return list({job.name: job for job in jobs}.values())


def _mteb_job(name: str, task: str) -> Job:
    return Job(name, (), lambda encode, model: run_mteb(model, task))


def split_names(tasks: str) -> list[str]:
    """Split at commas, but leave `docs-pairs:numpy,scipy` whole."""
    names: list[str] = []
    for name in filter(None, (part.strip() for part in tasks.split(","))):
        if names and names[-1].startswith(("docs-pairs:", "docs:")) and ":" not in name and name not in TASKS:
            names[-1] += f",{name}"
        else:
            names.append(name)
    return names or [""]


def evaluate(
    model: Model | str | Encode,
    tasks: str | Sequence[Job] = "sts",
    *,
    settings: Settings | None = None,
    cache: Cache | None = None,
    advance: Advance | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> Results:
    """Score a model (or any encode function) on tasks; with a cache, sentences seen before are not encoded."""
    settings = settings or Settings()
    model = model if isinstance(model, Model) else open_model(model)
    jobs = make_jobs(tasks, settings) if isinstance(tasks, str) else list(tasks)
    started = time.perf_counter()
    encode = encode_once(model, (text for job in jobs for text in job.texts), cache=cache, advance=advance)
    log(f"encoded in {time.perf_counter() - started:.1f} s")
    results = [_timed(job, encode, model, log) for job in jobs]
    return Results(
        model=model.name,
        fingerprint=model.fingerprint,
        tasks=results,
        averages=average_scores(results),
        resamples=settings.resamples,
        seed=settings.seed,
        seconds=time.perf_counter() - started,
    )


def _timed(job: Job, encode: Encode, model: Model, log: Callable[[str], None]) -> TaskResult:
    started = time.perf_counter()
    result = job.run(encode, model)
    seconds = time.perf_counter() - started
    log(f"{job.name}: {result.scores[0].metric} {result.scores[0].value:.2f} in {seconds:.1f} s")
    return dataclasses.replace(result, seconds=seconds)
