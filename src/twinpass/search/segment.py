"""Segments: rows of an index that were written together, in files that never change.

vectors.f32    unit vectors, row after row
ids.i64        numbers of the rows, ascending; a number is never given twice
digests.u64    8 bytes of each text's hash, to find equal texts
keys.u64       8 bytes of the hash of each row's own id, if the index has an id column
terms.arrow, postings.u32, lengths.u32   the words of the texts (see keywords.py)
rows.arrow     texts, and metadata as JSON, read by memory map
engine.faiss   what an approximate search needs; absent where search is exact
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinpass.errors import InputError
from twinpass.search.checksums import Mapped, damage
from twinpass.search.engines.approximate import Approximate
from twinpass.search.engines.exact import Floats, Rows
from twinpass.search.keywords import Keywords, KeywordWriter
from twinpass.search.manifest import DIGESTS, IDS, KEYS, LENGTHS, POSTINGS, ROWS, TERMS, VECTORS, Part, identify
from twinpass.search.matching import Column
from twinpass.vectors import unit

Ids = NDArray[np.int64]
Digests = NDArray[np.uint64]

BATCH = 4_096  # rows in one block, and in one record batch of rows.arrow
BATCH_CHARS = 1 << 20  # of texts and metadata in one record batch


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
    """A block ready to write: its rows' digests and keys, their numbers unless they are new, and the skipped rows."""

    block: Block
    digests: Digests
    keys: Digests | None = None  # of the users' own ids
    ids: Ids | None = None
    skipped: int = 0


class Written(NamedTuple):
    """What was written: rows, metadata columns, the batches of rows.arrow, and how many rows were skipped."""

    rows: int
    columns: tuple[str, ...]
    batches: tuple[tuple[int, int], ...]
    skipped: int


def write_segment(
    folder: Path, blocks: Iterable[Prepared], *, dimensions: int, next_id: int, keyed: bool = False
) -> Written:
    """Write blocks, one after another."""
    folder.mkdir()
    rows = skipped = 0
    columns: dict[str, None] = {}
    with contextlib.ExitStack() as stack:
        names = (VECTORS, IDS, DIGESTS, ROWS, *([KEYS] if keyed else []))
        files = {name: stack.enter_context((folder / name).open("wb")) for name in names}
        table = stack.enter_context(_RowsWriter(files[ROWS]))
        keywords = stack.enter_context(KeywordWriter(folder))
        for (texts, given, metadata), digests, keys, ids, less in blocks:
            vectors = np.asarray(given, dtype=np.float32)
            if ids is None:  # rows that are copied have length one, and keep every bit
                vectors = unit(vectors)
            check_vectors(vectors, rows=len(texts), dimensions=dimensions)
            new = np.arange(next_id + rows, next_id + rows + len(texts)) if ids is None else ids
            arrays: list[tuple[str, NDArray[Any] | None, str]]
            arrays = [(VECTORS, vectors, "<f4"), (IDS, new, "<i8"), (DIGESTS, digests, "<u8"), (KEYS, keys, "<u8")]
            for name, array, kind in arrays:
                if array is not None:
                    files[name].write(array.astype(kind, copy=False).tobytes())
            table.add(texts, metadata)
            keywords.add(texts)
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
        further = {KEYS: 8 * part.rows, LENGTHS: 4 * part.rows, TERMS: None, POSTINGS: None}
        sizes |= {name: size for name, size in further.items() if name in part.files}
        self.files = {name: Mapped(folder / name, part.files.get(name), size=size) for name, size in sizes.items()}
        for file in self.files.values():
            file.check_some()
        if part.batches:
            self.files[ROWS].check(part.batches[-1][1])  # what Arrow reads at once, after the last batch
        self.vectors: Floats = self.files[VECTORS].bytes.view("<f4").reshape(part.rows, dimensions)
        self.ids: Ids = self.files[IDS].bytes.view("<i8")
        self.digests: Digests = self.files[DIGESTS].bytes.view("<u8")
        self.keys: Digests | None = self.files[KEYS].bytes.view("<u8") if KEYS in self.files else None
        self.keywords = Keywords(self.files) if TERMS in self.files else None
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
