"""The figures of an analysis: geometry (Figure 3), spectrum (F.1), densities (G.1), map, bound (section 5).

`*_figure` takes what was measured and returns a Drawing with its caption. `draw_geometry`, `draw_spectra`,
`draw_densities` and `draw_settings` take plain numbers and a theme, and draw the same figures from numbers that were
kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from twinpass.analysis.drawing import (
    COLUMN,
    MARKERS,
    Drawing,
    Theme,
    add_hover,
    at_least,
    attach_tips,
    legend,
    line,
    one_panel,
    or_nan,
    panels,
    sentence,
    short,
)
from twinpass.analysis.measure import GRID, TEMPERATURE, Group, Measures
from twinpass.analysis.sampling import Sample

if TYPE_CHECKING:
    from matplotlib.axes import Axes


AVERAGE = "Avg. STS (Spearman × 100)"
HERE = "Spearman × 100 on these pairs"
OVERLAP = 1.35  # height of the highest ridge, in distances between ridges
MOST_PAIRS = 8  # joined by lines on a map
GREY = 6  # position of grey among a theme's colours
# Below this share of the largest, a singular value is rounding noise of single-precision vectors.
NOISE = 1e-4
LEAST_SPAN = 0.02  # of uniformity and alignment: smaller differences are those of another sample
LEAST_SCORES = 1.0  # points of Spearman x 100 between the ends of the colours, likewise


def make_figures(sample: Sample, models: Sequence[Measures], averages: Mapping[str, float]) -> list[Drawing]:
    """Return every figure that can be drawn for these models and this sample; averages are Avg. STS by model name."""
    aligned = [each for each in models if each.geometry.alignment is not None]
    graded = [each for each in models if each.densities is not None]
    figures = [geometry_figure(sample, aligned, averages)] if aligned else []
    figures.append(spectrum_figure(sample, models))
    figures += [density_figure(sample, graded)] if graded else []
    return [*figures, map_figure(sample, models), theory_figure(sample, models)]


class Point(NamedTuple):
    """A model in the plane of uniformity and alignment; the score, NaN if not known, sets its colour."""

    name: str
    uniformity: float
    alignment: float
    score: float


def geometry_figure(sample: Sample, models: Sequence[Measures], averages: Mapping[str, float]) -> Drawing:
    """Figure 3: models with an alignment, coloured by average STS if known, else by Spearman on these pairs."""
    label, values = AVERAGE, [averages.get(each.name, math.nan) for each in models]
    if not any(map(math.isfinite, values)):
        label, values = HERE, [or_nan(each.geometry.spearman) for each in models]

    points = [
        Point(each.name, each.geometry.uniformity, or_nan(each.geometry.alignment), value)
        for each, value in zip(models, values, strict=True)
    ]
    caption = (
        "Alignment (Eq. 2) and uniformity (Eq. 3, t = 2) of unit vectors; lower is better for both. Alignment over "
        f"{sample.over}, uniformity over all pairs of sentences. {sentence(sample.protocol)} "
        f"Colour and numbers in brackets: {label}; grey: not known."
    )
    return Drawing(
        name="geometry", title="Alignment and uniformity", caption=caption, draw=partial(draw_geometry, points, label)
    )


def draw_geometry(points: Sequence[Point], label: str, theme: Theme) -> Figure:
    """Draw one point per model; the label says what the scores are."""
    figure, axes = one_panel(height=2.3)
    coloured = _scatter(axes, points, theme)
    tips = [_point_tip(point, label) for point in points]
    add_hover(axes, [point.uniformity for point in points], [point.alignment for point in points], tips)
    axes.set_xlabel("uniformity $\\ell_{uniform}$ (lower is better)")
    axes.set_ylabel("alignment $\\ell_{align}$ (lower is better)")
    if coloured is not None:
        bar = figure.colorbar(coloured, ax=axes, pad=0.02, aspect=28)
        bar.set_label(label)
        bar.outline.set_visible(False)
    axes.margins(0.12)
    for axis in (axes.xaxis, axes.yaxis):
        at_least(axis, LEAST_SPAN)
    legend(figure, axes, handle=1.0)
    return figure


def _scatter(axes: Any, points: Sequence[Point], theme: Theme) -> Any:
    """Draw the points, each with its own marker; return one that a colour bar can be made from."""
    known = [point.score for point in points if math.isfinite(point.score)]
    coloured = None
    for place, point in enumerate(points):
        scored = math.isfinite(point.score)
        style: dict[str, Any] = {"c": theme.faint}
        if scored:
            wider = max(0.0, LEAST_SCORES - (max(known) - min(known))) / 2
            limits = {"vmin": min(known) - wider, "vmax": max(known) + wider}
            style = {"c": np.array([point.score]), "cmap": "viridis", **limits}
        drawn = axes.scatter(
            point.uniformity,
            point.alignment,
            s=36,
            marker=MARKERS[place % len(MARKERS)],
            edgecolors=theme.ink,
            linewidths=0.6,
            zorder=3,
            label=short(point.name, 38) + (f" ({point.score:.1f})" if scored else ""),
            **style,
        )
        coloured = drawn if scored and len(known) > 1 else coloured
    return coloured


def _point_tip(point: Point, label: str) -> str:
    score = f", {label} {point.score:.2f}" if math.isfinite(point.score) else ""
    return f"{point.name}: uniformity {point.uniformity:.3f}, alignment {point.alignment:.3f}{score}"


def spectrum_figure(sample: Sample, models: Sequence[Measures]) -> Drawing:
    """Figure F.1: each model's singular values divided by the largest."""
    curves = {each.name: each.spectrum.normalised for each in models}
    caption = (
        "Singular values of the matrix of unit sentence vectors, divided by the largest (logarithmic scale; values "
        f"below {NOISE:g} not shown); a flatter curve is a more isotropic space. {sentence(sample.protocol)}"
    )
    return Drawing(name="spectrum", title="Singular spectrum", caption=caption, draw=partial(draw_spectra, curves))


