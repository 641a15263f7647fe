"""What is measured of a subject: each measure returns numbers by column, and what else it found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twinpass.evaluation.evaluate import evaluate
from twinpass.evaluation.protocols import CELLS, DEFAULT_CELL, PAPERS, Cell
from twinpass.evaluation.results import TaskResult, cell_score
from twinpass.recipes.lab import Lab
from twinpass.recipes.subjects import Baseline, Fitted, Subject, Trained
from twinpass.registry import Registry

WMEAN = Cell("wmean", "spearman", False)


@dataclass(frozen=True)
class Found:
    """Numbers by column, and anything else that a figure or a reader wants."""

    values: dict[str, float]
    more: dict[str, Any] = field(default_factory=dict)


Measure = Callable[[Lab, Subject, int], Found]
MEASURES: Registry[Measure] = Registry("measure")


@MEASURES.register("stsb-dev")
def stsb_dev(lab: Lab, subject: Subject, seed: int) -> Found:
    """Spearman x 100 on STS-B's development set, with alignment and uniformity there."""
    scores = lab.dev(lab.model(subject, seed, texts=lab.dev.texts).encode)
    return Found({"stsb": scores["score"]}, more=scores)


@MEASURES.register("sts")
def sts(lab: Lab, subject: Subject, seed: int) -> Found:
    """The seven STS tasks and their average, Spearman x 100, "all"."""
    return Found(_sts_values(_judge(lab, subject, seed, "sts"), DEFAULT_CELL))


@MEASURES.register("sts-wmean")
def sts_wmean(lab: Lab, subject: Subject, seed: int) -> Found:
    """The seven STS tasks and their average, Spearman x 100, subsets weighted by size."""
    return Found(_sts_values(_judge(lab, subject, seed, "sts"), WMEAN))


@MEASURES.register("transfer")
def transfer(lab: Lab, subject: Subject, seed: int) -> Found:
    """The seven transfer tasks and their average, test accuracy in per cent."""
    results = _judge(lab, subject, seed, "transfer")
    return Found(_with_average({_column(r.task): r.scores[0].value for r in results}))


@MEASURES.register("dev")
def dev(lab: Lab, subject: Subject, seed: int) -> Found:
    """STS-B's development set, and the mean of the seven transfer tasks' development accuracies."""
    results = _judge(lab, subject, seed, "transfer")
    accuracies = [s.value for r in results for s in r.scores if s.over == "dev" and s.metric == "accuracy"]
    found = stsb_dev(lab, subject, seed)
    return Found(found.values | {"transfer": float(np.mean(accuracies))}, more=found.more)


@MEASURES.register("protocols")
def protocols(lab: Lab, subject: Subject, seed: int) -> Found:
    """Avg. STS of one model by the protocol of every paper of Table B.1."""
    results = _judge(lab, subject, seed, "sts", regressor=True)
    averages = {cell: _sts_values(results, cell)["avg"] for cell in CELLS}
    return Found({f"{paper}, {cell.name}": averages[cell] for paper, cells in PAPERS.items() for cell in cells})


@MEASURES.register("trajectory")
def trajectory(lab: Lab, subject: Subject, seed: int) -> Found:
    """Alignment and uniformity on STS-B's development set as a run goes on; the last point as numbers."""
    from twinpass.analysis.training_report import read_trajectory

    if not isinstance(subject, Trained):
        raise TypeError("only a training has a path")
    path = read_trajectory(lab.folder(subject, seed)).geometry
    last = {"alignment": path[-1][1], "uniformity": path[-1][2]}
    return Found(last, more={"path": path})


@MEASURES.register("geometry")
def geometry(lab: Lab, subject: Subject, seed: int) -> Found:
    """Alignment and uniformity on STS-B's development set, and Avg. STS."""
    found = stsb_dev(lab, subject, seed)
    average = sts(lab, subject, seed).values["avg"]
    return Found({"alignment": found.more["alignment"], "uniformity": found.more["uniformity"], "avg": average})


@MEASURES.register("spectrum")
def spectrum(lab: Lab, subject: Subject, seed: int) -> Found:
    """Singular values of STS-B's sentence vectors, the largest scaled to 1, and how many hold half of their sum."""
    from twinpass.analysis.spectrum import measure_spectrum

    texts = lab.dev.texts
    found = measure_spectrum(np.asarray(lab.model(subject, seed, texts=texts).encode(texts)))
    values = found.normalised
    half = int(np.searchsorted(np.cumsum(values), values.sum() / 2)) + 1
    return Found(
        {"tenth": float(values[min(9, len(values) - 1)]), "half": float(half)}, more={"curve": values.tolist()}
    )


