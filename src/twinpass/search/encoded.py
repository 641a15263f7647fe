"""Rows that were encoded before: what `encode` wrote as parquet, read as a stream of blocks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from twinpass.errors import InputError
from twinpass.search.segment import Block

BATCH = 4_096  # rows held at a time
WANTED = "Wanted a file or a folder of shards that `twinpass encode -o NAME.parquet` wrote"


class Encoded:
    """Texts and vectors in parquet files, in order, and the model that made them."""

    def __init__(self, source: str | os.PathLike[str]) -> None:
        self.source = Path(source)
        found = sorted(self.source.glob("*.parquet")) if self.source.is_dir() else [self.source]
        self._files = [_open(path) for path in found]
        if not self._files:
            raise InputError(f"{self.source} holds no parquet file. {WANTED}.")
        self._notes = _notes(found[0], self._files[0])
        for path, file in zip(found, self._files, strict=True):
            if _notes(path, file) != self._notes:
                raise InputError(f"{path} and {found[0]} come from different models or data. {WANTED}.")
        self._check_whole()

    def __len__(self) -> int:
        return sum(file.metadata.num_rows for file in self._files)

    @property
    def model(self) -> dict[str, Any]:
        """Name and fingerprint of the model, and the options that it was loaded with."""
        limit = self._notes.get("max_tokens")
        return {
            "name": self._notes["model"],
            "fingerprint": self._notes["model_fingerprint"],
            "pooler": self._notes.get("pooler"),
            "max_tokens": None if limit is None else int(limit),
        }

    @property
    def data(self) -> tuple[str, str]:
        """Name and fingerprint of what was encoded."""
        return self._notes["data"], self._notes["data_fingerprint"]

    def blocks(self) -> Iterator[Block]:
        """Yield the rows, a few thousand at a time."""
        for file in self._files:
            for batch in file.iter_batches(BATCH, columns=["text", "vector"]):
                column = batch.column("vector")
                vectors = column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
                yield Block(batch.column("text").to_pylist(), vectors.astype(np.float32, copy=False))

    def _check_whole(self) -> None:
        """Refuse a folder in which shards are missing; each one's name says how many there are."""
        if not self.source.is_dir():
            return
        last = sorted(self.source.glob("*.parquet"))[-1].stem.rpartition("-of-")[2]
        if last.isdecimal() and int(last) != len(self._files):
            raise InputError(f"{self.source} holds {len(self._files)} of {int(last)} shards. {WANTED}.")


def _open(path: Path) -> Any:
    import pyarrow as pa
    from pyarrow import parquet

    if not path.is_file():
        raise InputError(f"there is no {path}. {WANTED}.")
    try:
        return parquet.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise InputError(f"{path} is no parquet file: {str(error).rstrip('.')}. {WANTED}.") from error


def _notes(path: Path, file: Any) -> dict[str, str]:
    schema = file.schema_arrow
    notes = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items() if key[:5] != b"ARROW"}
    if "model_fingerprint" not in notes or not {"text", "vector"} <= {*schema.names}:
        raise InputError(f"{path} has no texts with vectors of a known model. {WANTED}.")
    return notes
