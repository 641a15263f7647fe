"""Train every combination of a grid of settings, and show which scores best on the dev set."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinpass.config import Run
from twinpass.display import Displayed, Grid, counted
from twinpass.errors import ConfigError, TrainingError, TwinpassError
from twinpass.files import sha256, write_json
from twinpass.log import Event
from twinpass.progress import Log, ignore
from twinpass.provenance import provenance
from twinpass.text.sources import input_files
from twinpass.training.sweep import FILE, PAGE, Tried, combinations, deviation, finished, mean, plan, rank, run_all
from twinpass.workflows.dev import is_built_in, open_dev
from twinpass.workflows.train import MadeFrom, made_from, train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from twinpass.analysis.drawing import Theme
    from twinpass.evaluation.dev import PairRetrieval, ScoredPairs
    from twinpass.log import OnEvent, Result

    Dev = ScoredPairs | PairRetrieval

LONGEST_LABEL = 24  # letters


@dataclass(frozen=True, repr=False)
class Sweep(Displayed):
    """What every setting scored, the best first."""

    grid: Mapping[str, Sequence[Any]]
    scores: Sequence[tuple[Mapping[str, Any], Sequence[float]]]  # of each setting, one per seed; NaN: it failed
    seeds: Sequence[int]
    before: float | None  # of the starting model; NaN if it gives every pair one cosine, None if the starts differ
    protocol: str  # what a score is
    best_model: Path
    interval: tuple[float, float]  # 95 %, of the best model over the dev set's rows; NaN if it has none
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def best(self) -> Mapping[str, Any]:
        """The setting with the highest mean score."""
        return self.scores[0][0]

    @property
    def best_score(self) -> float:
        """The score of the best model, that of the best setting's best seed."""
        return max(finished(self.scores[0][1]))

    def grids(self) -> list[Grid]:
        """Return the table of settings."""
        notes = [self.protocol, self._start(), f"best model: {self.best_model}, dev score {self.score_and_interval}"]
        if len(self.scores) > 1 and self._is_close():
            notes.append(
                "the first two settings differ by less than the deviation over their seeds: more --seeds would tell "
                "them apart"
            )
        rows = [[*map(str, values.values()), _mean(scores), self.by_seed(scores)] for values, scores in self.scores]
        return [Grid("settings, the best first", [*self.grid, "dev score", "by seed"], rows, notes=notes)]

    @property
    def score_and_interval(self) -> str:
        """The best model's score and interval, in words."""
        low, high = self.interval
        if math.isnan(low):
            return f"{self.best_score:.2f} (no interval)"
        return f"{self.best_score:.2f} (95 % interval over the dev set {low:.2f} to {high:.2f})"

    def by_seed(self, scores: Sequence[float]) -> str:
        """Return a setting's scores in words, each with its seed."""
        return ", ".join(f"{seed}: {_score(score)}" for seed, score in zip(self.seeds, scores, strict=True))

    def _start(self) -> str:
        if self.before is None:
            return "the starting models of the runs have different scores"
        if math.isnan(self.before):
            return "the starting model has no score: it gives every pair the same cosine"
        return f"the starting model scores {self.before:.2f}"

    def _is_close(self) -> bool:
        (_, first), (_, second) = self.scores[:2]
        spread = max(deviation(first) or 0.0, deviation(second) or 0.0)
        return mean(first) - mean(second) < spread

    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary per setting."""
        return [
            dict(values)
            | {"mean": mean(scores), "deviation": deviation(scores)}
            | {"seeds": list(self.seeds), "scores": list(scores)}
            for values, scores in self.scores
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return every score with the run's description and versions."""
        return dict(self.facts) | {
            "protocol": self.protocol,
            "before": self.before,
            "best": dict(self.best),
            "best_model": str(self.best_model),
            "interval": list(self.interval),
            "settings": self.records(),
        }


