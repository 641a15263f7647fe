"""What the paper published: Tables 5, B.2, B.3, C.1 and E.1, number for number, from published.tsv."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

from twinpass.evaluation.protocols import Cell


class Published(NamedTuple):
    """One row of a table: values of the seven tasks in the order of GROUPS, then their average."""

    table: str
    model: str
    training: str  # "unsupervised", "supervised", or empty where the table does not say
    source: str  # the paper the row was quoted from; empty where SimCSE's authors measured it
    cell: Cell | None  # the STS protocol; None for transfer accuracy
    values: tuple[float, ...]


def _read() -> tuple[Published, ...]:
    """Table B.2 mixes aggregations, so that each row names its own; all are Spearman without a regressor."""
    with Path(__file__).with_name("published.tsv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
    cells = {"all": Cell("all", "spearman", False), "wmean": Cell("wmean", "spearman", False), "": None}
    return tuple(
        Published(
            row["table"],
            row["model"],
            row["training"],
            row["source"],
            cells[row["aggregation"]],
            tuple(map(float, row["values"].split())),
        )
        for row in rows
    )


PUBLISHED = _read()


def published_beside(cell: Cell | None) -> list[Published]:
    """Return the rows that a score may be compared with: those of the same protocol, each model once."""
    rows = {row.values: row for row in reversed(PUBLISHED) if row.cell == cell}
    return list(rows.values())[::-1]
