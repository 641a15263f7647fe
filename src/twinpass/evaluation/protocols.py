"""Protocols: how a number was computed, which papers computed theirs so, and the numbers that SimCSE published.

Those of Tables 5, B.2, B.3, C.1 and E.1 are in published.tsv, number for number.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

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
FULL = TRANSFER.add("full", TransferProtocol(folds=10, optimizer="adam", batch_size=64, tenacity=5, epoch_size=4))
FAST = TRANSFER.add("fast", TransferProtocol(folds=5, optimizer="rmsprop", batch_size=128, tenacity=3, epoch_size=2))


class Published(NamedTuple):
    """One row of a table: values of the seven tasks in the order of GROUPS, then their average."""

    table: str
    model: str
    training: str  # "unsupervised", "supervised", or empty where the table does not say
    source: str  # the paper the row was quoted from; empty where SimCSE's authors measured it
    cell: Cell | None  # the STS protocol; None for transfer accuracy
    values: tuple[float, ...]


def _read(row: Mapping[str, str]) -> Published:
    """Table B.2 mixes aggregations, so that each row names its own; all are Spearman without a regressor."""
    cells = {"all": Cell("all", "spearman", False), "wmean": Cell("wmean", "spearman", False), "": None}
    values = tuple(map(float, row["values"].split()))
    return Published(row["table"], row["model"], row["training"], row["source"], cells[row["aggregation"]], values)


with Path(__file__).with_name("published.tsv").open(encoding="utf-8", newline="") as _stream:
    PUBLISHED = tuple(map(_read, csv.DictReader(_stream, delimiter="\t", quoting=csv.QUOTE_NONE)))


def published_beside(cell: Cell | None) -> list[Published]:
    """Return the rows that a score may be compared with: those of the same protocol, each model once."""
    rows = {row.values: row for row in reversed(PUBLISHED) if row.cell == cell}
    return list(rows.values())[::-1]