def draw_spectra(curves: Mapping[str, ArrayLike], theme: Theme) -> Figure:
    """Draw one curve per model, over the index of the singular value."""
    figure, axes = one_panel(height=1.9)
    floor = 1.0
    for place, (name, curve) in enumerate(curves.items()):
        values = np.asarray(curve, dtype=np.float64)
        values = values[values > NOISE]
        index = np.arange(1, len(values) + 1)
        axes.plot(index, values, label=short(name, 44), **line(theme, place))
        shown = np.unique(np.geomspace(1, max(1, len(values)), 40).astype(int)) - 1
        tips = [f"{name}: singular value {n + 1} is {values[n]:.3f} of the largest" for n in shown]
        add_hover(axes, list(index[shown]), list(values[shown]), tips)
        floor = min(floor, float(values[int(0.97 * (len(values) - 1))]))
    axes.set_yscale("log")
    axes.set_ylim(0.6 * floor, 1.3)  # the last few values may be far lower, as after centring
    axes.set_xlabel("index of the singular value")
    axes.set_ylabel("singular value ÷ largest")
    legend(figure, axes)
    return figure


def density_figure(sample: Sample, models: Sequence[Measures]) -> Drawing:
    """Figure G.1: one panel of ridges for each model that has densities."""
    groups = {each.name: each.densities or [] for each in models}
    count = 0 if sample.gold is None else len(sample.gold)
    caption = (
        f"Density of the cosine of {count:,} pairs in five groups of gold score (Gaussian kernel, Scott's rule; "
        f"ridges of a panel share one scale; ticks mark medians). {sentence(sample.protocol)}"
    )
    return Drawing(name="density", title="Cosine by gold score", caption=caption, draw=partial(draw_densities, groups))


def draw_densities(groups: Mapping[str, Sequence[Group]], theme: Theme) -> Figure:
    """Draw one panel of ridges per model, the lowest gold scores at the bottom."""
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
            order = 20 - 2 * place  # lower ridges are in front
            axes.fill_between(GRID, place, heights, color=theme.paper, linewidth=0, zorder=order)
            axes.fill_between(GRID, place, heights, color=theme.series[0], alpha=0.35, lw=0, zorder=order)
            axes.plot(GRID, heights, color=theme.series[0], linewidth=0.9, zorder=order + 1)
        if group.quartiles is not None:
            median = group.quartiles[1]
            axes.plot([median, median], [place, place + 0.3], color=theme.ink, linewidth=1.3, zorder=30)
            add_hover(axes, [median], [place + 0.15], [_group_tip(name, group)])
    axes.set_yticks(range(len(groups)), [group.name for group in groups])
    axes.set_ylim(-0.15, len(groups) - 1 + OVERLAP + 0.15)
    axes.set_title(short(name, 25), loc="left", fontsize=6.5)
    axes.grid(axis="y", visible=False)


def _lowest(groups: Sequence[Group]) -> float:
    """Return the cosine where the first density becomes visible."""
    starts = [
        float(GRID[(group.density > 0.02 * group.density.max()).argmax()])
        for group in groups
        if group.density is not None
    ]
    return min(starts, default=0.0)


def _group_tip(name: str, group: Group) -> str:
    low, middle, high = group.quartiles or (0.0, 0.0, 0.0)
    return f"{name}, gold {group.name}: {group.pairs:,} pairs, cosine quartiles {low:.2f}, {middle:.2f}, {high:.2f}"


