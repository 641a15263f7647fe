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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinpass.errors import InputError
from twinpass.search.checksums import Mapped, damage
from twinpass.search.engines.approximate import EXACT, HNSW_FROM, Approximate
from twinpass.search.engines.exact import Floats, Rows, best, empty, top
from twinpass.search.filters import Filter, check_columns, conditions
from twinpass.search.manifest import DIGESTS, ENGINE, IDS, ROWS, VECTORS, Manifest, Part, identify, read_manifest
from twinpass.search.matching import Column, Mask, holding
from twinpass.search.results import Hit
from twinpass.vectors import unit

Ids = NDArray[np.int64]
Digests = NDArray[np.uint64]

BATCH = 4_096  # rows in one block, and in one record batch of rows.arrow
BATCH_CHARS = 1 << 20  # of texts and metadata in one record batch
ATTEMPTS = 10  # to read an index that is being changed: each change takes far longer than opening


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


class Written(NamedTuple):
    """What was written: rows, metadata columns, the batches of rows.arrow, and how many rows were skipped."""

    rows: int
    columns: tuple[str, ...]
    batches: tuple[tuple[int, int], ...]
    skipped: int


def write_segment(folder: Path, blocks: Iterable[Prepared], *, dimensions: int, next_id: int) -> Written:
    """Write blocks, one after another."""
    folder.mkdir()
    rows = skipped = 0
    columns: dict[str, None] = {}
    with contextlib.ExitStack() as stack:
        files = {name: stack.enter_context((folder / name).open("wb")) for name in (VECTORS, IDS, DIGESTS, ROWS)}
        table = stack.enter_context(_RowsWriter(files[ROWS]))
        for (texts, given, metadata), digests, ids, less in blocks:
            vectors = np.asarray(given, dtype=np.float32)
            if ids is None:  # rows that are copied have length one, and keep every bit
                vectors = unit(vectors)
            check_vectors(vectors, rows=len(texts), dimensions=dimensions)
            new = np.arange(next_id + rows, next_id + rows + len(texts)) if ids is None else ids
            for name, array, kind in ((VECTORS, vectors, "<f4"), (IDS, new, "<i8"), (DIGESTS, digests, "<u8")):
                files[name].write(array.astype(kind, copy=False).tobytes())
            table.add(texts, metadata)
            columns.update(dict.fromkeys(name for each in metadata or () for name in each))
            rows, skipped = rows + len(texts), skipped + less
    return Written(rows, tuple(columns), tuple(table.batches), skipped)


class _RowsWriter:
    """Texts and metadata to rows.arrow, in record batches of bounded size: the unit in which they are checked."""

    def __init__(self, stream: Any) -> None:
        import pyarrow as pa

        self._stream = stream
        self._schema = pa.schema([("text", pa.large_string()), ("metadata", pa.large_string())])
        self._table = pa.ipc.new_file(stream, self._schema)
        self._texts: list[str] = []
        self._notes: list[str] = []
        self._held = 0  # characters
        self.batches: list[tuple[int, int]] = []

    def add(self, texts: Sequence[str], metadata: Sequence[Mapping[str, Any]] | None) -> None:
        """Add rows; a batch is written when it is full."""
        for place, text in enumerate(texts):
            note = _to_json(metadata[place]) if metadata else ""
            self._texts.append(text)
            self._notes.append(note)
            self._held += len(text) + len(note)
            if len(self._texts) == BATCH or self._held >= BATCH_CHARS:
                self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._texts:
            columns = [pa.array(each, pa.large_string()) for each in (self._texts, self._notes)]
            self._table.write_batch(pa.record_batch(columns, self._schema))
            self.batches.append((len(self._texts), self._stream.tell()))
            self._texts, self._notes, self._held = [], [], 0

    def __enter__(self) -> _RowsWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._flush()
            self._table.close()


