"""From the vectors of a batch's passes to its loss: each objective is one equation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from twinpass import equations
from twinpass.config import Run
from twinpass.registry import Registry

# Takes one (N, d) tensor per pass of the view, the run, and the mask of false negatives.
Objective = Callable[[Sequence[Tensor], Run, "Tensor | None"], Tensor]

OBJECTIVES: Registry[Objective] = Registry("objective")


@OBJECTIVES.register("dropout")
def dropout_objective(passes: Sequence[Tensor], run: Run, mask: Tensor | None) -> Tensor:
    """Eq. 4 on two passes; with a shared mask there is one pass, which serves as both."""
    h_z, h_z_prime = passes[0], passes[-1]
    return equations.unsupervised(h_z, h_z_prime, temperature=temperature(run), similarity=_similarity(run), mask=mask)


@OBJECTIVES.register("pairs")
def pairs_objective(passes: Sequence[Tensor], run: Run, mask: Tensor | None) -> Tensor:
    """Eq. 1 on pairs."""
    h, h_pos = passes
    return equations.info_nce(h, h_pos, temperature=temperature(run), similarity=_similarity(run), mask=mask)


@OBJECTIVES.register("triplets")
def triplets_objective(passes: Sequence[Tensor], run: Run, mask: Tensor | None) -> Tensor:
    """Eq. 8 on pairs with hard negatives; with the default weight of 1 it is Eq. 5."""
    h, h_pos, h_neg = passes
    return equations.weighted(
        h,
        h_pos,
        h_neg,
        alpha=run.hard_negative_weight,
        temperature=temperature(run),
        similarity=_similarity(run),
        mask=mask,
    )


def temperature(run: Run) -> float:
    """Return what similarities are divided by: nothing for the dot product (Table D.1, "N/A")."""
    return run.temperature if run.similarity == "cosine" else 1.0


def _similarity(run: Run) -> equations.Similarity:
    return "dot" if run.similarity == "dot" else "cosine"
