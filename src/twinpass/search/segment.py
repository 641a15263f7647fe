"""Segments: rows of an index that were written together, in files that never change.

vectors.f32    unit vectors, row after row
ids.i64        ascending; an id is never given twice
digests.u64    8 bytes of each text's hash, to find equal texts
rows.arrow     texts, and metadata as JSON, read by memory map
engine.faiss   what an approximate search needs; absent where search is exact
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinpass.errors import InputError
from twinpass.vectors import unit

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
Digests = NDArray[np.uint64]

BATCH = 4_096  # rows in one piece of rows.arrow: little to skip over, few pieces to know about
VECTORS, IDS, DIGESTS, ROWS, ENGINE = "vectors.f32", "ids.i64", "digests.u64", "rows.arrow", "engine.faiss"


class Block(NamedTuple):
    """Some rows to index: texts, their vectors (n, d), and an object of metadata for each, if there is any."""

    texts: Sequence[str]
    vectors: Floats
    metadata: Sequence[Mapping[str, Any]] | None = None


def digest_of(texts: Iterable[str]) -> Digests:
    """Return 8 bytes of each text's hash: equal for equal texts, and as good as never for others."""
    return np.array(
        [int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") for text in texts],
        dtype=np.uint64,
    )


class SegmentWriter:
    """Takes blocks of rows, one after another, and holds little of them in memory."""

    def __init__(self, folder: Path, dimensions: int) -> None:
        import pyarrow as pa

        folder.mkdir()
        self.rows = 0
        self.columns: dict[str, None] = {}
        self._dimensions = dimensions
        self._schema = pa.schema([("text", pa.large_string()), ("metadata", pa.large_string())])
        self._streams = {name: (folder / name).open("wb") for name in (VECTORS, IDS, DIGESTS)}
        self._file = (folder / ROWS).open("wb")
        self._arrow = pa.ipc.new_file(self._file, self._schema)
        self._held: list[tuple[str, str]] = []

    def append(self, block: Block, ids: Ids, digests: Digests) -> None:
        """Write a block's vectors at once, its texts as soon as there are enough for a piece."""
        vectors = unit(np.asarray(block.vectors, dtype=np.float32))
        check_vectors(vectors, rows=len(block.texts), dimensions=self._dimensions)
        self._streams[VECTORS].write(vectors.astype("<f4", copy=False).tobytes())
        self._streams[IDS].write(ids.astype("<i8").tobytes())
        self._streams[DIGESTS].write(digests.astype("<u8").tobytes())
        for metadata in block.metadata or ():
            self.columns.update(dict.fromkeys(metadata))
        notes = [_to_json(each) for each in block.metadata] if block.metadata else [""] * len(block.texts)
        self._held += zip(block.texts, notes, strict=True)
        self.rows += len(block.texts)
        while len(self._held) >= BATCH:
            self._write_rows(BATCH)

    def _write_rows(self, count: int) -> None:
        import pyarrow as pa

        columns = [pa.array(column, pa.large_string()) for column in zip(*self._held[:count], strict=True)]
        self._arrow.write_batch(pa.record_batch(columns, schema=self._schema))
        del self._held[:count]

    def __enter__(self) -> SegmentWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._held:
            self._write_rows(len(self._held))
        self._arrow.close()
        for stream in (*self._streams.values(), self._file):
            stream.close()


class Segment:
    """Rows to read; all of it stays on the disk until it is asked for."""

    def __init__(self, folder: Path, *, rows: int, dimensions: int) -> None:
        import pyarrow as pa

        self.folder = folder
        self.identity = identify(folder)
        self.engine: Any = None  # what searches it approximately, once it was read
        self.vectors: Floats = np.memmap(folder / VECTORS, "<f4", "r", shape=(rows, dimensions))
        self.ids: Ids = np.memmap(folder / IDS, "<i8", "r", shape=(rows,))
        self.digests: Digests = np.memmap(folder / DIGESTS, "<u8", "r", shape=(rows,))
        self._file = pa.ipc.open_file(pa.memory_map(str(folder / ROWS)))
        sizes = [self._file.get_batch(place).num_rows for place in range(self._file.num_record_batches)]
        self._starts = np.cumsum([0, *sizes]).tolist()
        if self._starts[-1] != rows:
            raise InputError(f"{folder} has {self._starts[-1]:,} texts, not {rows:,}: the index is damaged.")
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
        """Return one metadata column, None where a row has nothing; kept once it was read."""
        if name not in self._columns:
            self._columns[name] = [
                _from_json(note).get(name)
                for place in range(self._file.num_record_batches)
                for note in self._file.get_batch(place).column("metadata").to_pylist()
            ]
        return self._columns[name]

    def block(self, rows: Ids) -> Block:
        """Return some rows as they were given."""
        metadata = [self.metadata(int(row)) for row in rows]
        return Block([self.text(int(row)) for row in rows], self.vectors[rows], metadata)

    def _value(self, column: str, row: int) -> str:
        place = bisect_right(self._starts, row) - 1
        value: str = self._file.get_batch(place).column(column)[row - self._starts[place]].as_py()
        return value


def identify(folder: Path) -> tuple[int, ...]:
    """Return what tells a segment from one that was written later under the same name."""
    found = (folder / VECTORS).stat()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def check_vectors(vectors: Floats, *, rows: int | None = None, dimensions: int) -> None:
    """Refuse vectors that cannot belong to an index."""
    wanted = (len(vectors) if rows is None else rows, dimensions)
    if vectors.shape != wanted:
        raise InputError(f"wanted vectors of shape {wanted}, got {vectors.shape}.")
    if not np.isfinite(vectors).all():
        raise InputError("a vector holds a number that is not finite, so nothing is near it or far from it.")


def _to_json(metadata: Mapping[str, Any]) -> str:
    return json.dumps(metadata, ensure_ascii=False, default=str) if metadata else ""


def _from_json(note: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(note) if note else {}
    return found
