"""Train every combination of a grid of settings, and show which scores best on the dev set."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinpass.config import Run
from twinpass.display import Displayed, Grid
from twinpass.errors import ConfigError, TrainingError
from twinpass.files import write_json
from twinpass.progress import Log, ignore
from twinpass.provenance import provenance
from twinpass.training.sweep import Tried, deviation, finished, mean, plan, run_all
from twinpass.workflows.dev import is_built_in
from twinpass.workflows.train import train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from twinpass.analysis.drawing import Theme
    from twinpass.log import OnEvent

PAGE, FILE = "sweep.html", "sweep.json"


@dataclass(frozen=True, repr=False)
class Sweep(Displayed):
    """What every setting scored, the best first."""

    grid: Mapping[str, Sequence[Any]]
    scores: Sequence[tuple[Mapping[str, Any], Sequence[float]]]  # of each setting, one per seed; NaN: it failed
    before: float  # of the starting model
    protocol: str  # what a score is
    best_model: Path
    interval: tuple[float, float]  # 95 %, of the best model over the dev set's rows
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def best(self) -> Mapping[str, Any]:
        """The setting with the highest mean score."""
        return self.scores[0][0]

    def grids(self) -> list[Grid]:
        """Return the table of settings."""
        notes = [
            self.protocol,
            f"the starting model scores {self.before:.2f}",
            f"best model: {self.best_model} (95 % interval over the dev set {self.interval[0]:.2f} to "
            f"{self.interval[1]:.2f})",
        ]
        if len(self.scores) > 1 and self._is_close():
            notes.append("the first two settings are closer than their seeds: more --seeds would tell them apart")
        rows = [
            [*map(str, values.values()), _mean(scores), ", ".join(map(_score, scores))]
            for values, scores in self.scores
        ]
        return [Grid("settings, the best first", [*self.grid, "dev score", "by seed"], rows, notes=notes)]

    def _is_close(self) -> bool:
        (_, first), (_, second) = self.scores[:2]
        spread = max(deviation(first) or 0.0, deviation(second) or 0.0)
        return mean(first) - mean(second) < spread

    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary per setting."""
        return [
            dict(values) | {"mean": mean(scores), "deviation": deviation(scores), "scores": list(scores)}
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

    def train_one(each: Run) -> Any:
        return train(each, on_event=on_event, resume=True, overwrite=True, report=False, log=log)

    tried = list(run_all(trials, train_one, log=log))
    settings: dict[tuple[Any, ...], list[Tried]] = {}
    for each in sorted(tried, key=lambda one: one.trial.run.seed):
        settings.setdefault(tuple(each.trial.values.values()), []).append(each)
    ranked = sorted(settings.values(), key=_rank, reverse=True)
    best = max(ranked[0], key=lambda one: (not math.isnan(one.score), one.score))
    if math.isnan(best.score):
        raise TrainingError(
            f"no run of the sweep has a dev score: all {len(tried)} failed. Try lower learning rates, and look at the "
            f"dev set ({run.dev}) and at the messages of the runs."
        )
    protocol, interval = _interval(best.trial.folder, run)
    found = Sweep(
        grid={name: list(values) for name, values in grid.items()},
        scores=[(of[0].trial.values, [one.score for one in of]) for of in ranked],
        before=best.before,
        protocol=protocol,
        best_model=best.trial.folder,
        interval=interval,
        facts=provenance(options={"run": run.changes, "grid": dict(grid), "seeds": seeds}),
    )
    write_json(Path(run.output) / FILE, found.to_dict())
    _write_page(found, Path(run.output) / PAGE, command)
    return found


def _interval(model: Path, run: Run) -> tuple[str, tuple[float, float]]:
    """Return what the dev score is, and its 95 % interval for a model."""
    from twinpass.evaluation.dev import ScoredPairs
    from twinpass.evaluation.evaluate import evaluate
    from twinpass.workflows.dev import open_dev

    source = str(run.dev)
    dev = open_dev(source)
    kind = "scored" if isinstance(dev, ScoredPairs) else "retrieval"
    result = evaluate(str(model), source if is_built_in(source) else f"{kind}:{source}", device=run.device)
    metric = "spearman" if kind == "scored" else "r@1"
    score = next((each for each in result.tasks[0].scores if each.metric == metric), result.tasks[0].scores[0])
    return dev.protocol, (score.low, score.high)


def _score(score: float) -> str:
    return "failed" if math.isnan(score) else f"{score:.2f}"


def _mean(scores: Sequence[float]) -> str:
    spread = deviation(scores)
    return _score(mean(scores)) + ("" if spread is None else f" ± {spread:.2f}")


def _rank(runs: Sequence[Tried]) -> tuple[bool, float]:
    """Return by what settings are compared: one of which a run failed is behind those of which none did."""
    scores = [each.score for each in runs]
    return len(finished(scores)) == len(scores), mean(scores) if finished(scores) else -math.inf


def _write_page(found: Sweep, target: Path, command: str | None) -> None:
    """Write the page: the table, a picture of the grid, and how it was made."""
    from twinpass.analysis.drawing import Drawing
    from twinpass.analysis.html import Column, Section, figures, notes, table, write_page
    from twinpass.analysis.report import provenance_section

    columns = [*(Column(name) for name in found.grid), Column("mean", decimals=2), Column("deviation", decimals=2)]
    rows = [
        [*map(str, values.values()), mean(scores) if finished(scores) else "failed", deviation(scores)]
        for values, scores in found.scores
    ]
    picture = Drawing(
        name="grid",
        title="Dev score of every setting",
        caption=f"{found.protocol}. The line is the starting model; bars are the deviation over seeds.",
        draw=partial(_draw, found),
    )
    (shown,) = found.grids()
    sections = [
        Section("Settings", table("Settings, the best first", columns, rows) + notes(list(shown.notes))),
        Section("The grid", figures([picture])),
        provenance_section(command, fingerprints=[("best model", str(found.best_model), None)], facts=found.facts),
    ]
    best = ", ".join(f"{name} {value}" for name, value in found.best.items())
    write_page(target, f"Sweep: {target.parent.name}", f"Best: {best}.", sections)


def _draw(found: Sweep, theme: Theme) -> Figure:
    """Draw the score over the values of the last field, one line for each combination of the others."""
    from twinpass.analysis.drawing import MARKERS, legend, line, one_panel

    figure, axes = one_panel(height=2.4)
    *others, across = found.grid
    places = {str(value): place for place, value in enumerate(found.grid[across])}
    lines: dict[str, dict[int, Sequence[float]]] = {}
    for values, scores in found.scores:
        label = ", ".join(f"{name} {values[name]}" for name in others)
        if finished(scores):
            lines.setdefault(label, {})[places[str(values[across])]] = scores
    for number, (label, by_place) in enumerate(sorted(lines.items())):
        at = sorted(by_place)
        axes.errorbar(
            at,
            [mean(by_place[place]) for place in at],
            yerr=[deviation(by_place[place]) or 0.0 for place in at],
            marker=MARKERS[number % len(MARKERS)],
            markersize=4,
            label=label,
            **line(theme, number),
        )
    axes.axhline(found.before, color=theme.ink, linewidth=0.8, linestyle=":")
    axes.set_xticks(list(places.values()), list(places))
    axes.set_xlabel(across)
    axes.set_ylabel("dev score (× 100)")
    if len(lines) > 1:
        legend(figure, axes)
    return figure
