"""Evaluate one model on tasks: read the tasks, encode every sentence once, score task after task."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from twinpass.encoder.any_model import Encode, Model, check_loading, open_model
from twinpass.encoder.dimensions import shorten
from twinpass.encoder.vector_cache import Cache, encode_once
from twinpass.errors import ConfigError, InputError
from twinpass.evaluation.answers import Answers, Labelled, Pairs, Queries
from twinpass.evaluation.classes import LOGISTIC, NEAREST, ClassSet, nearest_neighbours, read_classes, regression
from twinpass.evaluation.dimensions import check_sizes, list_sizes, shortened_model
from twinpass.evaluation.mteb import run_mteb
from twinpass.evaluation.protocols import TRANSFER
from twinpass.evaluation.reading import HUB, Data, Rows, read_hub_task, read_task
from twinpass.evaluation.results import PAPER, SCALE, Results, Score, TaskResult, average_scores, check_output
from twinpass.evaluation.retrieval import RetrievalSet, pool_pairs, read_folder
from twinpass.evaluation.statistics import RESAMPLES, interval
from twinpass.evaluation.sts import pair_cosines, score_sts
from twinpass.evaluation.tasks import TASKS, Task, choose
from twinpass.evaluation.transfer import score_transfer
from twinpass.files import check_writable, writing
from twinpass.progress import Log, Progress, ignore, silent
from twinpass.provenance import provenance
from twinpass.text.corpus import open_corpus
from twinpass.text.docs.docstrings import MOST_CANDIDATES, held_out_pairs
from twinpass.text.sources import is_file, is_folder

if TYPE_CHECKING:
    from twinpass.encoder.encoder import Encoder

SEED = 42
KINDS = ("scored", "labelled", "retrieval", "docs-pairs", "docs")  # of your own data


@dataclass(frozen=True)
class Settings:
    """The options that all tasks of one evaluation share."""

    data: str | Path | None = None  # a folder in SentEval's layout, or "hub"
    protocol: str = "full"  # of transfer: "full" or "fast"
    split: str = "test"  # of STS-B and SICK-R
    regressor: bool = False
    columns: str | Sequence[str] | None = None  # of your own files
    score: str | None = None  # of your own files
    resamples: int = RESAMPLES
    seed: int = SEED
    max_rows: int | None = None  # score at most this many rows of each part: a quick look, not a protocol


class Job(NamedTuple):
    """One task: the texts it needs, and how to score it once they are encoded.

    `run` takes a function that looks up those vectors, and the model, for tasks that bring their own texts.
    """

    name: str
    texts: Iterable[str]
    run: Callable[[Encode, Model], TaskResult]


Tasks: TypeAlias = str | Sequence[str] | Sequence[Job] | None


def evaluate(
    model: str | Path | Encoder | Model | Encode = "minilm",
    tasks: Tasks = None,
    *,
    data: str | Path | None = None,
    protocol: str = "full",
    split: str = "test",
    regressor: bool = False,
    columns: str | Sequence[str] | None = None,
    score: str | None = None,
    resamples: int = RESAMPLES,
    seed: int = SEED,
    cells: bool = False,
    subsets: bool = False,
    beside: str | None = None,
    dimensions: int | str | Sequence[int] | None = None,
    output: str | Path | Sequence[str | Path] = (),
    cache: bool | Cache = True,
    progress: Progress = silent,
    log: Log = ignore,
    **loading: Any,
) -> Results:
    """Score a model on tasks, every score with its protocol and a 95 % interval.

    model      an Encoder, a function from texts to vectors, or a name: folder, hub name, word vectors (.txt, .gz),
               stored vectors (.parquet, .npy), http(s) URL; `loading` takes open_model's options (pooler, device ...)
    tasks      sts, transfer, task names, scored:FILE, labelled:FILE, retrieval:FILE, docs-pairs:, mteb:NAME,
               comma-separated or as a list; by default sts with data, else docs-pairs:
    data       folder of the tasks in SentEval's layout, or "hub" (STS only)
    protocol   of transfer: full (published numbers) or fast
    split      of STS-B and SICK-R: test or dev; `regressor` also scores them with SentEval's regressor
    columns    text columns of your own files; `score` is their score or label column
    resamples  bootstrap resamples behind an interval, drawn with `seed`; 0 leaves the intervals out
    cells      show STS by every protocol; `subsets` shows each year's subsets; beside="paper" the published rows
    dimensions keep only the first numbers of each vector, scaled to length one; several sizes (384,192,96,48) are all
               scored: the result is the largest one's, and its `by_dimensions` holds every one's
    output     also write the results to a .json (for `compare`), .csv, .parquet, .jsonl, .md or .tex file, or several
    cache      keep vectors on disk and read them from there; False does neither
    """
    if resamples < 0:
        raise ConfigError(f"resamples is {resamples}; expected 0 (no intervals) or more.")
    if beside not in (None, PAPER):
        raise ConfigError(f"--beside expects 'paper', got {beside!r}.")
    targets = [output] if isinstance(output, (str, Path)) else list(output)
    for target in targets:
        check_output(Path(target))
    settings = Settings(data, protocol, split, regressor, columns, score, resamples, seed)
    sizes = list_sizes(dimensions)
    jobs = make_jobs(tasks, settings)
    opened = _open(model, log, loading)
    started = time.perf_counter()
    texts = list(dict.fromkeys(text for job in jobs for text in job.texts))
    log(f"{opened.name}: {len(texts):,} distinct texts ...")
    with progress("encoding", total=len(texts)) as advance:
        kept = cache if isinstance(cache, Cache) else Cache() if cache else None
        encode = encode_once(opened, texts, cache=kept, advance=advance)
    log(f"encoded in {time.perf_counter() - started:.1f} s")

    def results_of(size: int | None) -> Results:
        """Score every task with vectors of this size."""
        used, its = shortened_model(opened, size), lambda texts: shorten(encode(texts), size)
        scored = [_timed(job, its, used, log) for job in jobs]
        described = describe_options(tasks, settings, {**loading, **used.computing})
        finished = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return Results(
            model=used.name,
            computing=used.computing,
            fingerprint=used.fingerprint,
            tasks=scored,
            averages=average_scores(scored),
            resamples=resamples,
            seed=seed,
            seconds=time.perf_counter() - started,
            provenance=provenance(options=described) | {"finished": finished},
            cells=cells,
            subsets=subsets,
            beside=beside,
        )

    if sizes and texts:
        check_sizes(sizes, opened, whole=encode(texts[:1]).shape[1])
    several = {size: results_of(size) for size in sizes}
    results = next(iter(several.values())) if several else results_of(None)
    if len(several) > 1:
        results = dataclasses.replace(results, by_dimensions=several)
    for target in targets:
        results.save(target)
    return results


def task_texts(
    tasks: str | Sequence[str] | None = None,
    *,
    data: str | Path | None = None,
    split: str = "test",
    regressor: bool = False,
    columns: str | Sequence[str] | None = None,
    score: str | None = None,
    output: str | Path | None = None,
) -> list[str]:
    """Return the distinct texts of tasks, to be encoded elsewhere; with `output`, write them there, one per line."""
    if output is not None:
        check_writable(output)
    settings = Settings(data=data, split=split, regressor=regressor, columns=columns, score=score)
    texts = list(dict.fromkeys(text for job in make_jobs(tasks, settings) for text in job.texts if text))
    if output is not None:
        with writing(output) as aside:
            aside.write_text("".join(f"{' '.join(text.split())}\n" for text in texts), encoding="utf-8")
    return texts


def read_settings(options: Mapping[str, Any]) -> Settings:
    """Return the settings that options of `evaluate` describe."""
    names = {field.name for field in dataclasses.fields(Settings)}
    return Settings(**{name: value for name, value in options.items() if name in names})


def make_jobs(tasks: Tasks, settings: Settings) -> list[Job]:
    """Read the data of the named tasks, so that a bad file is found before anything is encoded."""
    if tasks and all(isinstance(task, Job) for task in tasks):
        return list(tasks)  # type: ignore[arg-type]
    jobs: list[Job] = []
    for name in _names(tasks, settings.data):
        kind, _, place = name.partition(":")
        if kind in KINDS and ":" in name:
            jobs.append(_user_job(name, settings))
        elif kind == "mteb" and place:
            jobs.append(_mteb_job(name, place))
        else:
            jobs += [_task_job(task, settings) for task in choose(name)]
    return list({job.name: job for job in jobs}.values())


def split_names(tasks: str) -> list[str]:
    """Split at commas, but keep `docs-pairs:numpy,scipy` whole, and a file whose name has a comma."""
    kind, _, place = tasks.partition(":")
    if kind in KINDS and is_file(place):
        return [tasks]
    names: list[str] = []
    for name in filter(None, (part.strip() for part in tasks.split(","))):
        if names and names[-1].startswith(("docs-pairs:", "docs:")) and ":" not in name and name not in TASKS:
            names[-1] += f",{name}"
        else:
            names.append(name)
    return names or [""]


def describe_options(tasks: Tasks, settings: Settings, loading: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that shape the scores, for a result's provenance."""
    encoder = {"pooler": None, "max_tokens": None, "dimensions": None, "precision": "fp32", "runtime": "torch"}
    shaping = ("data", "protocol", "split", "regressor", "columns", "score", "resamples")
    return {
        **{name: loading.get(name, default) for name, default in encoder.items()},
        "tasks": ",".join(_names(tasks, settings.data)),
        **{name: getattr(settings, name) for name in shaping},
    }