def sweep(
    run: Run,
    grid: Mapping[str, Sequence[Any]],
    *,
    seeds: int = 1,
    on_event: OnEvent | None = None,
    log: Log = ignore,
    command: str | None = None,
) -> Sweep:
    """Train a run with every combination of the grid's values, and compare them on its dev set.

    `grid` maps fields of a run to the values to try: {"learning_rate": [1e-5, 3e-5], "batch_size": [64, 128]}. The
    seeds are the run's and those after it. Each training has a folder of its own under `run.output`, which also gets
    sweep.html and sweep.json. The same call resumes a stopped sweep and finds finished runs again; several processes
    may share one output folder.
    """
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:  # each would wait for the others, which train something else
        raise ConfigError(
            "a sweep trains in one process, and this is one of several (WORLD_SIZE is "
            f"{os.environ['WORLD_SIZE']}). Start it without torchrun or accelerate launch; to share the work, start "
            "the same sweep several times."
        )
    if run.dev is None:
        raise ConfigError("a sweep needs a dev set to choose by: pass --dev.")
    trials = plan(run, grid, seeds=seeds)
    dev = open_dev(run.dev)
    log(f"dev: {dev.protocol}")
    ended = run_all(trials, partial(_train, dev=dev, on_event=on_event, log=log), log=log)
    # In the order of the plan, which decides between equal scores: every process shows the same.
    tried = sorted(ended, key=lambda one: one.trial.number)
    settings: dict[tuple[Any, ...], list[Tried]] = {}
    for each in tried:
        settings.setdefault(tuple(each.trial.values.values()), []).append(each)
    ranked = sorted(settings.values(), key=lambda of: rank([one.score for one in of]), reverse=True)
    best = max(ranked[0], key=lambda one: (not math.isnan(one.score), one.score))
    if math.isnan(best.score) or best.result is None:
        raise TrainingError(f"no run of the sweep has a dev score: all {len(tried)} failed. {_advice(tried, run)}")
    texts = [(each["source"], each["fingerprint"]) for each in best.result.provenance["data"]]
    dev_files = [(str(path), sha256(path)) for path in input_files(run.dev)]
    found = Sweep(
        grid={name: list(values) for name, values in grid.items()},
        scores=[(of[0].trial.values, [one.score for one in of]) for of in ranked],
        seeds=range(run.seed, run.seed + seeds),
        before=_common_start(tried),
        protocol=dev.protocol,
        best_model=best.trial.folder,
        interval=(math.nan, math.nan),
        facts=provenance(data=texts + dev_files, options={"run": run.changes, "grid": dict(grid), "seeds": seeds}),
    )
    write_json(Path(run.output) / FILE, found.to_dict())  # now: to find the interval, the model is loaded again
    found = replace(found, interval=_interval(best.trial.run, dev, log))
    write_json(Path(run.output) / FILE, found.to_dict())
    ingredients = made_from(best.result) + [("dev set", *each) for each in dev_files]
    _write_page(found, Path(run.output) / PAGE, ingredients, command)
    return found


def _train(run: Run, *, dev: Dev, on_event: OnEvent | None, log: Log) -> Result:
    """Train a run of the sweep; resume one that was stopped, and find the result of a finished one again."""
    trained = False

    def watch(event: Event) -> None:
        nonlocal trained
        trained = True
        if on_event is not None:
            on_event(event)

    # The lock on the trial keeps other sweeps out of this folder. If anything else fills it after it was found empty,
    # the run is refused, since a new run may replace nothing.
    again = any(Path(run.output).glob("*"))
    result = train(run, evaluate=dev, on_event=watch, resume=again, overwrite=again, report=False, log=log)
    if not trained:
        log(f"  already finished: {_score(result.best.get('score', math.nan))}")
    return result


def _advice(tried: Sequence[Tried], run: Run) -> str:
    """Say what to look at if no run has a score.

    A start without a score does not stop a sweep before it trains: a model that gives every text the same vector is a
    stationary point of losses over cosines, but a loss over tokens (mlm) repairs it.
    """
    starts = [one.before for one in tried if one.before is not None]
    if starts and all(map(math.isnan, starts)):
        return (
            f"The starting model scores NaN, too: it gives every pair of the dev set ({run.dev}) the same cosine. "
            "Check that it gives different texts different vectors: its weights, its tokenizer and its pooler."
        )
    return f"Try lower learning rates, and look at the dev set ({run.dev}) and at the messages of the runs."


def _common_start(tried: Sequence[Tried]) -> float | None:
    """Return the score of the starting model, None if the runs start from models with different scores."""
    starts = [one.before for one in tried if one.before is not None]
    return starts[0] if len({f"{start:.2f}" for start in starts}) == 1 else None


def _interval(best: Run, dev: Dev, log: Log) -> tuple[float, float]:
    """Return the 95 % interval of a trained model's dev score, NaN if the model cannot be loaded and scored again."""
    from twinpass.evaluation.dev import ScoredPairs
    from twinpass.evaluation.evaluate import evaluate

    source = str(best.dev)
    kind = "scored" if isinstance(dev, ScoredPairs) else "retrieval"
    task = source if is_built_in(source) else f"{kind}:{source}"
    try:
        trust: dict[str, Any] = {"trust_pickle": best.trust_pickle, "trust_remote_code": best.trust_remote_code}
        result = evaluate(best.output, [task], device=best.device, **trust)
    except TwinpassError as error:  # the runs and their table are worth more
        log(f"no interval of the best model: {error}")
        return math.nan, math.nan
    metric = "spearman" if kind == "scored" else "r@1"
    score = next((each for each in result.tasks[0].scores if each.metric == metric), result.tasks[0].scores[0])
    return score.low, score.high


