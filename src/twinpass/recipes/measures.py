"""What is measured of a model: each measure returns numbers by column, and what else it found."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from twinpass.encoder.any_model import Encode
from twinpass.encoder.runtime import choose_device
from twinpass.encoder.vector_cache import encode_once
from twinpass.errors import ConfigError, OutOfMemory, TrainingError
from twinpass.evaluation.evaluate import evaluate
from twinpass.evaluation.protocols import CELLS, DEFAULT_CELL, PAPERS, Cell
from twinpass.evaluation.results import TaskResult, cell_score
from twinpass.provenance import provenance
from twinpass.recipes.lab import Lab
from twinpass.recipes.makers import read_captions
from twinpass.recipes.model_specs import ModelSpec, PairText
from twinpass.recipes.store import describe, key_of
from twinpass.registry import Registry
from twinpass.text.corpus import open_corpus
from twinpass.training.processes import explaining_memory, memory_of

# Raised when a measure finds other numbers of the same model: kept scores are then measured again.
PROTOCOL, PROTOCOLS = 2, {"retrieval": 3}  # of most measures, and of those that have changed since
WMEAN = Cell("wmean", "spearman", False)


@dataclass(frozen=True)
class Found:
    """Numbers by column, and whatever else a figure or a reader needs."""

    values: dict[str, float]
    more: dict[str, Any] = field(default_factory=dict)
    lasting: bool = True  # whether to keep it; what only this machine is too small for is tried again


Measure = Callable[[Lab, ModelSpec, int], Found]
MEASURES: Registry[Measure] = Registry("measure")
# The evaluation tasks that a measure reads; a kept score is that of these files' content. The others read STS-B.
READS = {
    **dict.fromkeys(("sts", "sts-wmean", "protocols", "geometry"), "sts"),
    "transfer": "transfer",
    "dev": "STS-B,transfer",
    "retrieval": "flickr",
    "overlap": "",
}


def measure_once(lab: Lab, name: str, model: ModelSpec, seed: int) -> Found:
    """Measure a model, or find that it was measured before."""
    scale, subject = lab.scale, model.key(lab, seed)
    judged: dict[str, Any] = {"rows": scale.evaluated_rows, "captions": scale.captions}
    judged["data"] = lab.evaluation_content(READS.get(name, "STS-B"))
    key = key_of({"subject": subject, "measure": name, "protocol": PROTOCOLS.get(name, PROTOCOL)} | judged)
    # The settings of a search are shared, one by one; every other score is one process's work.
    with contextlib.nullcontext() if name == "grid" else lab.store.locked(key):
        known = lab.store.read_score(key)
        if known is not None:
            # JSON has null for NaN.
            values = {name: math.nan if value is None else value for name, value in known["values"].items()}
            return Found(values, known["more"])
        with explaining_memory(lambda: f"{memory_of(choose_device(lab.device))} ran out. Try another machine."):
            found = MEASURES[name](lab, model, seed)
        if found.lasting:
            facts = provenance(options={"model": describe(model), "measure": name, "seed": seed})
            lab.store.write_score(key, facts | asdict(found))
    return found


@MEASURES.register("stsb-dev")
def stsb_dev(lab: Lab, model: ModelSpec, seed: int) -> Found:
    """Spearman x 100 on STS-B's development set, with alignment and uniformity there."""
    scores = lab.dev(model.open(lab, seed, texts=lab.dev.texts).encode)
    return Found({"stsb": scores["score"]}, more={**scores, **_dev_curve(lab, model, seed)})


def _dev_curve(lab: Lab, model: ModelSpec, seed: int) -> dict[str, Any]:
    """Return the dev scores of a training, step by step, if it was evaluated as it trained."""
    from twinpass.log import has_log, read_log

    if not model.trains or not has_log(folder := model.source(lab, seed)):
        return {}
    curve = [[step, scores["score"]] for step, scores in read_log(folder).dev if "score" in scores]
    return {"curve": curve} if curve else {}


@MEASURES.register("sts")
def sts(lab: Lab, model: ModelSpec, seed: int) -> Found:
    """The seven STS tasks and their average, Spearman x 100, "all"."""
    return Found(_sts_values(_evaluate(lab, model, seed, "sts"), DEFAULT_CELL))


@MEASURES.register("sts-wmean")
def sts_wmean(lab: Lab, model: ModelSpec, seed: int) -> Found:
    """The seven STS tasks and their average, Spearman x 100, subsets weighted by size."""
    return Found(_sts_values(_evaluate(lab, model, seed, "sts"), WMEAN))


@MEASURES.register("transfer")
def transfer(lab: Lab, model: ModelSpec, seed: int) -> Found:
    """The seven transfer tasks and their average, test accuracy in per cent."""
    results = _evaluate(lab, model, seed, "transfer")
    return Found(_with_average({_column(r.task): r.scores[0].value for r in results}))


