"""An outcome as a figure: ours beside the paper's row by row, or the figure that the paper has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from twinpass.analysis.drawing import COLUMN, MARKERS, Drawing, Theme, legend, or_nan, panels
from twinpass.analysis.figures import AVERAGE, Point, draw_densities, draw_geometry, draw_settings, draw_spectra
from twinpass.analysis.measure import measure_densities
from twinpass.analysis.training_report import trajectory_figure
from twinpass.display import counted
from twinpass.log import RunLog
from twinpass.recipes.report import Cell, Outcome, RowOutcome, first_seed, searched

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW = 0.2  # inches a row takes
LETTER, PANEL = 0.055, 1.2  # inches that a letter of a label takes, and at least a panel beside the labels
SEARCH = 1.5  # inches that the panel of a search is high
MOST_PANELS = 2  # of a wider table the last column is drawn: its average


def draw_outcome(outcome: Outcome) -> Drawing | None:
    """Return the figure of an outcome, or None where there is nothing to draw."""
    draw = _FIGURES.get(outcome.recipe.figure)
    measured = [row for row in outcome.rows if row.is_measured]
    return draw(outcome, measured) if draw is not None and measured else None


def _drawing(outcome: Outcome, draw: Callable[[Theme], Figure], *, caption: str = "") -> Drawing:
    recipe = outcome.recipe
    about = f" {outcome.about.capitalize()}." if outcome.about else ""
    seeds = counted(len(outcome.seeds), "seed")
    caption = f"{caption or f'{recipe.title}. {recipe.protocol}'}; scale {outcome.scale}, {seeds}.{about}"
    return Drawing(name=recipe.name, title=recipe.title, caption=caption, draw=draw)


def _dots(outcome: Outcome, rows: list[RowOutcome]) -> Drawing:
    """Each row's numbers, ours with the deviation over seeds, and the paper's; of many columns only the last."""
    columns = [c for c in outcome.recipe.columns if any(row.cells[c].ours for row in rows)]
    columns = columns if len(columns) <= MOST_PANELS else columns[-1:]
    rows = [row for row in rows if any(row.cells[c].ours for c in columns)]
    labels = [row.row.label for row in rows]

    def draw(theme: Theme) -> Figure:
        height = 0.6 + ROW * len(rows)
        figure, axes = panels(len(columns), height=height, single=height, same_rows=True)
        figure.set_figwidth(max(COLUMN, LETTER * max(map(len, labels)) + PANEL * len(columns)))
        for column, panel in zip(columns, axes, strict=False):
            _draw_dots(panel, [row.cells[column] for row in rows], outcome.scale, theme)
            panel.set_xlabel(outcome.recipe.columns[column])
            panel.set_yticks(range(len(rows)), labels)
        legend(figure, panel, handle=1.2)
        return figure

    return _drawing(outcome, draw)


def _draw_dots(axes: Axes, cells: list[Cell], scale: str, theme: Theme) -> None:
    """Draw a column, the first row above; missing numbers are not drawn."""
    places = range(len(cells))
    axes.errorbar(
        [or_nan(cell.mean) for cell in cells],
        places,
        xerr=[cell.deviation or 0.0 for cell in cells],
        fmt=MARKERS[0],
        color=theme.series[0],
        label=f"ours ({scale})",
        markersize=4,
    )
    if any(cell.paper is not None for cell in cells):
        printed = [or_nan(cell.paper) for cell in cells]
        axes.scatter(printed, places, marker=MARKERS[3], s=20, color=theme.series[1], label="paper")
    axes.margins(x=0.08)
    axes.set_ylim(len(cells) - 0.4, -0.6)


def _trajectory(outcome: Outcome, rows: list[RowOutcome]) -> Drawing:
    runs = [
        RunLog(name=row.row.label, geometry=[(int(s), a, u) for s, a, u in first_seed(row)["path"]]) for row in rows
    ]
    tracked = "STS-B" if outcome.facts["options"]["scale"]["tracked"] == "all" else "STS-B dev"
    drawn = trajectory_figure(runs, of=f"{tracked}'s", protocol=outcome.recipe.protocol)
    return _drawing(outcome, drawn.draw, caption=drawn.caption)


def _geometry(outcome: Outcome, rows: list[RowOutcome]) -> Drawing:
    points = [
        Point(row.row.label, *(or_nan(row.cells[column].mean) for column in ("uniformity", "alignment", "avg")))
        for row in rows
    ]
    return _drawing(outcome, partial(draw_geometry, points, AVERAGE))


def _spectrum(outcome: Outcome, rows: list[RowOutcome]) -> Drawing:
    curves = {row.row.label: np.asarray(first_seed(row)["curve"]) for row in rows}
    return _drawing(outcome, partial(draw_spectra, curves))


def _densities(outcome: Outcome, rows: list[RowOutcome]) -> Drawing:
    found = {row.row.label: first_seed(row) for row in rows}
    groups = {
        name: measure_densities(np.asarray(pairs["cosines"]), np.asarray(pairs["gold"]))
        for name, pairs in found.items()
    }
    return _drawing(outcome, partial(draw_densities, groups))


def _settings(outcome: Outcome, rows: list[RowOutcome]) -> Drawing:
    """The score of every setting of each row's search, one line for each batch size."""

    def draw(theme: Theme) -> Figure:
        figure, axes = panels(len(rows), height=SEARCH, single=2 * SEARCH)
        for row, panel in zip(rows, axes, strict=False):
            scores = searched(row)
            batches, rates = (list(dict.fromkeys(values)) for values in zip(*scores, strict=True))
            lines = {
                f"batch {b}": {
                    place: (cell.mean, cell.deviation or 0.0)
                    for place, cell in enumerate(scores[b, r] for r in rates)
                    if cell.mean is not None
                }
                for b in batches
            }
            draw_settings(panel, lines, [f"{rate:g}" for rate in rates], theme)
            panel.set_title(row.row.label, loc="left")
            panel.set_xlabel("learning rate")
            panel.set_ylabel("STS-B dev (× 100)")
        legend(figure, panel)
        return figure

    bars = " Bars are the deviation over seeds." if len(outcome.seeds) > 1 else ""
    drawing = _drawing(outcome, draw)
    return replace(drawing, caption=f"{drawing.caption}{bars}")


_FIGURES: dict[str, Callable[[Outcome, list[RowOutcome]], Drawing]] = {
    "dots": _dots,
    "trajectory": _trajectory,
    "geometry": _geometry,
    "spectrum": _spectrum,
    "densities": _densities,
    "settings": _settings,
}