class Segment:
    """Rows to read; they stay on the disk until they are needed, and are checked before they are used.

    Files of up to 64 MB are checked when a segment is opened. Of larger ones a sample is, and the rest when it is first
    used.
    """

    def __init__(self, folder: Path, part: Part, *, dimensions: int) -> None:
        import pyarrow as pa

        self.folder = folder
        self.part = part
        self.identity = identify(folder / VECTORS)
        self.engine: Approximate | None = None  # what searches it approximately, once it was read
        sizes = {VECTORS: 4 * part.rows * dimensions, IDS: 8 * part.rows, DIGESTS: 8 * part.rows, ROWS: None}
        self.files = {name: Mapped(folder / name, part.files.get(name), size=size) for name, size in sizes.items()}
        for file in self.files.values():
            file.check_some()
        if part.batches:
            self.files[ROWS].check(part.batches[-1][1])  # what Arrow reads at once, after the last batch
        self.vectors: Floats = self.files[VECTORS].bytes.view("<f4").reshape(part.rows, dimensions)
        self.ids: Ids = self.files[IDS].bytes.view("<i8")
        self.digests: Digests = self.files[DIGESTS].bytes.view("<u8")
        self._valid: set[int] = set()  # batches of rows.arrow that were checked
        with self._explained():
            self._file = pa.ipc.open_file(pa.py_buffer(self.files[ROWS].bytes))
            if self._file.schema.names != ["text", "metadata"]:
                raise ValueError(f"it has the columns {self._file.schema.names}")
            counts = [count for count, _ in part.batches] or [
                self._file.get_batch(place).num_rows for place in range(self._file.num_record_batches)
            ]
            if sum(counts) != part.rows or len(counts) != self._file.num_record_batches:
                raise ValueError(f"it has {sum(counts):,} texts, expected {part.rows:,}")
        self._starts = np.cumsum([0, *counts]).tolist()
        self._columns: dict[str, Column] = {}

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what Arrow says about a damaged file into our error."""
        import pyarrow as pa

        try:
            yield
        except (pa.ArrowException, ValueError, OSError) as error:
            raise InputError(damage(self.folder / ROWS, str(error).rstrip("."))) from error

    def check(self) -> None:
        """Refuse a segment in which any byte differs from what was written.

        Without checksums, refuse what cannot have been written: the texts have digests, ids ascend, and vectors have
        length one. A changed bit in a vector, or in metadata, may pass.
        """
        for file in self.files.values():
            file.check()
        if self.part.files:
            return
        folder = self.folder
        for start, end in pairwise(self._starts):
            texts = [self.text(row) for row in range(start, end)]
            if (digest_of(texts) != self.digests[start:end]).any():
                raise InputError(damage(folder / ROWS, "a text does not match its digest in digests.u64"))
            for row in range(start, end):
                self.metadata(row)
            lengths = np.linalg.norm(self.vectors[start:end].astype(np.float64), axis=1)
            if not ((abs(lengths - 1) < 1e-3) | (lengths == 0)).all():
                raise InputError(damage(folder / VECTORS, "a vector does not have length one"))
        if len(self) and (self.ids[0] < 0 or (np.diff(self.ids) <= 0).any()):
            raise InputError(damage(folder / IDS, "the ids do not ascend"))

    def __len__(self) -> int:
        return len(self.ids)

    def check_vectors(self, rows: Rows | None) -> None:
        """Refuse damage in the vectors of some rows, or in any."""
        file = self.files[VECTORS]
        if rows is None:
            file.check()
        else:
            file.check_rows(rows, self.vectors.shape[1] * self.vectors.itemsize)

    def text(self, row: int) -> str:
        """Return the text of a row."""
        return str(self._value("text", row))

    def metadata(self, row: int) -> dict[str, Any]:
        """Return the metadata of a row."""
        with self._explained():
            return _from_json(self._value("metadata", row))

    def columns(self, names: Iterable[str]) -> dict[str, Column]:
        """Return metadata columns as arrays; kept in memory once they were read."""
        if wanted := {*names} - self._columns.keys():
            values: dict[str, list[Any]] = {name: [] for name in wanted}
            with self._explained():
                for place in range(self._file.num_record_batches):
                    for note in self._batch(place).column("metadata").to_pylist():
                        found = _from_json(note)
                        for name in wanted:
                            values[name].append(found.get(name))
            self._columns |= {name: Column(column) for name, column in values.items()}
        return self._columns

    def block(self, rows: Ids) -> Block:
        """Return some rows as they were written."""
        metadata = [self.metadata(int(row)) for row in rows]
        return Block([self.text(int(row)) for row in rows], self.vectors[rows], metadata)

    def _value(self, column: str, row: int) -> str:
        place = bisect_right(self._starts, row) - 1
        value: str = self._batch(place).column(column)[row - self._starts[place]].as_py()
        return value

    def _batch(self, place: int) -> Any:
        """Return a record batch, checked when it is first read."""
        if place in self._valid:
            return self._file.get_batch(place)
        if batches := self.part.batches:
            self.files[ROWS].check(batches[place - 1][1] if place else 0, batches[place][1])
        with self._explained():
            batch = self._file.get_batch(place)
            batch.validate(full=not self.part.files)
        self._valid.add(place)
        return batch


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
    found = json.loads(note) if note else {}
    if not isinstance(found, dict):
        raise ValueError(f"metadata is {note!r:.80}, expected a JSON object")
    return found


def read_removed(folder: Path, manifest: Manifest) -> Ids:
    """Return the ids that were removed, after checking the file that lists them."""
    if manifest.removed is None:
        return np.empty(0, np.int64)
    path = folder / manifest.removed
    if manifest.removed_file is not None:
        manifest.removed_file.check(path)
    try:
        removed: Ids = np.load(path, allow_pickle=False)
        if removed.dtype != np.int64 or removed.shape != (manifest.removed_rows,) or (np.diff(removed) <= 0).any():
            raise ValueError(f"it does not hold {manifest.removed_rows:,} ascending ids")
    except FileNotFoundError:
        raise
    except Exception as error:  # numpy parses the header as Python, with any error of its parser
        raise InputError(damage(path, str(error).rstrip("."))) from error
    return removed


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
            or Segment(folder / part.name, part, dimensions=manifest.dimensions)
            for part in manifest.parts
        ]
        self.starts: Ids = np.cumsum([0, *(part.rows for part in manifest.parts)])
        self.removed = read_removed(folder, manifest)

    @cached_property
    def ids(self) -> Ids:
        """The id of every row, ascending."""
        for segment in self.segments:
            segment.files[IDS].check()
        return np.concatenate([np.empty(0, np.int64), *(segment.ids for segment in self.segments)])

    @cached_property
    def digests(self) -> Digests:
        """The digest of every row's text."""
        for segment in self.segments:
            segment.files[DIGESTS].check()
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
        segment.files[IDS].check(8 * place, 8 * place + 8)
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
            segment.check_vectors(rows[here] - start)
            vectors[here] = segment.vectors[rows[here] - start]
        return vectors

    def meeting(self, given: Filter) -> Mask:
        """Return which rows meet a filter and are not removed."""
        check_columns(given, self.manifest.columns)
        names = {condition.column for condition in conditions(given)}
        masks = [holding(given, segment.columns(names)) for segment in self.segments]
        mask: Mask = self.alive & np.concatenate([np.empty(0, bool), *masks])
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
        segment = self.segments[place]
        if allowed is not None and allowed.all():
            allowed = None
        few = allowed is not None and allowed.sum() < min(HNSW_FROM, len(allowed) // 2)
        engine = None if few or self.manifest.parts[place].kind == EXACT else self._engine(place)
        if engine is None:
            chosen = None if allowed is None else np.flatnonzero(allowed)
            segment.check_vectors(chosen)
            return top(queries, segment.vectors, k=k, chosen=chosen)
        scores, rows = engine.top(queries, k=k, allowed=allowed)
        segment.check_vectors(rows[rows >= 0])
        return scores, rows

    def _engine(self, place: int) -> Approximate | None:
        """Read what an approximate search needs; None if a writer deleted it while we hold the vectors open."""
        part, segment = self.manifest.parts[place], self.segments[place]
        if segment.engine is None:
            path = segment.folder / ENGINE
            try:
                if part.files:
                    part.files[ENGINE].check(path)  # faiss may crash on a damaged file
                segment.engine = Approximate.load(path, part.kind, segment.vectors, int(part.quality["effort"]))
            except FileNotFoundError:
                return None
            except (RuntimeError, ValueError, KeyError) as error:  # from faiss, with details about its own source
                if not path.exists():
                    return None
                raise InputError(damage(path, "faiss cannot read it")) from error
        return segment.engine


def open_snapshot(folder: Path, earlier: Sequence[Segment] = ()) -> Snapshot:
    """Open an index as it is now; if a writer replaces its files meanwhile, try again."""
    for _ in range(ATTEMPTS):
        manifest = read_manifest(folder)
        try:
            return Snapshot(folder, manifest, earlier)
        except FileNotFoundError as error:
            missing = error
    raise InputError(damage(Path(missing.filename or folder), "it is missing"))
