"""Figures inside a page: coordinates are cut short, what is to be read is not."""

from __future__ import annotations

import re
from functools import partial

from twinpass.analysis.drawing import Drawing, inline_svg
from twinpass.analysis.figures import Point, draw_geometry


def test_ticks_and_hover_texts_keep_their_decimals() -> None:
    points = [Point("v1.2345", -3.445, 0.2153, 93.34), Point("other", -3.459, 0.2212, 93.27)]
    draw = partial(draw_geometry, points, "score")
    figure = inline_svg(Drawing(name="geometry", title="title", caption="caption", draw=draw))
    ticks = re.findall(r">(0\.\d+)</text>", figure)
    assert len(ticks) > 2 and len(set(ticks)) == len(ticks), "no two ticks have one label"
    assert 'data-tip="v1.2345' in figure
    assert not re.search(r' d="[^"]*\.\d{3}', figure)
