"""An index as it was at one moment: open segments, and the search over them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinpass.errors import InputError
from twinpass.search.approximate import EXACT, HNSW_FROM, Approximate, load
from twinpass.search.exact import Floats, Rows, best, empty, top
from twinpass.search.manifest import Manifest, read_manifest
from twinpass.search.segment import ENGINE, Ids, Segment, identify
from twinpass.search.where import Condition, check_columns

Mask = NDArray[np.bool_]
ATTEMPTS = 10  # to read an index that is being changed: each change takes far longer than opening


class Snapshot:
    """Segments that nobody changes, even if the index moves on; a row counts through all of them.

    Segments that an earlier snapshot holds open already are taken from there, with all they have read.
    """

    def __init__(self, folder: Path, manifest: Manifest, earlier: Sequence[Segment] = ()) -> None:
        self.folder = folder
        self.manifest = manifest
        known = {segment.identity: segment for segment in earlier}
        self.segments = [
            known.get(identify(folder / part.name))
            or Segment(folder / part.name, rows=part.rows, dimensions=manifest.dimensions)
            for part in manifest.parts
        ]
        self.starts: Ids = np.cumsum([0, *(part.rows for part in manifest.parts)])
        self.removed: Ids = (
            np.load(folder / manifest.removed, allow_pickle=False) if manifest.removed else np.empty(0, np.int64)
        )

    @cached_property
    def ids(self) -> Ids:
        """The id of every row, ascending."""
        return np.concatenate([np.empty(0, np.int64), *(segment.ids for segment in self.segments)])

    @cached_property
    def alive(self) -> Mask:
        """Which rows were not removed."""
        return ~np.isin(self.ids, self.removed, assume_unique=True)

    @property
    def living_ids(self) -> Ids:
        """The ids of the rows that were not removed, ascending."""
        return self.ids[self.alive]

    def locate(self, row: int) -> tuple[Segment, int]:
        """Return the segment of a row and its place there."""
        place = int(np.searchsorted(self.starts, row, side="right")) - 1
        return self.segments[place], row - int(self.starts[place])

    def rows_of(self, ids: Sequence[int] | Ids) -> Rows:
        """Return the rows that have these ids, or say which is not there."""
        try:
            wanted = np.asarray(ids, dtype=np.int64).reshape(-1)
        except OverflowError:
            raise InputError(f"{self.folder} has no row with the id {max(ids, key=abs)}.") from None
        rows = np.searchsorted(self.ids, wanted)
        found = rows < len(self.ids)
        found[found] = (self.ids[rows[found]] == wanted[found]) & self.alive[rows[found]]
        if not found.all():
            raise InputError(f"{self.folder} has no row with the id {wanted[~found][0]}.")
        return rows

    def vectors(self, rows: Rows) -> Floats:
        """Return the unit vectors (n, d) of some rows."""
        vectors = np.empty((len(rows), self.manifest.dimensions), np.float32)
        for segment, start in zip(self.segments, self.starts, strict=False):
            here = (rows >= start) & (rows < start + len(segment))
            vectors[here] = segment.vectors[rows[here] - start]
        return vectors

    def meeting(self, conditions: Sequence[Condition]) -> Mask:
        """Return which rows meet every condition and were not removed."""
        check_columns(conditions, self.manifest.columns)
        mask = self.alive.copy()
        for condition in conditions:
            values = (value for segment in self.segments for value in segment.column(condition.column))
            mask &= np.fromiter(map(condition.holds, values), bool, len(mask))
        return mask

    def nearest(self, queries: Floats, k: int, allowed: Mask | None = None) -> tuple[Floats, Rows]:
        """Return cosines and rows (n, at most k) of what is nearest to unit vectors; a row of -1 stands for none."""
        if allowed is None and len(self.removed):
            allowed = self.alive
        found = empty(len(queries))
        for place in range(len(self.segments)):
            start, end = self.starts[place : place + 2]
            scores, rows = self._search(place, queries, k, None if allowed is None else allowed[start:end])
            found = best(k, found, (scores, np.where(rows < 0, rows, rows + start)))
        return found

    def _search(self, place: int, queries: Floats, k: int, allowed: Mask | None) -> tuple[Floats, Rows]:
        """Search one segment: exactly where it is small, or where few of its rows are allowed."""
        vectors = self.segments[place].vectors
        if allowed is not None and allowed.all():
            allowed = None
        few = allowed is not None and allowed.sum() < min(HNSW_FROM, len(allowed) // 2)
        engine = None if few or self.manifest.parts[place].kind == EXACT else self._engine(place)
        if engine is None:
            return top(queries, vectors, k=k, chosen=None if allowed is None else np.flatnonzero(allowed))
        return engine.top(queries, k=k, allowed=allowed)

    def _engine(self, place: int) -> Approximate | None:
        """Read what an approximate search needs; None if a writer took it away, while we hold the vectors open."""
        part, segment = self.manifest.parts[place], self.segments[place]
        if segment.engine is None:
            path = segment.folder / ENGINE
            if not path.exists():
                return None
            try:
                segment.engine = load(path, part.kind, segment.vectors, int(part.quality["effort"]))
            except RuntimeError as error:  # of faiss, with a page about its own source
                raise InputError(f"{path} is damaged. Build the index again.") from error
        engine: Approximate = segment.engine
        return engine


def open_snapshot(folder: Path, earlier: Sequence[Segment] = ()) -> Snapshot:
    """Open an index as it is now; a writer that replaces its files meanwhile makes us look again."""
    for _ in range(ATTEMPTS):
        manifest = read_manifest(folder)
        try:
            return Snapshot(folder, manifest, earlier)
        except FileNotFoundError as error:
            missing = error
        except (ValueError, EOFError) as error:  # a file that is shorter than it was, or has other bytes
            raise InputError(f"{folder} is damaged: {error}. Build it again.") from error
    raise InputError(f"{folder} is damaged: {missing.filename or missing} is missing. Build it again.")
