"""A map of the same sentences by every model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from twinpass.analysis.figures.parts import panels, sentence
from twinpass.analysis.measure import Analysis
from twinpass.analysis.sample import Sample
from twinpass.analysis.style import MARKERS, Theme, short
from twinpass.analysis.svg import Drawing, attach_tips

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_PAIRS = 8
GREY = 6  # place of the grey among a theme's colours


def map_figure(sample: Sample, analyses: Sequence[Analysis]) -> Drawing:
    """Draw a panel for each model: sentences on its first two principal components."""
    pairs = _example_pairs(sample, analyses[0])

    def draw(theme: Theme) -> Figure:
        figure, axes = panels(len(analyses), height=1.75, single=2.9)
        for each, panel in zip(analyses, axes, strict=False):
            _draw_points(panel, each, sample, pairs, theme)
        return figure

    joined = f" Lines join {len(pairs)} of the positive pairs." if pairs else ""
    caption = (
        f"{len(analyses[0].map.rows):,} sentences on the first two principal components of each model's unit vectors; "
        f"percentages are shares of the variance.{joined} {sentence(sample.protocol)}"
    )
    return Drawing(name="map", title="Map of sentences", caption=caption, draw=draw)


def _draw_points(
    axes: Axes, analysis: Analysis, sample: Sample, pairs: Sequence[tuple[int, int]], theme: Theme
) -> None:
    points, rows = analysis.map.points, analysis.map.rows
    grey = theme.series[GREY]
    dots = axes.scatter(points[:, 0], points[:, 1], s=4, color=grey, alpha=0.55, linewidths=0)
    attach_tips(axes, dots, [sample.texts[row] for row in rows])
    place = {int(row): number for number, row in enumerate(rows)}
    for number, (left, right) in enumerate(pairs):
        ends = points[[place[left], place[right]]]
        axes.plot(
            ends[:, 0],
            ends[:, 1],
            color=theme.series[number % GREY],
            marker=MARKERS[number % len(MARKERS)],
            markersize=3.2,
            linewidth=0.9,
            zorder=4,
        )
    first, second = analysis.map.explained
    axes.set_title(short(analysis.name, 25), loc="left", fontsize=6.5)
    axes.set_xlabel(f"PC 1 ({first:.1%})", fontsize=6.5)
    axes.set_ylabel(f"PC 2 ({second:.1%})", fontsize=6.5)
    axes.tick_params(labelsize=6)


def _example_pairs(sample: Sample, analysis: Analysis) -> list[tuple[int, int]]:
    """Return a few positive pairs of different sentences whose both ends are on the map."""
    if sample.positives is None:
        return []
    shown = set(analysis.map.rows.tolist())
    pairs = [(int(a), int(b)) for a, b in sample.positives if a != b and a in shown and b in shown]
    return pairs[:: max(1, len(pairs) // MOST_PAIRS)][:MOST_PAIRS]
