"""Figure F.1: the singular values of sentence vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from twinpass.analysis.figures.parts import legend, line, one_panel, sentence
from twinpass.analysis.measure import Analysis
from twinpass.analysis.sample import Sample
from twinpass.analysis.style import Theme, short
from twinpass.analysis.svg import Drawing, add_hover

# Below this share of the largest a singular value is rounding noise of single-precision vectors.
NOISE = 1e-4


def spectrum_figure(sample: Sample, analyses: Sequence[Analysis]) -> Drawing:
    """Draw each model's singular values divided by the largest."""
    curves = {each.name: each.spectrum.normalised for each in analyses}
    caption = (
        "Singular values of the matrix of unit sentence vectors, divided by the largest (logarithmic scale; values "
        f"below {NOISE:g} left out); a flatter curve is a more isotropic space. {sentence(sample.protocol)}"
    )
    return Drawing(name="spectrum", title="Singular spectrum", caption=caption, draw=partial(draw_spectra, curves))


def draw_spectra(curves: Mapping[str, NDArray[np.float64]], theme: Theme) -> Figure:
    """Draw a curve for each model, over the index of the singular value."""
    figure, axes = one_panel(height=1.9)
    floor = 1.0
    for place, (name, curve) in enumerate(curves.items()):
        values = curve[curve > NOISE]
        index = np.arange(1, len(values) + 1)
        axes.plot(index, values, label=short(name, 44), **line(theme, place))
        shown = np.unique(np.geomspace(1, max(1, len(values)), 40).astype(int)) - 1
        tips = [f"{name}: singular value {n + 1} is {values[n]:.3f} of the largest" for n in shown]
        add_hover(axes, list(index[shown]), list(values[shown]), tips)
        floor = min(floor, float(values[int(0.97 * (len(values) - 1))]))
    axes.set_yscale("log")
    axes.set_ylim(0.6 * floor, 1.3)  # the last few may fall far: a mean taken out, a scale normalised away
    axes.set_xlabel("index of the singular value")
    axes.set_ylabel("singular value ÷ largest")
    legend(figure, axes)
    return figure
