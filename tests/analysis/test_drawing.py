"""Figures inside a page keep what is to be read; the numbers at ticks are legible however close the values are."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
import pytest

from twinpass.analysis.drawing import LIGHT, Drawing, Theme, _drawn, _overlapping, inline_svg, panels, themed
from twinpass.analysis.figures import Point, draw_geometry


def test_ticks_and_hover_texts_keep_their_decimals() -> None:
    points = [Point("v1.2345", -3.445, 0.2153, 93.34), Point("other", -3.459, 0.2212, 93.27)]
    draw = partial(draw_geometry, points, "score")
    figure = inline_svg(Drawing(name="geometry", title="title", caption="caption", draw=draw))
    ticks = re.findall(r">(0\.\d+)</text>", figure)
    assert len(ticks) > 2 and len(set(ticks)) == len(ticks), "no two ticks have one label"
    assert 'data-tip="v1.2345' in figure
    assert not re.search(r' d="[^"]*\.\d{3}', figure)


@pytest.mark.parametrize("width", [1e-6, 1e-3, 1.0])
def test_numbers_at_ticks_are_values_and_never_overlap(width: float):
    def draw(theme: Theme) -> Any:
        figure, grid = panels(2, height=1.5, single=2.0)
        for axes in grid:
            axes.scatter([-2.134, -2.134 + width], [0.312, 0.312 + width])
        return figure

    with themed(LIGHT):
        figure = _drawn(Drawing(name="close", title="", caption="", draw=draw), LIGHT)
        for axis in (each for axes in figure.axes for each in (axes.xaxis, axes.yaxis)):
            assert not _overlapping(axis) and axis.get_offset_text().get_text() == ""
            low, high = axis.get_view_interval()
            assert any(low <= tick <= high for tick in axis.get_majorticklocs())


def test_close_models_do_not_fill_the_figure_with_a_difference_that_means_nothing():
    points = [Point("a", -2.134120, 0.312070, 75.3120), Point("b", -2.134121, 0.312071, 75.3121)]
    with themed(LIGHT):
        figure = _drawn(Drawing(name="g", title="", caption="", draw=partial(draw_geometry, points, "score")), LIGHT)
        axes, bar = figure.axes
        assert np.ptp(axes.get_xlim()) == pytest.approx(0.02) and np.ptp(axes.get_ylim()) == pytest.approx(0.02)
        assert np.ptp(bar.get_ylim()) == pytest.approx(1.0)