def _names(tasks: Tasks, data: str | Path | None) -> list[str]:
    if isinstance(tasks, str):
        return split_names(tasks)
    if not tasks:
        return ["sts" if data else "docs-pairs:"]
    given = [task.name if isinstance(task, Job) else task for task in tasks]
    return [name for each in given for name in split_names(each)]


def _open(model: Any, log: Log, loading: Mapping[str, Any]) -> Model:
    """Open a model by name, or take what can already encode; options that load one are for names only."""
    check_loading(loading, evaluate)
    if isinstance(model, (str, Path)):
        log(f"loading {model} ...")
    return open_model(model, **loading)


def _timed(job: Job, encode: Encode, model: Model, log: Log) -> TaskResult:
    started = time.perf_counter()
    result = job.run(encode, model)
    seconds = time.perf_counter() - started
    log(f"{job.name}: {result.scores[0].metric} {result.scores[0].value:.2f} in {seconds:.1f} s")
    return dataclasses.replace(result, seconds=seconds)


def _mteb_job(name: str, task: str) -> Job:
    return Job(name, (), lambda encode, model: run_mteb(model, task))


def _task_job(task: Task, settings: Settings) -> Job:
    TRANSFER[settings.protocol]  # a wrong name shows now, not after the encoding
    data = _read(task, settings)
    if settings.max_rows is not None:
        data = data._replace(parts={name: _spread(rows, settings.max_rows) for name, rows in data.parts.items()})
    texts = [text for rows in data.parts.values() for row in rows.texts for text in row]
    score = _score_sts if task.kind == "sts" else _score_transfer

    def run(encode: Encode, model: Model) -> TaskResult:
        result = score(encode, data, settings)
        return dataclasses.replace(result, files=data.sha256, licence=task.licence, citation=task.citation)

    return Job(task.name, texts, run)


