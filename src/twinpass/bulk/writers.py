"""Rows to one file of vectors: .npy, .parquet, .safetensors, .jsonl or .csv, as a stream, whole or not at all.

Parquet, JSON lines and csv also hold the texts and the other columns of the input (id, category ...).
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from twinpass.files import DiskFull, writing
from twinpass.progress import Advance
from twinpass.provenance import checksum
from twinpass.text.tables import PREFIX, TYPES, json_line, kind_of, type_of

if TYPE_CHECKING:
    from twinpass.encoder.encoder import Encoder

OURS = ("text", "vector")  # columns of every file with columns that we write
NUMBERS = re.compile("v(0|[1-9][0-9]*)")  # columns of a csv file that hold the numbers of the vectors
CARRYING = (".parquet", ".jsonl", ".csv")  # formats that hold the texts and the other columns
Row = tuple[str, Mapping[str, object]]  # a text, and by name the values of the other columns

# Kinds of values that tables have as text, and files of vectors as they are.
_TYPES = (*TYPES, ({"date"}, "date32"), ({"datetime"}, "timestamp[us]"))


@dataclass(frozen=True)
class Columns:
    """Names and parquet types of the columns to carry along, and a fingerprint of their content."""

    types: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)  # name in the input -> name in the output
    fingerprint: str | None = None

    def named(self, values: Mapping[str, object]) -> Mapping[str, object]:
        """Return a row's values under the names of the output."""
        if not self.renamed:
            return values
        return {self.renamed.get(name, name): value for name, value in values.items()}

    def fields(self) -> list[tuple[str, Any]]:
        """Return names and types as a parquet schema takes them."""
        import pyarrow as pa

        return [(name, pa.type_for_alias(kind)) for name, kind in self.types.items()]

    def values(self, rows: Sequence[Mapping[str, object]]) -> dict[str, list[object]]:
        """Return the values of each column; a value that a row lacks is None."""
        return {name: [_convert(row.get(name), kind) for row in rows] for name, kind in self.types.items()}


def find_columns(records: Iterable[Mapping[str, object]], *, numbered: bool = False) -> Columns:
    """Return the columns that at least one row has a value for; one that has the name of one of ours is renamed.

    If the output has the numbers of vectors in columns of their own, any name such as v0 is ours: how many there are,
    the model says, which is not loaded yet.
    """
    kinds: dict[str, set[str]] = {}
    digest = hashlib.sha256()
    for values in records:
        for name, value in values.items():
            kinds.setdefault(name, set()).add(kind_of(value))
        digest.update(f"{values!r}\n".encode())
    renamed: dict[str, str] = {}
    for name in kinds:
        if name not in OURS and not (numbered and NUMBERS.fullmatch(name)):
            continue
        free = PREFIX + name
        while free in kinds:
            free = PREFIX + free
        renamed[name] = free
    types = {renamed.get(name, name): type_of(found, _TYPES) for name, found in kinds.items()}
    return Columns(types, renamed, digest.hexdigest() if kinds else None)


