"""Section 5 in one figure: Eq. 7 bounds Eq. 6's second term from below; the largest eigenvalue goes with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from twinpass.analysis.figures.parts import sentence
from twinpass.analysis.geometry import TEMPERATURE
from twinpass.analysis.measure import Analysis
from twinpass.analysis.sample import Sample
from twinpass.analysis.style import COLUMN, Theme, short
from twinpass.analysis.svg import Drawing, add_hover

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def theory_figure(sample: Sample, analyses: Sequence[Analysis]) -> Drawing:
    """Draw both sides of the inequality for each model, and the largest eigenvalue's share of the trace."""

    def draw(theme: Theme) -> Figure:
        figure = Figure(figsize=(COLUMN, 0.85 + 0.34 * max(2, len(analyses))))
        grid: Any = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
        rows = list(range(len(analyses)))
        _draw_bounds(grid[0], analyses, rows, theme)
        _draw_shares(grid[1], analyses, rows, theme)
        for row, each in zip(rows, analyses, strict=True):
            where = {"x": 0.02, "y": row - 0.28, "transform": grid[0].get_yaxis_transform()}
            grid[0].text(**where, s=short(each.name, 38), fontsize=6.5, va="bottom", in_layout=False)
        grid[0].set_yticks([])
        grid[0].set_ylim(len(analyses) - 0.55, -0.85)  # the first model on top
        figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper right", ncols=2, handletextpad=0.2)
        return figure

    caption = (
        f"Left: the second term of Eq. 6 (temperature {TEMPERATURE}) and its lower bound by Jensen's inequality, "
        "Eq. 7. Right: the largest eigenvalue of the matrix of cosines as a share of its trace, which contrastive "
        f"training makes small. {sentence(sample.protocol)}"
    )
    return Drawing(name="theory", title="The bound of section 5", caption=caption, draw=draw)


def _draw_bounds(axes: Axes, analyses: Sequence[Analysis], rows: list[int], theme: Theme) -> None:
    bounds = [each.geometry.jensen_bound for each in analyses]
    terms = [each.geometry.negatives_term for each in analyses]
    axes.hlines(rows, bounds, terms, color=theme.faint, linewidth=2, zorder=1)
    axes.scatter(bounds, rows, s=36, marker="|", color=theme.ink, linewidths=1.6, zorder=3, label="Eq. 7")
    axes.scatter(terms, rows, s=20, color=theme.series[0], zorder=3, label="Eq. 6, second term")
    for what, values in (("Eq. 7", bounds), ("Eq. 6's second term", terms)):
        tips = [f"{each.name}: {what} is {v:.3f} nats" for each, v in zip(analyses, values, strict=True)]
        add_hover(axes, values, rows, tips)
    axes.set_xlabel("nats")


def _draw_shares(axes: Axes, analyses: Sequence[Analysis], rows: list[int], theme: Theme) -> None:
    shares = [100 * each.spectrum.largest_share for each in analyses]
    axes.barh(rows, shares, height=0.4, color=theme.series[1])
    tips = [f"{each.name}: λ₁ is {v:.2f} % of the trace" for each, v in zip(analyses, shares, strict=True)]
    add_hover(axes, shares, rows, tips)
    axes.set_xlabel("$\\lambda_1(WW^T)$, % of trace")