def map_figure(sample: Sample, models: Sequence[Measures]) -> Drawing:
    """One panel per model: sentences on its first two principal components."""
    pairs = _example_pairs(sample, models[0])

    def draw(theme: Theme) -> Figure:
        figure, axes = panels(len(models), height=1.75, single=2.9)
        for each, panel in zip(models, axes, strict=False):
            _draw_points(panel, each, sample, pairs, theme)
        return figure

    joined = f" Lines join {len(pairs)} of the positive pairs." if pairs else ""
    caption = (
        f"{len(models[0].map.rows):,} sentences on the first two principal components of each model's unit vectors; "
        f"percentages are shares of the variance.{joined} {sentence(sample.protocol)}"
    )
    return Drawing(name="map", title="Map of sentences", caption=caption, draw=draw)


def _draw_points(axes: Axes, model: Measures, sample: Sample, pairs: Sequence[tuple[int, int]], theme: Theme) -> None:
    points, rows = model.map.points, model.map.rows
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
    first, second = model.map.explained
    axes.set_title(short(model.name, 25), loc="left", fontsize=6.5)
    axes.set_xlabel(f"PC 1 ({first:.1%})", fontsize=6.5)
    axes.set_ylabel(f"PC 2 ({second:.1%})", fontsize=6.5)
    axes.tick_params(labelsize=6)


def _example_pairs(sample: Sample, model: Measures) -> list[tuple[int, int]]:
    """Return a few positive pairs of different sentences with both ends on the map."""
    if sample.positives is None:
        return []
    shown = set(model.map.rows.tolist())
    pairs = [(int(a), int(b)) for a, b in sample.positives if a != b and a in shown and b in shown]
    return pairs[:: max(1, len(pairs) // MOST_PAIRS)][:MOST_PAIRS]


def theory_figure(sample: Sample, models: Sequence[Measures]) -> Drawing:
    """Section 5: both sides of the inequality for each model, and the largest eigenvalue's share of the trace."""

    def draw(theme: Theme) -> Figure:
        figure = Figure(figsize=(COLUMN, 0.85 + 0.34 * max(2, len(models))))
        grid: Any = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
        rows = list(range(len(models)))
        _draw_bounds(grid[0], models, rows, theme)
        _draw_shares(grid[1], models, rows, theme)
        for row, each in zip(rows, models, strict=True):
            where = {"x": 0.02, "y": row - 0.28, "transform": grid[0].get_yaxis_transform()}
            grid[0].text(**where, s=short(each.name, 38), fontsize=6.5, va="bottom", in_layout=False)
        grid[0].set_yticks([])
        grid[0].set_ylim(len(models) - 0.55, -0.85)  # the first model on top
        figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper right", ncols=2, handletextpad=0.2)
        return figure

    caption = (
        f"Left: the second term of Eq. 6 (temperature {TEMPERATURE}) and its lower bound by Jensen's inequality, "
        "Eq. 7. Right: the largest eigenvalue of the matrix of cosines as a share of its trace, which contrastive "
        f"training makes small. {sentence(sample.protocol)}"
    )
    return Drawing(name="theory", title="The bound of section 5", caption=caption, draw=draw)


def _draw_bounds(axes: Axes, models: Sequence[Measures], rows: list[int], theme: Theme) -> None:
    bounds = [each.geometry.jensen_bound for each in models]
    terms = [each.geometry.negatives_term for each in models]
    axes.hlines(rows, bounds, terms, color=theme.faint, linewidth=2, zorder=1)
    axes.scatter(bounds, rows, s=36, marker="|", color=theme.ink, linewidths=1.6, zorder=3, label="Eq. 7")
    axes.scatter(terms, rows, s=20, color=theme.series[0], zorder=3, label="Eq. 6, second term")
    for what, values in (("Eq. 7", bounds), ("Eq. 6's second term", terms)):
        tips = [f"{each.name}: {what} is {v:.3f} nats" for each, v in zip(models, values, strict=True)]
        add_hover(axes, values, rows, tips)
    axes.set_xlabel("nats")


def _draw_shares(axes: Axes, models: Sequence[Measures], rows: list[int], theme: Theme) -> None:
    shares = [100 * each.spectrum.largest_share for each in models]
    axes.barh(rows, shares, height=0.4, color=theme.series[1])
    tips = [f"{each.name}: λ₁ is {v:.2f} % of the trace" for each, v in zip(models, shares, strict=True)]
    add_hover(axes, shares, rows, tips)
    axes.set_xlabel("$\\lambda_1(WW^T)$, % of trace")


def draw_settings(
    axes: Axes, lines: Mapping[str, Mapping[int, tuple[float, float]]], ticks: Sequence[str], theme: Theme
) -> None:
    """Draw a search: one line for each label, with a score and its deviation over seeds at the places it has."""
    for number, (label, found) in enumerate(lines.items()):
        axes.errorbar(
            list(found),
            [score for score, _ in found.values()],
            yerr=[deviation for _, deviation in found.values()],
            marker=MARKERS[number % len(MARKERS)],
            markersize=4,
            label=label,
            **line(theme, number),
        )
    axes.set_xticks(range(len(ticks)), ticks)
