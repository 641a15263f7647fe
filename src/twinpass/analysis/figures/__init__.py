"""The figures of the paper for any models, each a function from what was measured to a Drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twinpass.analysis.figures.density import density_figure
from twinpass.analysis.figures.geometry import geometry_figure
from twinpass.analysis.figures.map import map_figure
from twinpass.analysis.figures.spectrum import spectrum_figure
from twinpass.analysis.figures.theory import theory_figure
from twinpass.analysis.measure import Analysis
from twinpass.analysis.sample import Sample
from twinpass.analysis.svg import Drawing


def make_figures(
    sample: Sample, analyses: Sequence[Analysis], *, averages: Mapping[str, float] | None = None
) -> list[Drawing]:
    """Return every figure that these models and this corpus allow; averages are Avg. STS by model name."""
    aligned = [each for each in analyses if each.geometry.alignment is not None]
    graded = [each for each in analyses if each.densities is not None]
    figures = [geometry_figure(sample, aligned, averages or {})] if aligned else []
    figures.append(spectrum_figure(sample, analyses))
    figures += [density_figure(sample, graded)] if graded else []
    return [*figures, map_figure(sample, analyses), theory_figure(sample, analyses)]
