"""Protocols: how a number was computed, and which papers computed theirs so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from twinpass.registry import Registry


@dataclass(frozen=True)
class Cell:
    """One way to score STS: how subsets are aggregated, which correlation, and with a regressor or without."""

    aggregation: Literal["all", "mean", "wmean"]
    metric: Literal["spearman", "pearson"]
    regressor: bool

    @property
    def name(self) -> str:
        """The cell in words, such as 'all, spearman, no regressor'."""
        return f"{self.aggregation}, {self.metric}, {'regressor' if self.regressor else 'no regressor'}"


# The default of the paper (section 6.1 and appendix B) comes first.
CELLS = tuple(
    Cell(aggregation, metric, regressor)
    for regressor in (False, True)
    for metric in ("spearman", "pearson")
    for aggregation in ("all", "mean", "wmean")
)
DEFAULT_CELL = CELLS[0]

# Table B.1: the cells of each paper.
PAPERS: dict[str, tuple[Cell, ...]] = {
    "Hill et al., 2016": (Cell("all", "spearman", False), Cell("all", "pearson", False)),
    "Conneau et al., 2017 (InferSent)": (Cell("mean", "pearson", True),),
    "Conneau and Kiela, 2018 (SentEval)": (Cell("mean", "pearson", True),),
    "Reimers and Gurevych, 2019 (SBERT)": (Cell("all", "spearman", False),),
    "Zhang et al., 2020 (IS-BERT)": (Cell("all", "spearman", False),),
    "Li et al., 2020 (BERT-flow)": (Cell("wmean", "spearman", False),),
    "Su et al., 2021 (whitening)": (Cell("wmean", "spearman", False),),
    "Wieting et al., 2020": (Cell("mean", "pearson", False),),
    "Giorgi et al., 2020 (DeCLUTR)": (Cell("mean", "spearman", False),),
    "Gao et al., 2021 (SimCSE)": (Cell("all", "spearman", False),),
}


def papers_using(cell: Cell) -> tuple[str, ...]:
    """Return the papers whose published numbers may be compared with this cell."""
    return tuple(paper for paper, cells in PAPERS.items() if cell in cells)


@dataclass(frozen=True, kw_only=True)
class TransferProtocol:
    """How SentEval trains the logistic regression on frozen vectors."""

    name: str
    folds: int
    optimizer: Literal["adam", "rmsprop"]
    batch_size: int
    tenacity: int  # epoch groups without improvement before it stops, in total
    epoch_size: int  # epochs between two evaluations on dev
    max_epochs: int = 200
    l2: tuple[float, ...] = (1e-5, 1e-4, 1e-3, 1e-2)
    held_out: float = 0.05  # part of the training rows that stops the refit
    seed: int = 1111


TRANSFER: Registry[TransferProtocol] = Registry("transfer protocol")
FULL = TRANSFER.add(
    "full", TransferProtocol(name="full", folds=10, optimizer="adam", batch_size=64, tenacity=5, epoch_size=4)
)
FAST = TRANSFER.add(
    "fast", TransferProtocol(name="fast", folds=5, optimizer="rmsprop", batch_size=128, tenacity=3, epoch_size=2)
)
