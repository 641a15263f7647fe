"""Figure 3: models as points between alignment and uniformity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from twinpass.analysis.figures.parts import legend, one_panel, or_nan
from twinpass.analysis.measure import Analysis
from twinpass.analysis.sample import Sample
from twinpass.analysis.style import MARKERS, Theme, short
from twinpass.analysis.svg import Drawing, add_hover

AVERAGE = "Avg. STS (Spearman × 100)"
HERE = "Spearman × 100 on these pairs"


class Point(NamedTuple):
    """A model between uniformity and alignment, with the score that gives it its colour; NaN if unknown."""

    name: str
    uniformity: float
    alignment: float
    score: float


def geometry_figure(sample: Sample, analyses: Sequence[Analysis], averages: Mapping[str, float]) -> Drawing:
    """Draw models with an alignment, coloured by average STS where known, else by Spearman on these pairs."""
    label, values = AVERAGE, [averages.get(each.name, math.nan) for each in analyses]
    if not any(map(math.isfinite, values)):
        label, values = HERE, [or_nan(each.geometry.spearman) for each in analyses]

    points = [
        Point(each.name, each.geometry.uniformity, or_nan(each.geometry.alignment), value)
        for each, value in zip(analyses, values, strict=True)
    ]
    caption = (
        "Alignment (Eq. 2) and uniformity (Eq. 3, t = 2) of unit vectors; lower is better for both. Alignment over "
        f"{analyses[0].geometry.positives:,} positive pairs, uniformity over all pairs of {sample.protocol}. "
        f"Colour and numbers in brackets: {label}; grey: not known."
    )
    return Drawing(
        name="geometry", title="Alignment and uniformity", caption=caption, draw=partial(draw_geometry, points, label)
    )


def draw_geometry(points: Sequence[Point], label: str, theme: Theme) -> Figure:
    """Draw a point for each model; the label says what the scores are."""
    figure, axes = one_panel(height=2.3)
    coloured = _scatter(axes, points, theme)
    tips = [_tip(point, label) for point in points]
    add_hover(axes, [point.uniformity for point in points], [point.alignment for point in points], tips)
    axes.set_xlabel("uniformity $\\ell_{uniform}$ (lower is better)")
    axes.set_ylabel("alignment $\\ell_{align}$ (lower is better)")
    if coloured is not None:
        bar = figure.colorbar(coloured, ax=axes, pad=0.02, aspect=28)
        bar.set_label(label)
        bar.outline.set_visible(False)
    axes.margins(0.12)
    legend(figure, axes, handle=1.0)
    return figure


def _scatter(axes: Any, points: Sequence[Point], theme: Theme) -> Any:
    """Draw the points, each with a marker of its own; return one that a colour bar can go by."""
    known = [point.score for point in points if math.isfinite(point.score)]
    coloured = None
    for place, point in enumerate(points):
        scored = math.isfinite(point.score)
        style: dict[str, Any] = {"c": theme.faint}
        if scored:
            style = {"c": np.array([point.score]), "cmap": theme.sequential, "vmin": min(known), "vmax": max(known)}
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
        coloured = drawn if scored and min(known) < max(known) else coloured
    return coloured


def _tip(point: Point, label: str) -> str:
    score = f", {label} {point.score:.2f}" if math.isfinite(point.score) else ""
    return f"{point.name}: uniformity {point.uniformity:.3f}, alignment {point.alignment:.3f}{score}"
