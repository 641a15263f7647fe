"""Figure 3: models as points between alignment and uniformity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from twinpass.analysis.figures.parts import legend, one_panel, or_nan
from twinpass.analysis.measure import Analysis
from twinpass.analysis.sample import Sample
from twinpass.analysis.style import MARKERS, Theme, short
from twinpass.analysis.svg import Drawing, add_hover

AVERAGE = "Avg. STS (Spearman × 100)"
HERE = "Spearman × 100 on these pairs"


def geometry_figure(sample: Sample, analyses: Sequence[Analysis], averages: Mapping[str, float]) -> Drawing:
    """Draw models with an alignment, coloured by average STS where known, else by Spearman on these pairs."""
    label, values = AVERAGE, [averages.get(each.name, math.nan) for each in analyses]
    if not any(map(math.isfinite, values)):
        label, values = HERE, [or_nan(each.geometry.spearman) for each in analyses]

    def draw(theme: Theme) -> Figure:
        figure, axes = one_panel(height=2.3)
        x = [each.geometry.uniformity for each in analyses]
        y = [or_nan(each.geometry.alignment) for each in analyses]
        names = [_with_score(each.name, value) for each, value in zip(analyses, values, strict=True)]
        coloured = _scatter(axes, x, y, values, names, theme)
        tips = [_tip(each, value, label) for each, value in zip(analyses, values, strict=True)]
        add_hover(axes, x, y, tips)
        axes.set_xlabel("uniformity $\\ell_{uniform}$ (lower is better)")
        axes.set_ylabel("alignment $\\ell_{align}$ (lower is better)")
        if coloured is not None:
            bar = figure.colorbar(coloured, ax=axes, pad=0.02, aspect=28)
            bar.set_label(label)
            bar.outline.set_visible(False)
        axes.margins(0.12)
        legend(figure, axes, handle=1.0)
        return figure

    caption = (
        "Alignment (Eq. 2) and uniformity (Eq. 3, t = 2) of unit vectors; lower is better for both. Alignment over "
        f"{analyses[0].geometry.positives:,} positive pairs, uniformity over all pairs of {sample.protocol}. "
        f"Colour and numbers in brackets: {label}; grey: not known."
    )
    return Drawing(name="geometry", title="Alignment and uniformity", caption=caption, draw=draw)


def _scatter(
    axes: Any,
    x: Sequence[float],
    y: Sequence[float],
    values: Sequence[float],
    names: Sequence[str],
    theme: Theme,
) -> Any:
    """Draw the points, each with a marker of its own; return one that a colour bar can go by."""
    known = [value for value in values if math.isfinite(value)]
    coloured = None
    for place, value in enumerate(values):
        style: dict[str, Any] = {"c": theme.faint}
        if math.isfinite(value):
            style = {"c": np.array([value]), "cmap": theme.sequential, "vmin": min(known), "vmax": max(known)}
        drawn = axes.scatter(
            x[place],
            y[place],
            s=36,
            marker=MARKERS[place % len(MARKERS)],
            edgecolors=theme.ink,
            linewidths=0.6,
            zorder=3,
            label=names[place],
            **style,
        )
        coloured = drawn if math.isfinite(value) and min(known) < max(known) else coloured
    return coloured


def _tip(each: Analysis, value: float, label: str) -> str:
    score = f", {label} {value:.2f}" if math.isfinite(value) else ""
    found = each.geometry
    return f"{each.name}: uniformity {found.uniformity:.3f}, alignment {or_nan(found.alignment):.3f}{score}"


def _with_score(name: str, value: float) -> str:
    return short(name, 38) + (f" ({value:.1f})" if math.isfinite(value) else "")
