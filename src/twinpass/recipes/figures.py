"""An outcome as a figure: ours beside the paper's row by row, or the figure that the paper has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from twinpass.analysis.figures.parts import legend, line, one_panel, panels
from twinpass.analysis.figures.training import trajectory_figure
from twinpass.analysis.style import MARKERS, Theme
from twinpass.analysis.svg import Drawing
from twinpass.analysis.trajectory import RunLog
from twinpass.recipes.reproduce import Outcome, RowOutcome

ROW = 0.2  # inches a row takes
GRID = np.linspace(-0.2, 1.0, 121)


def draw_outcome(outcome: Outcome) -> Drawing | None:
    """Return the figure of an outcome, or None where there is nothing to draw."""
    draw = _FIGURES.get(outcome.recipe.figure)
    measured = [row for row in outcome.rows if any(cell.ours for cell in row.cells.values())]
    return draw(outcome, measured) if draw is not None and measured else None


def _drawing(outcome: Outcome, draw: Callable[[Theme], Figure]) -> Drawing:
    recipe = outcome.recipe
    caption = f"{recipe.title}. {recipe.protocol}; scale {outcome.scale}, {len(outcome.seeds)} seed(s)."
    return Drawing(name=recipe.name, title=recipe.title, caption=caption, draw=draw)


def _dots(outcome: Outcome, rows: list[RowOutcome]) -> Drawing:
    """Each row's numbers in the last column that was measured: ours with the deviation over seeds, and the paper's."""
    columns = [c for c in outcome.recipe.columns if any(row.cells[c].ours for row in rows)]
    column = columns[-1]
    rows = [row for row in rows if row.cells[column].ours]

    def draw(theme: Theme) -> Figure:
        figure, axes = one_panel(height=0.6 + ROW * len(rows))
        places = np.arange(len(rows))[::-1]
        cells = [row.cells[column] for row in rows]
        means = [cell.mean for cell in cells]
        axes.errorbar(
            means,  # type: ignore[arg-type]
            places,
            xerr=[cell.deviation or 0.0 for cell in cells],
            fmt=MARKERS[0],
            color=theme.series[0],
            label=f"ours ({outcome.scale})",
            markersize=4,
        )
        printed = [(c.paper, place) for c, place in zip(cells, places, strict=True) if c.paper is not None]
        if printed:
            x, y = zip(*printed, strict=True)
            axes.scatter(x, y, marker=MARKERS[3], s=20, color=theme.series[1], label="paper")
        axes.set_yticks(places, [row.row.label.strip() for row in rows])
        axes.set_xlabel(outcome.recipe.columns[column])
        axes.margins(y=0.08)
        legend(figure, axes, handle=1.2)
        return figure

    return _drawing(outcome, draw)


def _trajectory(outcome: Outcome, rows: list[RowOutcome]) -> Drawing:
    runs = [
        RunLog(name=row.row.label, geometry=[(int(s), a, u) for s, a, u in _first(row)["path"]])
        for row in rows
    ]
    drawn = trajectory_figure(runs, protocol=outcome.recipe.protocol)
    return Drawing(name=outcome.recipe.name, title=drawn.title, caption=drawn.caption, draw=drawn.draw)


def _geometry(outcome: Outcome, rows: list[RowOutcome]) -> Drawing:
    def draw(theme: Theme) -> Figure:
        figure, axes = one_panel(height=2.3)
        averages = [row.cells["avg"].mean or 0.0 for row in rows]
        for place, row in enumerate(rows):
            drawn = axes.scatter(
                row.cells["uniformity"].mean or 0.0,
                row.cells["alignment"].mean or 0.0,
                c=np.array([averages[place]]),
                cmap=theme.sequential,
                vmin=min(averages),
                vmax=max(averages),
                marker=MARKERS[place % len(MARKERS)],
                edgecolors=theme.ink,
                linewidths=0.6,
                s=36,
                zorder=3,
                label=f"{row.row.label} ({averages[place]:.1f})",
            )
        figure.colorbar(drawn, ax=axes, pad=0.02, aspect=28).set_label("Avg. STS")
        axes.set_xlabel("uniformity (lower is better)")
        axes.set_ylabel("alignment (lower is better)")
        axes.margins(0.12)
        legend(figure, axes, handle=1.0)
        return figure

    return _drawing(outcome, draw)


def _spectrum(outcome: Outcome, rows: list[RowOutcome]) -> Drawing:
    def draw(theme: Theme) -> Figure:
        figure, axes = one_panel(height=2.3)
        for place, row in enumerate(rows):
            curve = _first(row)["curve"]
            axes.plot(range(1, len(curve) + 1), curve, label=row.row.label, **line(theme, place))
        axes.set_yscale("log")
        axes.set_ylim(bottom=1e-3)
        axes.set_xlabel("singular value, the largest first")
        axes.set_ylabel("divided by the largest")
        legend(figure, axes)
        return figure

    return _drawing(outcome, draw)


def _densities(outcome: Outcome, rows: list[RowOutcome]) -> Drawing:
    """Cosines of the pairs in five groups of gold score, a panel a model, as histograms above each other."""

    def draw(theme: Theme) -> Figure:
        figure, axes = panels(len(rows), height=1.7, single=2.3, alike=True)
        for row, panel in zip(rows, axes, strict=False):
            for group in range(5):
                counts, edges = np.histogram(_first(row)[f"group{group}"], bins=GRID[::3], density=True)
                middle = (edges[:-1] + edges[1:]) / 2
                height = group + 0.9 * counts / max(counts.max(), 1e-9)
                panel.fill_between(middle, group, height, color=theme.series[group], alpha=0.7, linewidth=0)
            panel.set_title(row.row.label)
            panel.set_yticks(range(5), [f"{group} to {group + 1}" for group in range(5)])
        return figure

    return _drawing(outcome, draw)


def _first(row: RowOutcome) -> dict[str, Any]:
    """Return what the first seed found beside its numbers."""
    found: dict[str, Any] = next(iter(row.more.values()))[0]
    return found


_FIGURES: dict[str, Callable[[Outcome, list[RowOutcome]], Drawing]] = {
    "dots": _dots,
    "trajectory": _trajectory,
    "geometry": _geometry,
    "spectrum": _spectrum,
    "densities": _densities,
}