@MEASURES.register("densities")
def densities(lab: Lab, subject: Subject, seed: int) -> Found:
    """Cosines of STS-B's pairs in five groups of gold score: the median of each group."""
    from twinpass.analysis.density import measure_densities

    cosines = lab.dev.cosines(lab.model(subject, seed, texts=lab.dev.texts).encode)
    groups = measure_densities(cosines, np.asarray(lab.dev.gold))
    medians = {f"group{n}": group.quartiles[1] for n, group in enumerate(groups) if group.quartiles is not None}
    return Found(medians, more={"cosines": cosines.tolist(), "gold": lab.dev.gold})


@MEASURES.register("retrieval")
def retrieval(lab: Lab, subject: Subject, seed: int) -> Found:
    """The three captions nearest to each of Table 8's queries, and how many of them the paper's models found too."""
    from twinpass.encoder.vector_cache import encode_once
    from twinpass.recipes.tables.table_8 import PAPER_ANSWERS, QUERIES
    from twinpass.search.engines.exact import nearest
    from twinpass.text.rows import text_key

    # The captions are released in tokens ("the yard ."), the paper prints them as one writes ("the yard.").
    queries = {text_key(query) for query in QUERIES}
    captions = [text for text in lab.captions() if text_key(text) not in queries]
    model = lab.model(subject, seed, texts=captions)
    encode = encode_once(model, [*QUERIES, *captions], cache=lab.cache)
    scores, rows = nearest(encode(list(QUERIES)), encode(captions), k=3)
    found = {
        query: [{"text": captions[row], "cosine": float(score)} for score, row in zip(*both, strict=True)]
        for query, *both in zip(QUERIES, scores, rows, strict=True)
    }
    row_of_the_paper = "sbert" if isinstance(subject, Baseline) else "simcse"
    theirs = {query: {*map(text_key, answers[row_of_the_paper])} for query, answers in PAPER_ANSWERS.items()}
    shared = sum(len(theirs[query] & {text_key(each["text"]) for each in found[query]}) for query in QUERIES)
    return Found({"shared": float(shared)}, more=found)


@MEASURES.register("grid")
def grid(lab: Lab, subject: Subject, seed: int) -> Found:
    """Appendix A's search: the batch size and learning rate that score best on STS-B's development set."""
    from twinpass.recipes.tables.table_a1 import BATCH_SIZES, LEARNING_RATES

    if not isinstance(subject, Trained):
        raise TypeError("only a training has a batch size")
    scores = {}
    for batch in BATCH_SIZES:
        for rate in LEARNING_RATES:
            run = subject.run.replace(batch_size=batch, learning_rate=rate, track_geometry=None)
            tried = Trained(run=run, corpus=subject.corpus, keeps_batch=True)
            scores[batch, rate] = stsb_dev(lab, tried, seed).values["stsb"]
            lab.log(f"  batch {batch}, rate {rate:g}: {scores[batch, rate]:.2f}")
    batch, rate = max(scores, key=scores.__getitem__)
    table = [{"batch_size": b, "learning_rate": r, "stsb": score} for (b, r), score in scores.items()]
    return Found({"batch_size": float(batch), "learning_rate": rate}, more={"grid": table})


def _judge(lab: Lab, subject: Subject, seed: int, tasks: str, *, regressor: bool = False) -> list[TaskResult]:
    """Judge task by task, with one model for all; but a layer on target is another one for every task."""
    on_target = isinstance(subject, Fitted) and subject.on == "target"
    shared = None if on_target else lab.model(subject, seed)
    # A task's sentences are those of all its splits, which a regressor reads too; only some of them are scored.
    sentences = {job.name: job.texts for job in lab.jobs(tasks, regressor=True)} if on_target else {}
    results = []
    for job in lab.jobs(tasks, regressor=regressor):
        model = shared or lab.model(subject, seed, texts=list(sentences[job.name]))
        results += evaluate(model, [job], cache=lab.cache).tasks
    return results


def _sts_values(results: list[TaskResult], cell: Cell) -> dict[str, float]:
    scores = {_column(result.task): cell_score(result, cell) for result in results}
    return _with_average({name: score.value for name, score in scores.items() if score is not None})


def _with_average(values: dict[str, float]) -> dict[str, float]:
    """Add Avg., the mean of values each rounded to two decimals."""
    return values | {"avg": float(np.mean([round(value, 2) for value in values.values()]))}


def _column(task: str) -> str:
    return task.lower().replace("-", "")