def _convert(value: Any, kind: str) -> object:
    """Return a value as a column of this type takes it; what has no type of its own is written as text or JSON."""
    if value is None or kind not in ("string", "float64"):
        return value
    if kind == "float64":
        return float(value)
    if isinstance(value, (bool, int, float, list, dict)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value.isoformat() if isinstance(value, datetime.date) else str(value)


@dataclass(frozen=True)
class Content:
    """What a file of vectors holds beside its rows, and how the vectors are scaled."""

    normalize: bool
    metadata: Mapping[str, str]  # names and fingerprints of model and data
    columns: Columns = field(default_factory=Columns)


def encode_rows(
    rows: Iterable[Row],
    count: int,
    target: Path,
    encoder: Encoder,
    content: Content,
    advance: Advance = lambda count: None,
) -> dict[str, Any]:
    """Encode this many rows into one file; return how many rows, distinct and truncated texts there were.

    Repeats are recognised within a block of the stream, as the encoder does.
    """
    try:
        with writing(target) as aside, WRITERS[target.suffix](aside, (count, encoder.dimensions), content) as write:
            counted = _write_all(write, rows, encoder, content, advance)
            if counted["rows"] != count:
                raise RuntimeError(f"expected {count} rows, got {counted['rows']}")
    except DiskFull as full:  # by now what was written is deleted again, so this is how much is free, and is needed
        raise DiskFull(target, full.reason, needed=4 * count * encoder.dimensions) from full
    return counted


def encode_lines(
    rows: Iterable[Row], stream: TextIO, encoder: Encoder, content: Content, advance: Advance = lambda count: None
) -> dict[str, int]:
    """Encode rows into lines of JSON on a stream, a block at a time; return the counts."""

    def write(texts: Sequence[str], vectors: Any, others: Sequence[Mapping[str, object]]) -> None:
        stream.writelines(json_rows(texts, vectors, others))
        stream.flush()

    return _write_all(write, rows, encoder, content, advance)


def _write_all(
    write: Write, rows: Iterable[Row], encoder: Encoder, content: Content, advance: Advance
) -> dict[str, int]:
    """Encode and write block after block; the stream is closed also when writing fails, and with it its thread."""
    counted = {"rows": 0, "distinct": 0, "truncated": 0}
    options: dict[str, Any] = {"normalize": content.normalize, "read_ahead": True, "advance": advance}
    with contextlib.closing(encoder.encode_stream(rows, key=itemgetter(0), **options)) as encoded:
        for block, vectors, cut in encoded:
            texts, others = zip(*block, strict=True)
            write(texts, vectors, others)
            for name, number in (("rows", len(texts)), ("distinct", len({*texts})), ("truncated", len(cut))):
                counted[name] += number
    return counted


Write = Callable[[Sequence[str], Any, Sequence[Mapping[str, object]]], object]  # texts, vectors, other columns


@contextlib.contextmanager
def _appending(path: Path, header: bytes) -> Iterator[Write]:
    """Write a header, then float32 numbers; such a format holds neither texts nor other columns."""
    with path.open("wb") as stream:
        stream.write(header)
        yield lambda texts, vectors, others: stream.write(vectors.astype("<f4", copy=False).tobytes())


def _npy(path: Path, shape: tuple[int, int], content: Content) -> AbstractContextManager[Write]:
    """Write an array (rows, dimensions) for numpy.load."""
    from numpy.lib import format

    header = io.BytesIO()
    format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return _appending(path, header.getvalue())


def _safetensors(path: Path, shape: tuple[int, int], content: Content) -> AbstractContextManager[Write]:
    """Write a tensor `vectors` (rows, dimensions) with the provenance as metadata."""
    tensor = {"dtype": "F32", "shape": shape, "data_offsets": [0, 4 * shape[0] * shape[1]]}
    header = json.dumps({"__metadata__": dict(content.metadata), "vectors": tensor}).encode()
    header += b" " * (-len(header) % 8)  # the format allows spaces, which align the numbers
    return _appending(path, len(header).to_bytes(8, "little") + header)


@contextlib.contextmanager
def _parquet(path: Path, shape: tuple[int, int], content: Content) -> Iterator[Write]:
    """Write columns `text`, `vector` (a list of fixed length) and those of the input, a row group for each block."""
    import pyarrow as pa
    from pyarrow import parquet

    fields = [("text", pa.string()), ("vector", pa.list_(pa.float32(), shape[1])), *content.columns.fields()]
    schema = pa.schema(fields, metadata={**content.metadata, "checksum": checksum(content.metadata, dict(fields))})
    repeating = [name for name, kind in fields if kind == pa.string()]
    # The file is opened here, so that a full disk raises the system's own error.
    with (
        path.open("wb") as stream,
        parquet.ParquetWriter(stream, schema, use_dictionary=repeating, write_page_checksum=True) as writer,
    ):

        def write(texts: Sequence[str], vectors: Any, others: Sequence[Mapping[str, object]]) -> None:
            column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), shape[1])
            columns = {"text": texts, "vector": column, **content.columns.values(others)}
            writer.write_table(pa.Table.from_pydict(columns, schema=schema))

        yield write


@contextlib.contextmanager
def _jsonl(path: Path, shape: tuple[int, int], content: Content) -> Iterator[Write]:
    """Write an object for each row: text, vector and the columns of the input."""
    with path.open("w", encoding="utf-8") as stream:
        yield lambda texts, vectors, others: stream.writelines(json_rows(texts, vectors, others))


def json_rows(texts: Sequence[str], vectors: Any, others: Sequence[Mapping[str, object]]) -> Iterator[str]:
    """Yield rows as lines of JSON; nine digits are all that a float32 has."""
    for text, vector, values in zip(texts, vectors, others, strict=True):
        numbers = [float(f"{number:.9g}") for number in vector.tolist()]
        yield json_line({"text": text, "vector": numbers, **values}) + "\n"


@contextlib.contextmanager
def _csv(path: Path, shape: tuple[int, int], content: Content) -> Iterator[Write]:
    """Write a header and a line for each row: text, the columns of the input, then the numbers as v0, v1 ..."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        carried = list(content.columns.types)
        writer.writerow(["text", *carried, *(f"v{at}" for at in range(shape[1]))])  # see NUMBERS

        def write(texts: Sequence[str], vectors: Any, others: Sequence[Mapping[str, object]]) -> None:
            for text, vector, values in zip(texts, vectors, others, strict=True):
                more = (_convert(values.get(name), "string") for name in carried)
                writer.writerow([text, *more, *(f"{number:.9g}" for number in vector.tolist())])

        yield write


WRITERS: dict[str, Callable[[Path, tuple[int, int], Content], AbstractContextManager[Write]]] = {
    ".npy": _npy,
    ".parquet": _parquet,
    ".safetensors": _safetensors,
    ".jsonl": _jsonl,
    ".csv": _csv,
}
