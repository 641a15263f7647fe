"""The report of training runs: loss, dev scores before and after, the path of alignment and uniformity (Figure 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from twinpass.analysis.drawing import MARKERS, Drawing, Theme, add_hover, legend, line, one_panel, short
from twinpass.analysis.html import Cell, Column, Section, figures, notes, table, write_page
from twinpass.errors import InputError
from twinpass.log import FILE as LOG
from twinpass.log import RunLog, has_log, read_log

if TYPE_CHECKING:
    from matplotlib.axes import Axes


FILE = "report.html"
ARROWS = 8  # along a path
Scores = Mapping[str, float]


def write_training_report(
    target: Path,
    *,
    title: str,
    folders: Mapping[str, Path],
    protocol: str | None = None,
    scores: Mapping[str, Scores] | None = None,
    more: Sequence[Section] = (),
) -> None:
    """Write the page of some runs; `folders` and `scores` are by name, `scores` of before, best and last, say."""
    logs = [replace(read_log(folder), name=name) for name, folder in folders.items()]
    sections = [Section("Scores", notes(["Nothing was scored: the run had no dev set (--dev)."]))]
    if scores:
        sections = [Section("Before and after", _scores(scores, protocol))]
    if drawn := _drawings(logs, protocol or ""):
        sections.append(Section("Curves", figures(drawn)))
    steps = ", ".join(f"{log.name}: {log.loss[-1][0]:,} steps" for log in logs if log.loss)
    write_page(target, title, steps or "No step was taken.", [*sections, *more])


def _scores(scores: Mapping[str, Scores], protocol: str | None) -> str:
    names = list(dict.fromkeys(name for found in scores.values() for name in found))
    columns = [Column("model"), *(Column(name) for name in names)]
    rows: list[list[Cell]] = [[row, *(found.get(name) for name in names)] for row, found in scores.items()]
    return table(protocol or "Scores on the dev set", columns, rows)


def _drawings(logs: Sequence[RunLog], protocol: str) -> list[Drawing]:
    trained = [log for log in logs if log.loss]
    scored = [log for log in logs if log.dev]
    tracked = [log for log in logs if log.geometry]
    drawn = [loss_figure(trained)] if trained else []
    drawn += [dev_figure(scored, protocol=protocol)] if scored else []
    return [*drawn, trajectory_figure(tracked, protocol=f"Dev set: {protocol}.")] if tracked else drawn


def trajectory_figure(runs: Sequence[RunLog], *, of: str = "the dev set's", protocol: str = "") -> Drawing:
    """Figure 2: alignment and uniformity of each run, step by step; `of` says whose vectors are measured."""

    def draw(theme: Theme) -> Figure:
        figure, axes = one_panel(height=2.7)
        for place, run in enumerate(runs):
            _draw_path(axes, run, place, theme)
        axes.set_xlabel("uniformity $\\ell_{uniform}$ (lower is better)")
        axes.set_ylabel("alignment $\\ell_{align}$ (lower is better)")
        legend(figure, axes)
        return figure

    gaps = sorted({b[0] - a[0] for run in runs for a, b in zip(run.geometry, run.geometry[1:], strict=False)})
    every = f" every {' or '.join(map(str, gaps))} steps" if gaps else ""
    caption = (
        f"Alignment (Eq. 2) and uniformity (Eq. 3, t = 2) of {of} vectors{every} of training; arrows point in "
        f"the direction of training, the ring marks its start. {protocol}".strip()
    )
    return Drawing(name="trajectory", title="The path of training", caption=caption, draw=draw)


def _draw_path(axes: Axes, run: RunLog, place: int, theme: Theme) -> None:
    steps, up, across = (np.array(column) for column in zip(*run.geometry, strict=True))
    style = line(theme, place)
    marker = MARKERS[place % len(MARKERS)]
    axes.plot(across, up, marker=marker, markersize=3, label=short(run.name), linewidth=0.9, **style)
    look = {"arrowstyle": "-|>", "color": style["color"], "lw": 0.9, "mutation_scale": 8}
    for at in np.unique(np.linspace(0, len(steps) - 2, ARROWS).astype(int)) if len(steps) > 1 else ():
        axes.annotate("", xy=(across[at + 1], up[at + 1]), xytext=(across[at], up[at]), arrowprops=look)
    axes.plot(across[:1], up[:1], "o", markersize=6, fillstyle="none", color=theme.ink)
    where = [f"step {step}: uniformity {u:.3f}, alignment {a:.3f}" for step, a, u in run.geometry]
    add_hover(axes, list(across), list(up), [f"{run.name}, {each}" for each in where])


def loss_figure(runs: Sequence[RunLog]) -> Drawing:
    """Each run's training loss."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for run in runs:  # the parts of a mixture have losses of different kinds
        own = {f"{run.name}: {part}": curve for part, curve in run.losses.items()}
        curves |= own or {run.name: run.loss}
    draw = partial(_draw_curves, curves, "training loss (nats)", "loss {:.4g}", "")
    return Drawing(name="loss", title="Loss", caption="The training loss of every step's batch.", draw=draw)


def dev_figure(runs: Sequence[RunLog], *, protocol: str) -> Drawing:
    """Each run's score on the dev set."""
    curves = {run.name: [(step, scores["score"]) for step, scores in run.dev] for run in runs}
    draw = partial(_draw_curves, curves, "dev score (× 100)", "{:.2f}", MARKERS)
    caption = f"{protocol}. Step 0 is before training." if protocol else "Step 0 is before training."
    return Drawing(name="dev", title="Score on the dev set", caption=caption, draw=draw)


def _draw_curves(
    curves: Mapping[str, Sequence[tuple[int, float]]], label: str, tip: str, markers: Sequence[str], theme: Theme
) -> Figure:
    """Draw one curve per run over steps, with markers if there are any; `tip` formats a value."""
    figure, axes = one_panel(height=2.0)
    for place, (name, curve) in enumerate(curves.items()):
        marker = markers[place % len(markers)] if markers else ""
        steps, values = zip(*curve, strict=True)
        axes.plot(steps, values, marker=marker, markersize=3, label=short(name), **line(theme, place))
        shown = [curve[at] for at in np.unique(np.linspace(0, len(curve) - 1, 200).astype(int))]
        tips = [f"{name}, step {step}: {tip.format(value)}" for step, value in shown]
        add_hover(axes, [step for step, _ in shown], [value for _, value in shown], tips)
    axes.set_xlabel("step")
    axes.set_ylabel(label)
    if len(curves) > 1:
        legend(figure, axes)
    return figure


def read_trajectory(folder: str | Path) -> RunLog:
    """Read the log of a run that recorded alignment and uniformity; otherwise say how to record them."""
    if not has_log(folder):
        raise InputError(f"{folder} is not a training run: it has no {LOG}. Expected the output folder of `train`.")
    log = read_log(folder)
    if not log.geometry:
        raise InputError(
            f"{folder} recorded no geometry. Train with --track-geometry 10 and --dev PAIRS to record "
            "alignment and uniformity every 10 steps."
        )
    return log