def _read(task: Task, settings: Settings) -> Data:
    if settings.data is None:
        raise ConfigError(f"{task.name} needs data: name its folder with --data (SentEval's layout), or 'hub'.")
    if str(settings.data) == HUB:
        return read_hub_task(task, split=settings.split)
    if task.kind == "transfer" or task.protocol == "subsets":
        return read_task(task, settings.data)
    if settings.split not in {part.name for part in task.parts}:
        raise ConfigError(f"{task.name} has no split {settings.split!r}: its splits are train, dev and test.")
    parts = ("train", "dev", "test") if settings.regressor else (settings.split,)
    return read_task(task, settings.data, parts=parts)


def _spread(rows: Rows, at_most: int) -> Rows:
    """Keep at most this many rows, evenly spread."""
    count = len(rows.targets)
    if count <= at_most:
        return rows
    places = [place * count // at_most for place in range(at_most)]
    return Rows([rows.texts[i] for i in places], [rows.targets[i] for i in places])


def _result(
    name: str, items: Mapping[str, Answers], settings: Settings, *, protocols: Mapping[str, str], over: str, **more: Any
) -> TaskResult:
    """Score each kind of items by its protocol, every score with its interval."""
    # The task's name picks the draws, so that two models share them.
    draw: dict[str, Any] = {"resamples": settings.resamples, "seed": settings.seed, "name": name}
    samples = {kind: entry.samples(**draw) for kind, entry in items.items()}
    scores = []
    for kind, entry in items.items():
        sizes = dict(zip(entry.subsets, entry.sizes, strict=True)) if isinstance(entry, Pairs) else {}
        for key, value in entry.values().items():
            place, _, metric = key.rpartition(" ")  # of two words, the first says what it is computed over
            low, high = interval(SCALE * samples[kind][key])
            score = Score(metric=metric, over=place or over, protocol=protocols[kind], value=SCALE * value)
            scores.append(dataclasses.replace(score, low=low, high=high, n=sizes.get(place, sum(entry.sizes))))
    return TaskResult(task=name, scores=scores, items=items, samples=samples, **more)


def _score_sts(encode: Encode, data: Data, settings: Settings) -> TaskResult:
    task, subsets = data.task, data.task.protocol == "subsets"
    items = score_sts(encode, data, split=settings.split, regressor=settings.regressor)
    protocols = {"cosine": "no regressor", "regressor": "regressor"}
    split = "test" if subsets else settings.split
    result = _result(task.name, items, settings, protocols=protocols, over="all", kind="sts", split=split)
    scores = result.scores
    if subsets and len(data.parts) < len(task.parts):  # the hub's copies do not mark the subsets
        scores = [score for score in scores if score.over == "all"]
    constant = sorted({score.over for score in scores if math.isnan(score.value)})
    note = "every pair there got the same score, so there is nothing to correlate"
    notes = [f"no correlation for {', '.join(constant)}: {note}"] if constant else []
    return dataclasses.replace(result, scores=scores, notes=notes)


def _score_transfer(encode: Encode, data: Data, settings: Settings) -> TaskResult:
    name, protocol = data.task.name, settings.protocol
    found = score_transfer(encode, data, protocol=TRANSFER[protocol])
    shape = {"over": "test", "kind": "transfer", "split": "test"}
    result = _result(name, {"test": found.items}, settings, protocols={"test": protocol}, **shape)
    accuracy, *others = result.scores
    # SentEval's own number: the mean of the folds' accuracies, each rounded.
    accuracy = dataclasses.replace(accuracy, value=found.test_accuracy)
    dev = Score(metric="accuracy", over="dev", protocol=protocol, value=found.dev_accuracy)
    if name != "MRPC":  # the one task whose F1 is published
        others = []
    chosen = ", ".join(f"{value:g}" for value in dict.fromkeys(found.l2))
    return dataclasses.replace(result, scores=[accuracy, *others, dev], notes=[f"L2 chosen on dev: {chosen}"])


def _user_job(name: str, settings: Settings) -> Job:
    """Read KIND:PLACE; columns and score choose a file's columns where their names do not say which they are."""
    kind, _, place = name.partition(":")
    if kind in ("docs-pairs", "docs"):
        pairs = held_out_pairs([package for package in place.split(",") if package])
        if not pairs:
            raise InputError(f"{name}: no pairs of these packages are held out. Name more or larger packages.")
        return _retrieval_job(name, pool_pairs(pairs[:MOST_CANDIDATES]), {name: None}, settings)
    if kind == "retrieval" and is_folder(place):
        return _retrieval_job(name, read_folder(Path(place)), {place: None}, settings)
    if kind == "labelled" and (classes := read_classes(place, settings.columns, settings.score)) is not None:
        return _classes_job(name, classes, {place: classes.fingerprint}, settings)
    corpus = open_corpus(place, columns=settings.columns, score=settings.score, pairs=True)
    if corpus.width != 2:
        raise InputError(f"{place}: {kind} expects two text columns, got {corpus.width}. Choose them with --columns.")
    files = {place: corpus.fingerprint()}
    if kind == "retrieval":
        return _retrieval_job(name, pool_pairs([(row.texts[0], row.texts[1]) for row in corpus]), files, settings)
    if not corpus.scored:
        advice = "expects a column of scores. Choose it with --score."
        if kind == "labelled":
            advice = "expects two texts and a label of 0 or 1, or one text and its class. "
            advice += "Choose the texts with --columns and the label or class with --score."
        raise InputError(f"{corpus.source}: {kind} {advice}")
    rows = list(corpus)
    for row in rows if kind == "labelled" else ():
        if row.score not in (0, 1):
            raise InputError(f"{row.where}: expected a label of 0 or 1, got {row.score:g}.")
    gold = np.array([row.score for row in rows], dtype=np.float64)

    def score(encode: Encode) -> Answers:
        scores = pair_cosines(encode, [row.texts for row in rows])
        return Labelled(scores, gold.astype(np.int64)) if kind == "labelled" else Pairs({"all": (scores, gold)})

    return _own_job(name, [text for row in rows for text in row.texts], score, files, settings)


def _classes_job(name: str, asked: ClassSet, files: Mapping[str, str | None], settings: Settings) -> Job:
    protocol = TRANSFER[settings.protocol]

    def run(encode: Encode, model: Model) -> TaskResult:
        items = {NEAREST: nearest_neighbours(encode, asked)}
        if (trained := regression(encode, asked, protocol)) is not None:
            items[LOGISTIC] = trained.items
        protocols = {NEAREST: NEAREST, LOGISTIC: f"{LOGISTIC}, {settings.protocol}"}
        result = _result(name, items, settings, protocols=protocols, over="all", kind="classes", split="all")
        scores = [score for score in result.scores if score.metric == "accuracy"]
        if trained is not None:  # SentEval's own number: the mean of the folds' accuracies, each rounded
            scores[1] = dataclasses.replace(scores[1], value=trained.test_accuracy)
        return dataclasses.replace(result, scores=scores, notes=asked.notes(), files=files)

    return Job(name, asked.texts, run)


def _retrieval_job(name: str, asked: RetrievalSet, files: Mapping[str, str | None], settings: Settings) -> Job:
    def score(encode: Encode) -> Answers:
        return Queries(asked.measure(encode), asked.digest())

    return _own_job(name, [*asked.queries, *asked.documents], score, files, settings)


def _own_job(
    name: str, texts: list[str], score: Callable[[Encode], Answers], files: Mapping[str, str | None], settings: Settings
) -> Job:
    def run(encode: Encode, model: Model) -> TaskResult:
        items = score(encode)
        kind, over = ("retrieval", "queries") if isinstance(items, Queries) else (name.partition(":")[0], "all")
        result = _result(name, {"items": items}, settings, protocols={"items": kind}, over=over, kind=kind, split="all")
        # There is one set of pairs: a mean over its subsets would be the same number again.
        scores = [score for score in result.scores if score.over not in ("mean", "wmean")]
        scores.sort(key=lambda score: score.metric != items.headline.split()[-1])
        cut = [items.threshold()] if isinstance(items, Labelled) else []
        notes = [f"best threshold, chosen on these pairs: cosine >= {threshold:.4f}" for threshold in cut]
        return dataclasses.replace(result, scores=scores, notes=notes, files=files)

    return Job(name, texts, run)
