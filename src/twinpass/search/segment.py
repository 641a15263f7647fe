"""Segments: rows of an index that were written together, in files that never change; and the snapshot over them.

vectors.f32    unit vectors, row after row
ids.i64        ascending; an id is never given twice
digests.u64    8 bytes of each text's hash, to find equal texts
rows.arrow     texts, and metadata as JSON, read by memory map
engine.faiss   what an approximate search needs; absent where search is exact
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinpass.errors import InputError
from twinpass.search.engines.approximate import EXACT, HNSW_FROM, Approximate
from twinpass.search.engines.exact import Floats, Rows, best, empty, top
from twinpass.search.filters import Condition, check_columns
from twinpass.search.manifest import Manifest, identify, read_manifest
from twinpass.search.results import Hit
from twinpass.vectors import unit

Ids = NDArray[np.int64]
Digests = NDArray[np.uint64]
Mask = NDArray[np.bool_]

BATCH = 4_096  # rows in one block, which becomes one record batch of rows.arrow
ATTEMPTS = 10  # to read an index that is being changed: each change takes far longer than opening
VECTORS, IDS, DIGESTS, ROWS, ENGINE = "vectors.f32", "ids.i64", "digests.u64", "rows.arrow", "engine.faiss"


class Block(NamedTuple):
    """Some rows to index: texts, their vectors (n, d), and optionally a dictionary of metadata for each."""

    texts: Sequence[str]
    vectors: Floats
    metadata: Sequence[Mapping[str, Any]] | None = None


def digest_of(texts: Iterable[str]) -> Digests:
    """Return 8 bytes of each text's hash: equal for equal texts, and practically never for different ones."""
    return np.array(
        [int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") for text in texts],
        dtype=np.uint64,
    )


class Prepared(NamedTuple):
    """A block ready to write: its rows' digests, their ids unless they are new, and how many rows were skipped."""

    block: Block
    digests: Digests
    ids: Ids | None = None
    skipped: int = 0


def write_segment(
    folder: Path, blocks: Iterable[Prepared], *, dimensions: int, next_id: int
) -> tuple[int, tuple[str, ...], int]:
    """Write blocks, one after another; return how many rows, their metadata columns, and how many rows were skipped."""
    import pyarrow as pa

    folder.mkdir()
    rows = skipped = 0
    columns: dict[str, None] = {}
    schema = pa.schema([("text", pa.large_string()), ("metadata", pa.large_string())])
    with contextlib.ExitStack() as stack:
        files = {name: stack.enter_context((folder / name).open("wb")) for name in (VECTORS, IDS, DIGESTS, ROWS)}
        table = stack.enter_context(pa.ipc.new_file(files[ROWS], schema))
        for (texts, given, metadata), digests, ids, less in blocks:
            vectors = unit(np.asarray(given, dtype=np.float32))
            check_vectors(vectors, rows=len(texts), dimensions=dimensions)
            new = np.arange(next_id + rows, next_id + rows + len(texts)) if ids is None else ids
            for name, array, kind in ((VECTORS, vectors, "<f4"), (IDS, new, "<i8"), (DIGESTS, digests, "<u8")):
                files[name].write(array.astype(kind, copy=False).tobytes())
            notes = [_to_json(each) for each in metadata] if metadata else [""] * len(texts)
            table.write_batch(pa.record_batch([pa.array(each, pa.large_string()) for each in (texts, notes)], schema))
            columns.update(dict.fromkeys(name for each in metadata or () for name in each))
            rows, skipped = rows + len(texts), skipped + less
    return rows, tuple(columns), skipped


class Segment:
    """Rows to read; they stay on the disk until they are needed."""

    def __init__(self, folder: Path, *, rows: int, dimensions: int) -> None:
        import pyarrow as pa

        self.folder = folder
        self.identity = identify(folder / VECTORS)
        self.engine: Approximate | None = None  # what searches it approximately, once it was read
        self.vectors: Floats = np.memmap(folder / VECTORS, "<f4", "r", shape=(rows, dimensions))
        self.ids: Ids = np.memmap(folder / IDS, "<i8", "r", shape=(rows,))
        self.digests: Digests = np.memmap(folder / DIGESTS, "<u8", "r", shape=(rows,))
        self._file = pa.ipc.open_file(pa.memory_map(str(folder / ROWS)))
        sizes = [self._file.get_batch(place).num_rows for place in range(self._file.num_record_batches)]
        self._starts = np.cumsum([0, *sizes]).tolist()
        if self._starts[-1] != rows:
            raise InputError(f"{folder} has {self._starts[-1]:,} texts, expected {rows:,}: the index is damaged.")
        self._columns: dict[str, list[Any]] = {}

    def __len__(self) -> int:
        return len(self.ids)

    def text(self, row: int) -> str:
        """Return the text of a row."""
        return str(self._value("text", row))

    def metadata(self, row: int) -> dict[str, Any]:
        """Return the metadata of a row."""
        return _from_json(self._value("metadata", row))

    def column(self, name: str) -> list[Any]:
        """Return one metadata column, None where a row has no value; kept in memory once it was read."""
        if name not in self._columns:
            self._columns[name] = [
                _from_json(note).get(name)
                for place in range(self._file.num_record_batches)
                for note in self._file.get_batch(place).column("metadata").to_pylist()
            ]
        return self._columns[name]

    def block(self, rows: Ids) -> Block:
        """Return some rows as they were written."""
        metadata = [self.metadata(int(row)) for row in rows]
        return Block([self.text(int(row)) for row in rows], self.vectors[rows], metadata)

    def _value(self, column: str, row: int) -> str:
        place = bisect_right(self._starts, row) - 1
        value: str = self._file.get_batch(place).column(column)[row - self._starts[place]].as_py()
        return value


def check_vectors(vectors: Floats, *, rows: int | None = None, dimensions: int) -> None:
    """Refuse vectors that cannot belong to an index."""
    expected = (len(vectors) if rows is None else rows, dimensions)
    if vectors.shape != expected:
        raise InputError(f"expected vectors of shape {expected}, got {vectors.shape}.")
    if not np.isfinite(vectors).all():
        raise InputError("a vector holds a non-finite value, so it has no cosine with anything.")


def _to_json(metadata: Mapping[str, Any]) -> str:
    return json.dumps(metadata, ensure_ascii=False, default=str) if metadata else ""


def _from_json(note: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(note) if note else {}
    return found


class Snapshot:
    """An index as it was at one moment; rows are counted through all its segments.

    Segments that an earlier snapshot has open are taken from there, with what they have read.
    """

    def __init__(self, folder: Path, manifest: Manifest, earlier: Sequence[Segment] = ()) -> None:
        self.folder = folder
        self.manifest = manifest
        known = {segment.identity: segment for segment in earlier}
        self.segments = [
            known.get(identify(folder / part.name / VECTORS))
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
    def digests(self) -> Digests:
        """The digest of every row's text."""
        return np.concatenate([np.empty(0, np.uint64), *(segment.digests for segment in self.segments)])

    @cached_property
    def alive(self) -> Mask:
        """Which rows are not removed."""
        return ~np.isin(self.ids, self.removed, assume_unique=True)

    @property
    def living_ids(self) -> Ids:
        """The ids of the rows that are not removed, ascending."""
        return self.ids[self.alive]

    def locate(self, row: int) -> tuple[Segment, int]:
        """Return the segment of a row and its position there."""
        place = int(np.searchsorted(self.starts, row, side="right")) - 1
        return self.segments[place], row - int(self.starts[place])

    def hit(self, row: int, score: float) -> Hit:
        """Return a row with its text and metadata."""
        segment, place = self.locate(row)
        return Hit(int(segment.ids[place]), segment.text(place), score, segment.metadata(place))

    def rows_of(self, ids: Sequence[int] | Ids) -> Rows:
        """Return the rows that have these ids, or say which id is missing."""
        try:
            given = np.asarray(ids, dtype=np.int64).reshape(-1)
        except OverflowError:
            raise InputError(f"{self.folder} has no row with the id {max(ids, key=abs)}.") from None
        rows = np.searchsorted(self.ids, given)
        found = rows < len(self.ids)
        found[found] = (self.ids[rows[found]] == given[found]) & self.alive[rows[found]]
        if not found.all():
            raise InputError(f"{self.folder} has no row with the id {given[~found][0]}.")
        return rows

    def vectors(self, rows: Rows) -> Floats:
        """Return the unit vectors (n, d) of some rows."""
        vectors = np.empty((len(rows), self.manifest.dimensions), np.float32)
        for segment, start in zip(self.segments, self.starts, strict=False):
            here = (rows >= start) & (rows < start + len(segment))
            vectors[here] = segment.vectors[rows[here] - start]
        return vectors

    def meeting(self, conditions: Sequence[Condition]) -> Mask:
        """Return which rows meet every condition and are not removed."""
        check_columns(conditions, self.manifest.columns)
        mask = self.alive.copy()
        for condition in conditions:
            values = (value for segment in self.segments for value in segment.column(condition.column))
            mask &= np.fromiter(map(condition.holds, values), bool, len(mask))
        return mask

    def nearest(self, queries: Floats, k: int, allowed: Mask | None = None) -> tuple[Floats, Rows]:
        """Return cosines and rows (n, at most k) of the nearest to unit vectors; a row of -1 means none."""
        if allowed is None and len(self.removed):
            allowed = self.alive
        found = empty(len(queries))
        for place in range(len(self.segments)):
            start, end = self.starts[place : place + 2]
            scores, rows = self._search(place, queries, k, None if allowed is None else allowed[start:end])
            found = best(k, found, (scores, np.where(rows < 0, rows, rows + start)))
        return found

    def _search(self, place: int, queries: Floats, k: int, allowed: Mask | None) -> tuple[Floats, Rows]:
        """Search one segment: exactly if it is small, or if few of its rows are allowed."""
        vectors = self.segments[place].vectors
        if allowed is not None and allowed.all():
            allowed = None
        few = allowed is not None and allowed.sum() < min(HNSW_FROM, len(allowed) // 2)
        engine = None if few or self.manifest.parts[place].kind == EXACT else self._engine(place)
        if engine is None:
            return top(queries, vectors, k=k, chosen=None if allowed is None else np.flatnonzero(allowed))
        return engine.top(queries, k=k, allowed=allowed)

    def _engine(self, place: int) -> Approximate | None:
        """Read what an approximate search needs; None if a writer deleted it while we hold the vectors open."""
        part, segment = self.manifest.parts[place], self.segments[place]
        if segment.engine is None:
            path = segment.folder / ENGINE
            if not path.exists():
                return None
            try:
                segment.engine = Approximate.load(path, part.kind, segment.vectors, int(part.quality["effort"]))
            except RuntimeError as error:  # from faiss, with details about its own source
                raise InputError(f"{path} is damaged. Build the index again.") from error
        return segment.engine


def open_snapshot(folder: Path, earlier: Sequence[Segment] = ()) -> Snapshot:
    """Open an index as it is now; if a writer replaces its files meanwhile, try again."""
    for _ in range(ATTEMPTS):
        manifest = read_manifest(folder)
        try:
            return Snapshot(folder, manifest, earlier)
        except FileNotFoundError as error:
            missing = error
        except (ValueError, EOFError) as error:  # a file that is shorter than it was, or has other bytes
            raise InputError(f"{folder} is damaged: {error}. Build it again.") from error
    raise InputError(f"{folder} is damaged: {missing.filename or missing} is missing. Build it again.")
