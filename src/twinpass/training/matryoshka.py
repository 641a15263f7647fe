"""Matryoshka (Kusupati et al., 2022): a vector whose first numbers are good vectors themselves.

With M the sizes and L any loss of vectors, what is minimised is

    1 / |M| * sum over m in M of L(h[:m])

where h[:m] are the first m numbers of every vector. The paper's Eq. 1 sums with weights c_m, all 1 in its experiments;
the mean is the same up to a factor, and keeps the loss on the scale that clipping and other losses expect. The
whole vector is always one of the sizes. L normalises inside, so that each size has cosines of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from twinpass.config import Run, read_sizes
from twinpass.errors import ConfigError
from twinpass.training.objectives import Lesson


def sizes_of(run: Run, whole: int) -> tuple[int, ...]:
    """Return the sizes that a run trains vectors of `whole` dimensions for, the largest first; none without."""
    if run.matryoshka is None:
        return ()
    sizes = read_sizes(run.matryoshka, what="matryoshka")
    if sizes[0] > whole:
        raise ConfigError(f"matryoshka asks for {sizes[0]} dimensions, and the model's vectors have {whole}.")
    return sizes if sizes[0] == whole else (whole, *sizes)


def over_prefixes(learn: Callable[[list[Tensor]], Lesson], passes: Sequence[Tensor], sizes: Sequence[int]) -> Lesson:
    """Return a lesson whose loss is the mean over sizes, from the first numbers of vectors (n, d) of several passes.

    Without sizes it is the lesson of the vectors themselves.
    """
    if not sizes:
        return learn([*passes])
    lessons = [learn([vectors[..., :size] for vectors in passes]) for size in sizes]
    return lessons[0]._replace(loss=torch.stack([lesson.loss for lesson in lessons]).mean())
