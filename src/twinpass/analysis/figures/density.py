"""Figure G.1: how cosines spread in five groups of gold score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from twinpass.analysis.density import GRID, Group
from twinpass.analysis.figures.parts import panels, sentence
from twinpass.analysis.measure import Analysis
from twinpass.analysis.sample import Sample
from twinpass.analysis.style import Theme, short
from twinpass.analysis.svg import Drawing, add_hover

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OVERLAP = 1.35  # how high the highest ridge is, in distances between ridges


def density_figure(sample: Sample, analyses: Sequence[Analysis]) -> Drawing:
    """Draw a panel of ridges for each model that has densities."""
    groups = {each.name: each.densities or [] for each in analyses}
    count = 0 if sample.gold is None else len(sample.gold)
    caption = (
        f"Density of the cosine of {count:,} pairs in five groups of gold score (Gaussian kernel, Scott's rule; one "
        f"scale within a panel; ticks mark medians). {sentence(sample.protocol)}"
    )
    return Drawing(name="density", title="Cosine by gold score", caption=caption, draw=partial(draw_densities, groups))


def draw_densities(groups: Mapping[str, Sequence[Group]], theme: Theme) -> Figure:
    """Draw a panel of ridges for each model, the groups of lowest gold score below."""
    figure, axes = panels(len(groups), height=1.8, single=2.6, alike=True)
    for (name, ridges), panel in zip(groups.items(), axes, strict=False):
        _draw_ridges(panel, name, ridges, theme)
        panel.set_xlim(min(-0.25, *(_lowest(each) - 0.05 for each in groups.values())), 1.0)
    figure.supxlabel("cosine similarity of the pair", fontsize=8)
    figure.supylabel("gold score", fontsize=8)
    return figure


def _draw_ridges(axes: Axes, name: str, groups: Sequence[Group], theme: Theme) -> None:
    peak = max((float(group.density.max()) for group in groups if group.density is not None), default=1.0)
    for place, group in enumerate(groups):
        if group.density is not None:
            heights = place + OVERLAP * group.density / peak
            order = 20 - 2 * place  # lower ridges stand in front
            axes.fill_between(GRID, place, heights, color=theme.paper, linewidth=0, zorder=order)
            axes.fill_between(GRID, place, heights, color=theme.series[0], alpha=0.35, lw=0, zorder=order)
            axes.plot(GRID, heights, color=theme.series[0], linewidth=0.9, zorder=order + 1)
        if group.quartiles is not None:
            median = group.quartiles[1]
            axes.plot([median, median], [place, place + 0.3], color=theme.ink, linewidth=1.3, zorder=30)
            add_hover(axes, [median], [place + 0.15], [_tip(name, group)])
    axes.set_yticks(range(len(groups)), [group.name for group in groups])
    axes.set_ylim(-0.15, len(groups) - 1 + OVERLAP + 0.15)
    axes.set_title(short(name, 25), loc="left", fontsize=6.5)
    axes.grid(axis="y", visible=False)


def _lowest(groups: Sequence[Group]) -> float:
    """Return where the first density begins to show."""
    starts = [
        float(GRID[(group.density > 0.02 * group.density.max()).argmax()])
        for group in groups
        if group.density is not None
    ]
    return min(starts, default=0.0)


def _tip(name: str, group: Group) -> str:
    low, middle, high = group.quartiles or (0.0, 0.0, 0.0)
    return f"{name}, gold {group.name}: {group.pairs:,} pairs, cosine quartiles {low:.2f}, {middle:.2f}, {high:.2f}"
