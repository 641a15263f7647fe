"""What figures share: panels of column width, lines told apart twice, legends that hide nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from twinpass.analysis.style import COLUMN, DASHES, Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINE = 0.145  # inches that a line of the legend takes


def one_panel(*, height: float) -> tuple[Figure, Axes]:
    """Return a figure of column width with one panel."""
    figure = Figure(figsize=(COLUMN, height))
    return figure, figure.subplots()


def panels(
    count: int, *, height: float, single: float, alike: bool = False, same_rows: bool = False
) -> tuple[Figure, Iterator[Axes]]:
    """Return a figure with two panels a row, each so high, or one panel of height `single`.

    Panels that are alike share both scales; with the same rows, only the one that runs up.
    """
    columns = min(2, count)
    rows = math.ceil(count / columns)
    total = single if count == 1 else height * rows
    figure = Figure(figsize=(COLUMN, total))
    grid: Any = figure.subplots(rows, columns, squeeze=False, sharex=alike, sharey=alike or same_rows)
    for spare in grid.flat[count:]:
        spare.set_visible(False)
    for panel in grid.flat if alike else ():
        panel.tick_params(labelbottom=True)  # matplotlib would leave out all but the lowest
    return figure, iter(grid.flat)


def line(theme: Theme, place: int) -> dict[str, Any]:
    """Return colour and dashes of the place-th line; no two lines differ by colour alone before the ninth."""
    return {"color": theme.series[place % len(theme.series)], "linestyle": DASHES[place % len(DASHES)]}


def legend(figure: Figure, axes: Axes, *, handle: float = 2.6) -> None:
    """Put the legend above the axes, where it hides nothing, and make the figure that much higher."""
    handles, labels = axes.get_legend_handles_labels()
    columns = 2 if len(labels) > 1 and max(map(len, labels)) <= 19 else 1
    figure.set_figheight(figure.get_figheight() + LINE * math.ceil(len(labels) / columns))
    figure.legend(handles, labels, loc="outside upper left", ncols=columns, handlelength=handle, labelspacing=0.3)


def sentence(text: str) -> str:
    """Make a sentence of a phrase."""
    return f"{text[:1].upper()}{text[1:]}."


def or_nan(value: float | None) -> float:
    """Return a number that matplotlib leaves out where there is none."""
    return math.nan if value is None else value
