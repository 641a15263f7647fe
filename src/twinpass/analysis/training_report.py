"""The report of training runs: loss, dev scores, before and after, the path through the space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from twinpass.analysis.figures.training import dev_figure, loss_figure, trajectory_figure
from twinpass.analysis.html import Cell, Column, figures, notes, table
from twinpass.analysis.page import Section, write_page
from twinpass.analysis.svg import Drawing
from twinpass.analysis.trajectory import RunLog, read_log

FILE = "report.html"
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
    """Write the page of runs by name; `scores` are rows of the table, such as before, best and last."""
    logs = [RunLog(**(vars(read_log(folder)) | {"name": name})) for name, folder in folders.items()]
    sections = [Section("Before and after", _scores(scores, protocol))] if scores else []
    drawn = _drawings(logs, protocol or "")
    sections += [Section("Curves", figures(drawn))] if drawn else []
    if not scores:
        sections.insert(0, Section("Scores", notes(["Nothing was scored: the run had no dev set (--dev)."])))
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
