"""Rows to one file of vectors: .npy, .parquet or .safetensors, as a stream, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BufferedWriter
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinpass.bulk.columns import Columns, Row
from twinpass.files import writing
from twinpass.progress import Advance

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from twinpass.encoder.encoder import Encoder


@dataclass(frozen=True)
class Content:
    """What a file of vectors holds beside its rows, and how the vectors are scaled."""

    normalize: bool
    metadata: Mapping[str, str]  # names and fingerprints of model and data
    columns: Columns = field(default_factory=Columns)


def encode_rows(
    rows: Iterable[Row], target: Path, encoder: Encoder, content: Content, advance: Advance = lambda count: None
) -> dict[str, int]:
    """Encode rows into one file; return how many rows, distinct texts and truncated texts there were.

    Repeats are recognised within a block of the stream, as the encoder does.
    """
    counted = {"rows": 0, "distinct": 0, "truncated": 0}
    with writing(target) as aside:
        writer = WRITERS[target.suffix](aside, encoder.dimensions, content)
        try:
            for block, vectors, cut in encoder.encode_stream(rows, key=itemgetter(0), normalize=content.normalize):
                texts, others = zip(*block, strict=True)
                writer.write(texts, vectors, others)
                for name, count in (("rows", len(texts)), ("distinct", len({*texts})), ("truncated", len(cut))):
                    counted[name] += count
                advance(len(texts))
            writer.finish()
        finally:
            writer.close()
    return counted


class _Appending:
    """Takes blocks of rows: a header of fixed length, rewritten when the number of rows is known, then float32."""

    def __init__(self, path: Path, dimensions: int, content: Content) -> None:
        self._dimensions = dimensions
        self._metadata = content.metadata
        self._rows = 0
        self._stream: BufferedWriter = path.open("wb")
        self._room = self._stream.write(self._header())

    def write(self, texts: Sequence[str], vectors: NDArray[np.float32], others: Sequence[Mapping[str, object]]) -> None:
        """Append a block of vectors; the format holds neither texts nor other columns."""
        self._stream.write(vectors.astype("<f4", copy=False).tobytes())
        self._rows += len(vectors)

    def finish(self) -> None:
        """Write the number of rows into the header."""
        header = self._header()
        if len(header) != self._room:
            raise RuntimeError(f"the header grew from {self._room} to {len(header)} bytes")
        self._stream.seek(0)
        self._stream.write(header)
        self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def _header(self) -> bytes:
        raise NotImplementedError


class NpyWriter(_Appending):
    """An array (rows, dimensions) for numpy.load."""

    def _header(self) -> bytes:
        import io

        from numpy.lib import format

        # numpy pads a header so that the first axis can grow without moving the data.
        stream = io.BytesIO()
        shape = (self._rows, self._dimensions)
        format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
        return stream.getvalue()


class SafetensorsWriter(_Appending):
    """A tensor `vectors` (rows, dimensions) with the provenance as metadata."""

    def _header(self) -> bytes:
        # The format allows spaces after the JSON: room for longer numbers, in steps of 8 to align the rows.
        length = (len(self._describe(0)) + 64) // 8 * 8
        return length.to_bytes(8, "little") + self._describe(self._rows).ljust(length)

    def _describe(self, rows: int) -> bytes:
        offsets = [0, 4 * rows * self._dimensions]
        tensor = {"dtype": "F32", "shape": [rows, self._dimensions], "data_offsets": offsets}
        return json.dumps({"__metadata__": dict(self._metadata), "vectors": tensor}).encode()


class ParquetWriter:
    """Columns `text`, `vector` (a list of fixed length) and those of the input, with the provenance as metadata."""

    def __init__(self, path: Path, dimensions: int, content: Content) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        self._dimensions, self._columns = dimensions, content.columns
        fields = [("text", pa.string()), ("vector", pa.list_(pa.float32(), dimensions)), *content.columns.fields()]
        self._schema = pa.schema(fields, metadata=dict(content.metadata))
        self._stream = path.open("wb")  # opened here, so that a full disk raises the system's own error
        repeating = [name for name, kind in fields if kind == pa.string()]
        self._parquet: Any = parquet.ParquetWriter(self._stream, self._schema, use_dictionary=repeating)

    def write(self, texts: Sequence[str], vectors: NDArray[np.float32], others: Sequence[Mapping[str, object]]) -> None:
        """Append a block as one row group."""
        import pyarrow as pa

        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), self._dimensions)
        arrays = [pa.array(texts), column, *self._columns.arrays(others)]
        self._parquet.write_table(pa.Table.from_arrays(arrays, schema=self._schema))

    def finish(self) -> None:
        """Write the footer."""
        self._parquet.close()
        self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


WRITERS: dict[str, Any] = {".npy": NpyWriter, ".parquet": ParquetWriter, ".safetensors": SafetensorsWriter}
