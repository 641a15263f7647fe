"""The numbers of the big tables, which the evaluation knows already, under the keys of a recipe's rows."""

from __future__ import annotations

from twinpass.evaluation.published import PUBLISHED

STS_COLUMNS = {
    "sts12": "STS12",
    "sts13": "STS13",
    "sts14": "STS14",
    "sts15": "STS15",
    "sts16": "STS16",
    "stsb": "STS-B",
    "sickr": "SICK-R",
    "avg": "Avg.",
}
TRANSFER_COLUMNS = {
    "mr": "MR",
    "cr": "CR",
    "subj": "SUBJ",
    "mpqa": "MPQA",
    "sst2": "SST",
    "trec": "TREC",
    "mrpc": "MRPC",
    "avg": "Avg.",
}


def by_key(table: str, keys: str) -> dict[str, tuple[float | None, ...]]:
    """Return a table's numbers under keys that stand in the order of its rows."""
    rows = [row for row in PUBLISHED if row.table == table]
    return {key: tuple(row.values) for key, row in zip(keys.split(), rows, strict=True)}


def averages(table: str, models: dict[str, tuple[str, str]]) -> dict[str, float]:
    """Return Avg. of some models of a table, each by its training and its name there."""
    known = {(row.training, row.model): row.values[-1] for row in PUBLISHED if row.table == table}
    return {key: known[model] for key, model in models.items()}