@MEASURES.register("dev")
def dev(lab: Lab, model: ModelSpec, seed: int) -> Found:
    """STS-B's development set, and the mean of the seven transfer tasks' development accuracies."""
    results = _evaluate(lab, model, seed, "transfer")
    accuracies = [s.value for r in results for s in r.scores if s.over == "dev" and s.metric == "accuracy"]
    found = stsb_dev(lab, model, seed)
    return Found(found.values | {"transfer": float(np.mean(accuracies))}, more=found.more)


@MEASURES.register("protocols")
def protocols(lab: Lab, model: ModelSpec, seed: int) -> Found:
    """Avg. STS of one model by the protocol of every paper of Table B.1."""
    results = _evaluate(lab, model, seed, "sts", regressor=True)
    averages = {cell: _sts_values(results, cell)["avg"] for cell in CELLS}
    return Found({f"{paper}, {cell.name}": averages[cell] for paper, cells in PAPERS.items() for cell in cells})


@MEASURES.register("trajectory")
def trajectory(lab: Lab, model: ModelSpec, seed: int) -> Found:
    """Alignment and uniformity on STS-B, the splits that the scale tracks, as a run trains; the last as numbers."""
    from twinpass.analysis.training_report import read_trajectory

    path = read_trajectory(model.source(lab, seed)).geometry
    last = {"alignment": path[-1][1], "uniformity": path[-1][2]}
    return Found(last, more={"path": path})


@MEASURES.register("geometry")
def geometry(lab: Lab, model: ModelSpec, seed: int) -> Found:
    """Alignment and uniformity on all of STS-B, and Avg. STS."""
    found = lab.stsb.geometry(_on_stsb(lab, model, seed))
    average = sts(lab, model, seed).values["avg"]
    return Found({"alignment": found["alignment"], "uniformity": found["uniformity"], "avg": average})


def _on_stsb(lab: Lab, model: ModelSpec, seed: int) -> Encode:
    """Return a model that has encoded all of STS-B once, for every figure."""
    opened = model.open(lab, seed, texts=lab.stsb.texts)
    return encode_once(opened, lab.stsb.texts, cache=lab.cache)


@MEASURES.register("spectrum")
def spectrum(lab: Lab, model: ModelSpec, seed: int) -> Found:
    """Singular values of STS-B's sentence vectors, the largest scaled to 1, and how many hold half of their sum."""
    from twinpass.analysis.measure import measure_spectrum

    found = measure_spectrum(np.asarray(_on_stsb(lab, model, seed)(lab.stsb.texts)))
    values = found.normalised
    half = int(np.searchsorted(np.cumsum(values), values.sum() / 2)) + 1
    return Found(
        {"tenth": float(values[min(9, len(values) - 1)]), "half": float(half)}, more={"curve": values.tolist()}
    )


@MEASURES.register("densities")
def densities(lab: Lab, model: ModelSpec, seed: int) -> Found:
    """Cosines of STS-B's pairs in five groups of gold score: the median of each group."""
    from twinpass.analysis.measure import measure_densities

    cosines = lab.stsb.cosines(_on_stsb(lab, model, seed))
    groups = measure_densities(cosines, np.asarray(lab.stsb.gold))
    medians = {f"group{n}": group.quartiles[1] for n, group in enumerate(groups) if group.quartiles is not None}
    return Found(medians, more={"cosines": cosines.tolist(), "gold": lab.stsb.gold})


@MEASURES.register("retrieval")
def retrieval(lab: Lab, model: ModelSpec, seed: int) -> Found:
    """The three captions nearest to each of Table 8's queries, and how many of them the paper's models found too."""
    from twinpass.recipes.tables.table_8 import PAPER_ANSWERS, QUERIES, caption_key
    from twinpass.search.engines.exact import nearest

    queries = set(map(caption_key, QUERIES))
    keys = {text: key for text, key in captions(lab).items() if key not in queries}
    texts = list(keys)
    opened = model.open(lab, seed, texts=texts)
    encode = encode_once(opened, [*QUERIES, *texts], cache=lab.cache)
    scores, rows = nearest(encode(list(QUERIES)), encode(texts), k=3)
    found = {
        query: [{"text": texts[row], "cosine": float(score)} for score, row in zip(*both, strict=True)]
        for query, *both in zip(QUERIES, scores, rows, strict=True)
    }
    trained = getattr(model, "stands_for", model)
    method = getattr(trained, "baseline", "simcse")  # the paper's answers are SBERT's and SimCSE's
    theirs = {query: {*map(caption_key, answers[method])} for query, answers in PAPER_ANSWERS.items()}
    shared = sum(len(theirs[query] & {keys[each["text"]] for each in found[query]}) for query in QUERIES)
    there = sum(len(answers & {*keys.values()}) for answers in theirs.values())
    return Found({"shared": float(shared)}, more={"captions": len(texts), "there": there, "found": found})