def _score(score: float) -> str:
    return "failed" if math.isnan(score) else f"{score:.2f}"


def _mean(scores: Sequence[float]) -> str:
    spread = deviation(scores)
    return _score(mean(scores)) + ("" if spread is None else f" ± {spread:.2f}")


def _write_page(found: Sweep, target: Path, ingredients: list[MadeFrom], command: str | None) -> None:
    """Write the page: the table, a picture of the grid, and how the best model was made."""
    from twinpass.analysis.drawing import Drawing
    from twinpass.analysis.html import Column, Section, figures, notes, table, write_page
    from twinpass.analysis.report import provenance_section

    numbers = [Column("mean", decimals=2), Column("deviation", decimals=2), Column("by seed")]
    columns = [*(Column(name) for name in found.grid), *numbers]
    rows = [
        [
            *map(str, values.values()),
            mean(scores) if finished(scores) else "failed",
            deviation(scores),
            found.by_seed(scores),
        ]
        for values, scores in found.scores
    ]
    picture = Drawing(
        name="grid", title="Dev score of every setting", caption=_caption(found), draw=partial(_draw, found)
    )
    (shown,) = found.grids()
    sections = [
        Section("Settings", table("Settings, the best first", columns, rows) + notes(list(shown.notes))),
        Section("The grid", figures([picture])),
        provenance_section(command, fingerprints=ingredients, facts=found.facts),
    ]
    write_page(target, f"Sweep: {target.parent.name}", _lead(found), sections)


def _lead(found: Sweep) -> str:
    best = ", ".join(f"{name} {value}" for name, value in found.best.items())
    scores = found.scores[0][1]
    over = f"mean {_mean(scores)} over {counted(len(finished(scores)), 'seed')}; its best model has "
    return f"Best: {best}, {over if len(scores) > 1 else ''}dev score {found.score_and_interval}."


def _caption(found: Sweep) -> str:
    from twinpass.analysis.drawing import or_nan

    *others, across = found.grid
    lines = f", one line for each {' and '.join(others)}" if others else ""
    start = "" if math.isnan(or_nan(found.before)) else " The thin dotted line without marks is the starting model."
    bars = " Bars are the deviation over seeds." if len(found.seeds) > 1 else ""
    return f"{found.protocol}, over {across}{lines}.{start}{bars}"


def _ordered(values: Sequence[Any]) -> list[Any]:
    """Return numbers by size, and other values as they were given."""
    return sorted(values) if all(isinstance(value, (int, float)) for value in values) else list(values)


def _labels(values: Sequence[Any]) -> dict[Any, str]:
    """Return what the picture shows of each value: of a long one, a path say, the end, with a number if ends are alike.

    Labels must leave room for the picture.
    """
    texts = map(str, values)
    ends = [text if len(text) <= LONGEST_LABEL else f"...{text[3 - LONGEST_LABEL :]}" for text in texts]
    return {
        value: end if ends.count(end) == 1 else f"{number}: {end}"
        for number, (value, end) in enumerate(zip(values, ends, strict=True), start=1)
    }


def _draw(found: Sweep, theme: Theme) -> Figure:
    """Draw the score over the values of the last field, one line for each combination of the others."""
    from twinpass.analysis.drawing import legend, one_panel, or_nan
    from twinpass.analysis.figures import draw_settings

    figure, axes = one_panel(height=2.4)
    *others, across = found.grid
    labels = {name: _labels(values) for name, values in found.grid.items()}
    ticks = _ordered(found.grid[across])
    scores_of = {tuple(values.values()): scores for values, scores in found.scores if finished(scores)}
    lines = {}
    for values in combinations({name: _ordered(found.grid[name]) for name in others}):
        by_value = [scores_of.get((*values.values(), tick)) for tick in ticks]
        if any(by_value):
            lines[", ".join(f"{name} {labels[name][value]}" for name, value in values.items())] = {
                place: (mean(scores), deviation(scores) or 0.0) for place, scores in enumerate(by_value) if scores
            }
    draw_settings(axes, lines, [labels[across][tick] for tick in ticks], theme)
    if not math.isnan(start := or_nan(found.before)):
        axes.axhline(start, color=theme.ink, linewidth=0.8, linestyle=":")
    axes.set_xlabel(across)
    axes.set_ylabel("dev score (× 100)")
    if len(lines) > 1:
        legend(figure, axes)
    return figure
