"""One writer per vector format; each takes blocks of rows without knowing how many will come."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from io import BufferedWriter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Writer(Protocol):
    """Takes blocks of rows, then finishes; closing without finishing leaves a file that is thrown away."""

    def write(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Append a block of rows."""

    def finish(self) -> None:
        """Complete the file."""

    def close(self) -> None:
        """Let go of the file."""


class _Appending:
    """A header of fixed length, rewritten when the number of rows is known, then rows as float32."""

    def __init__(self, path: Path, dimensions: int, metadata: Mapping[str, str]) -> None:
        self._dimensions = dimensions
        self._metadata = metadata
        self._rows = 0
        self._stream: BufferedWriter = path.open("wb")
        self._room = self._stream.write(self._header())

    def write(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Append a block of rows; the texts are not kept."""
        self._stream.write(vectors.astype("<f4", copy=False).tobytes())
        self._rows += len(vectors)

    def finish(self) -> None:
        """Say in the header how many rows there are."""
        header = self._header()
        if len(header) != self._room:
            raise RuntimeError(f"the header grew from {self._room} to {len(header)} bytes")
        self._stream.seek(0)
        self._stream.write(header)
        self._stream.flush()

    def close(self) -> None:
        """Let go of the file."""
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
    """Columns `text` and `vector` (a list of fixed length), with the provenance as metadata."""

    def __init__(self, path: Path, dimensions: int, metadata: Mapping[str, str]) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        self._dimensions = dimensions
        fields = [("text", pa.string()), ("vector", pa.list_(pa.float32(), dimensions))]
        self._schema = pa.schema(fields, metadata=dict(metadata))
        self._stream = path.open("wb")  # ours, so that a full disk speaks with the system's own words
        self._parquet: Any = parquet.ParquetWriter(self._stream, self._schema, use_dictionary=["text"])

    def write(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Append a block as one row group."""
        import pyarrow as pa

        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), self._dimensions)
        self._parquet.write_table(pa.Table.from_arrays([pa.array(texts), column], schema=self._schema))

    def finish(self) -> None:
        """Write the footer."""
        self._parquet.close()
        self._stream.flush()

    def close(self) -> None:
        """Let go of the file."""
        self._stream.close()


WRITERS: dict[str, Any] = {".npy": NpyWriter, ".parquet": ParquetWriter, ".safetensors": SafetensorsWriter}
