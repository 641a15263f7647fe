"""Near-duplicates: which texts to keep so that no two kept ones say nearly the same."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from twinpass.display import Displayed, Grid
from twinpass.errors import ConfigError
from twinpass.search.engines.exact import Floats
from twinpass.text.tables import check_table, joined, write_lines, write_table

if TYPE_CHECKING:
    from twinpass.search.index import Index

BLOCK = 2_048  # rows compared with as many others at a time
NEIGHBOURS = 32  # compared with each text of an approximate index
ROUNDING = 1e-6  # the cosine of equal texts may differ from 1 by this much
SHOWN_GROUPS, SHOWN_OTHERS = 20, 5

Kept = NDArray[np.int64]  # for each row the first kept row that it is near: itself if it is kept


@dataclass(frozen=True, repr=False)
class Duplicates(Displayed):
    """The groups of near-duplicates of an index; `exact` is False if only nearest neighbours were compared."""

    threshold: float
    exact: bool
    model: Mapping[str, Any]
    texts: int
    groups: Sequence[Mapping[str, Any]]  # {"kept": {id, text}, "others": [{id, text, cosine}]}, by the kept id

    @property
    def duplicates(self) -> int:
        """Number of texts that are near a kept one."""
        return sum(len(group["others"]) for group in self.groups)

    @property
    def kept(self) -> int:
        """Number of texts that are kept."""
        return self.texts - self.duplicates

    def to_dict(self) -> dict[str, Any]:
        """Return counts and groups as JSON can hold them."""
        return super().to_dict() | {"kept": self.kept, "duplicates": self.duplicates}

    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary per duplicate, with the text that is kept instead."""
        return [
            {"kept_id": group["kept"]["id"], "kept": group["kept"]["text"], **other}
            for group in self.groups
            for other in group["others"]
        ]

    def grids(self) -> Sequence[Grid]:
        """Return the first groups as a table."""
        if not self.groups:
            return [Grid("", (), (), notes=("no two texts are that near",))]
        rows: list[tuple[str, str, str]] = []
        for group in self.groups[:SHOWN_GROUPS]:
            rows.append(("kept", str(group["kept"]["id"]), group["kept"]["text"]))
            others = group["others"]
            rows += [
                (f"{other['cosine']:.4f}", str(other["id"]), f"  {other['text']}") for other in others[:SHOWN_OTHERS]
            ]
            rows += [("", "", f"  and {len(others) - SHOWN_OTHERS:,} more")] if len(others) > SHOWN_OTHERS else []
        more = len(self.groups) - SHOWN_GROUPS
        notes = (f"{more:,} more groups; all with --json or to_dict()",) if more > 0 else ()
        return [Grid("", ("cosine", "id", "text"), rows, notes=notes, words=("text",))]


def find_duplicates(index: Index, threshold: float, *, output: str | os.PathLike[str] | None = None) -> Duplicates:
    """Return the near-duplicates of an index; write the texts that are kept to a file.

    Rows are taken in order: one whose cosine with an earlier kept row reaches the threshold belongs to the first such
    row, every other row is kept. An approximate index compares each row only with its nearest neighbours.
    """
    if output is not None:
        check_output(output)
    if not 0 < threshold <= 1:
        raise ConfigError(f"the threshold is {threshold}; expected a cosine above 0 and at most 1.")
    ids = index.numbers()
    kept, cosines = (_exactly if index.exact else _by_neighbours)(index, ids, threshold - ROUNDING)
    members: dict[int, list[int]] = defaultdict(list)
    for row in np.flatnonzero(kept != np.arange(len(kept))).tolist():
        members[int(kept[row])].append(row)
    groups = []
    for leader, rows in sorted(members.items()):
        first, *others = (
            {"id": entry.id, "text": entry.text} for entry in index.entries_numbered(ids[[leader, *rows]])
        )
        near = [other | {"cosine": round(float(cosines[row]), 6)} for other, row in zip(others, rows, strict=True)]
        groups.append({"kept": first, "others": near})
    if output is not None:
        leaders = ids[kept == np.arange(len(kept))]
        _write_kept(output, index, leaders)
    return Duplicates(threshold, index.exact, index.model, len(ids), groups)


def check_output(output: str | os.PathLike[str]) -> None:
    """Refuse a file that could not be written later."""
    check_table(output, also=(".txt",))


def _write_kept(output: str | os.PathLike[str], index: Index, kept: Kept) -> None:
    """Write the texts that are kept: one per line of a .txt, or with ids and metadata."""
    entries = (
        entry for start in range(0, len(kept), BLOCK) for entry in index.entries_numbered(kept[start : start + BLOCK])
    )
    if Path(output).suffix == ".txt":
        write_lines(output, (" ".join(entry.text.splitlines()) for entry in entries))
    else:
        rows = (joined({"id": entry.id, "text": entry.text}, entry.metadata) for entry in entries)
        write_table(output, rows, columns=("id", "text"))


def _exactly(index: Index, ids: Kept, least: float) -> tuple[Kept, Floats]:
    kept = np.arange(len(ids))
    cosines = np.ones(len(ids), np.float32)
    for start in range(0, len(ids), BLOCK):
        rows = np.arange(start, min(start + BLOCK, len(ids)))
        vectors = index.vectors_numbered(ids[rows])
        leaders = _settle_block(rows, vectors @ vectors.T, kept, cosines, least)
        for later in _blocks(start + BLOCK, len(ids)):
            _follow(
                later, index.vectors_numbered(ids[later]) @ vectors[leaders - start].T, leaders, kept, cosines, least
            )
    return kept, cosines


def _settle_block(rows: Kept, near: Floats, kept: Kept, cosines: Floats, least: float) -> Kept:
    """Decide which rows of a block are kept, given all their cosines (n, n); return those."""
    for place, row in enumerate(rows):
        if kept[row] == row:
            free = place + 1 + np.flatnonzero(kept[rows[place + 1 :]] == rows[place + 1 :])
            taken = free[near[place, free] >= least]
            kept[rows[taken]], cosines[rows[taken]] = row, near[place, taken]
    leaders: Kept = rows[kept[rows] == rows]
    return leaders


def _follow(later: Kept, near: Floats, leaders: Kept, kept: Kept, cosines: Floats, least: float) -> None:
    """Assign each later row that is still free to the first of the leaders that it is near."""
    if not len(leaders):
        return
    first = (near >= least).argmax(axis=1)
    score = near[np.arange(len(later)), first]
    taken = (score >= least) & (kept[later] == later)
    kept[later[taken]], cosines[later[taken]] = leaders[first[taken]], score[taken]


def _by_neighbours(index: Index, ids: Kept, least: float) -> tuple[Kept, Floats]:
    """Assign each row to the first kept row that it, or an earlier neighbour of it, is near."""
    kept = np.arange(len(ids))
    cosines = np.ones(len(ids), np.float32)
    for rows in _blocks(0, len(ids)):
        vectors = index.vectors_numbered(ids[rows])
        scores, found = index.nearest(vectors, NEIGHBOURS)
        places = np.searchsorted(ids, np.maximum(found, 0))
        for row, vector, near, these in zip(rows.tolist(), vectors, scores >= least, places, strict=True):
            firsts = np.unique(kept[these[near]])
            firsts = firsts[firsts < row]
            score = index.vectors_numbered(ids[firsts]) @ vector
            if (score >= least).any():
                best = int((score >= least).argmax())
                kept[row], cosines[row] = firsts[best], score[best]
    return kept, cosines


def _blocks(start: int, end: int) -> Iterator[Kept]:
    for first in range(start, end, BLOCK):
        yield np.arange(first, min(first + BLOCK, end))