def captions(lab: Lab) -> dict[str, bytes]:
    """Return the distinct captions that Table 8 searches, each with what equal captions share.

    Those that the paper's models found come first into a smaller pool; the report says how many there are.
    """
    from twinpass.recipes.tables.table_8 import PAPER_ANSWERS, caption_key

    (path,) = lab.corpora.find("flickr")
    keys = {text: caption_key(text) for image in read_captions(path).values() for text in image}
    if lab.scale.captions is None:
        return keys
    theirs = {caption_key(text) for rows in PAPER_ANSWERS.values() for answers in rows.values() for text in answers}
    kept = sorted(keys, key=lambda text: keys[text] not in theirs)[: lab.scale.captions]
    return {text: keys[text] for text in kept}


@MEASURES.register("overlap")
def overlap(lab: Lab, model: ModelSpec, seed: int) -> Found:
    """Section 4: the mean F1 between the bags of words of a pair, in per cent."""
    from twinpass.training.data import lexical_overlap

    if not isinstance(model, PairText):
        raise ConfigError(f"lexical overlap is measured of pairs of text, not of {type(model).__name__}.")
    pairs = open_corpus(lab.corpora.prepare(model.corpus), columns=("sent0", "sent1"))
    return Found({"overlap": 100 * lexical_overlap(row.texts for row in pairs)})


@MEASURES.register("grid")
def grid(lab: Lab, model: ModelSpec, seed: int) -> Found:
    """Appendix A's search: STS-B's development set for every batch size and learning rate; the best for this seed."""
    from twinpass.recipes.tables.table_a1 import GRID, setting_name
    from twinpass.training.sweep import combinations

    settings = combinations(GRID)
    scores: dict[int, float] = {}
    failed: dict[int, TrainingError] = {}

    def score(place: int) -> None:
        values = settings[place]
        try:
            scores[place] = measure_once(lab, "stsb-dev", model.changed(**values), seed).values["stsb"]
            lab.log(f"  {setting_name(values)}: {scores[place]:.2f}")
        except TrainingError as error:  # it diverged, or is too large: the other settings are still worth trying
            scores[place], failed[place] = math.nan, error
            lab.log(f"  {setting_name(values)} failed: {error}")

    lab.store.share(range(len(settings)), score)
    # JSON keeps NaN as null.
    table = [
        values
        | {"stsb": None if math.isnan(scores[place]) else scores[place]}
        | ({"failed": str(failed[place])} if place in failed else {})
        for place, values in enumerate(settings)
    ]
    more = {"grid": table}
    too_large = any(isinstance(error, OutOfMemory) for error in failed.values())
    return Found(best_setting([more]), more, lasting=not too_large)


def best_setting(searches: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the setting that ranks first by its scores over the seeds of a search; NaN where every run failed."""
    from twinpass.recipes.tables.table_a1 import GRID
    from twinpass.training.sweep import finished, rank

    scores = scores_by_setting(searches)
    best = max(scores, key=lambda setting: rank(scores[setting]))
    if not finished(scores[best]):
        return dict.fromkeys(GRID, math.nan)
    return dict(zip(GRID, best, strict=True))


def scores_by_setting(searches: Sequence[dict[str, Any]]) -> dict[tuple[float, ...], list[float]]:
    """Return the scores over the seeds of a search by setting, in the order of GRID; NaN where a run failed."""
    from twinpass.recipes.tables.table_a1 import GRID

    scores: dict[tuple[float, ...], list[float]] = {}
    for tried in (tried for search in searches for tried in search["grid"]):
        setting = tuple(tried[name] for name in GRID)
        scores.setdefault(setting, []).append(math.nan if tried["stsb"] is None else tried["stsb"])
    return scores


def _evaluate(lab: Lab, model: ModelSpec, seed: int, tasks: str, *, regressor: bool = False) -> list[TaskResult]:
    """Evaluate task by task, with one model for all; but a layer on target is another one for every task."""
    on_target = model.fitted_to_target
    shared = None if on_target else model.open(lab, seed)
    # A task's sentences are those of all its splits, which a regressor reads too; only some of them are scored.
    sentences = {job.name: job.texts for job in lab.jobs(tasks, regressor=True)} if on_target else {}
    results = []
    for job in lab.jobs(tasks, regressor=regressor):
        opened = shared or model.open(lab, seed, texts=list(sentences[job.name]))
        results += evaluate(opened, [job], cache=lab.cache).tasks
    return results


def _sts_values(results: list[TaskResult], cell: Cell) -> dict[str, float]:
    scores = {_column(result.task): cell_score(result, cell) for result in results}
    return _with_average({name: score.value for name, score in scores.items() if score is not None})


def _with_average(values: dict[str, float]) -> dict[str, float]:
    """Add Avg., the mean of values each rounded to two decimals."""
    return values | {"avg": float(np.mean([round(value, 2) for value in values.values()]))}


def _column(task: str) -> str:
    return task.lower().replace("-", "")
