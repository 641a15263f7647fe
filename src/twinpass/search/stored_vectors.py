"""Texts that were encoded before: the parquet files of `encode`, read as a stream of blocks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from twinpass.errors import InputError
from twinpass.progress import Advance
from twinpass.search.segment import BATCH, Block

EXPECTED = "Expected a file or a folder of shards written by `twinpass encode -o NAME.parquet`"


class StoredVectors:
    """Texts, vectors and other columns in parquet files, in order, and the model that made the vectors."""

    def __init__(self, source: str | os.PathLike[str]) -> None:
        self.source = Path(source)
        found = sorted(self.source.glob("*.parquet")) if self.source.is_dir() else [self.source]
        self._files = [_open(path) for path in found]
        if not self._files:
            raise InputError(f"{self.source} holds no parquet file. {EXPECTED}.")
        self._notes = _notes(found[0], self._files[0])
        for path, file in zip(found, self._files, strict=True):
            if _notes(path, file) != self._notes:
                raise InputError(f"{path} and {found[0]} come from different models or data. {EXPECTED}.")
        self._check_whole()

    def __len__(self) -> int:
        return sum(file.metadata.num_rows for file in self._files)

    @property
    def model(self) -> dict[str, Any]:
        """Name and fingerprint of the model, and the options that it was loaded with."""
        notes = self._notes
        record: dict[str, Any] = {"name": notes["model"], "fingerprint": notes["model_fingerprint"]}
        if "pooler" in notes:
            record["pooler"] = notes["pooler"]
        if "max_tokens" in notes:
            record["max_tokens"] = int(notes["max_tokens"])
        return record

    @property
    def data(self) -> tuple[str, str]:
        """Name and fingerprint of what was encoded."""
        return self._notes["data"], self._notes["data_fingerprint"]

    def blocks(self, advance: Advance = lambda count: None) -> Iterator[Block]:
        """Yield the rows, a few thousand at a time; columns other than text and vector are metadata."""
        for file in self._files:
            others = [name for name in file.schema_arrow.names if name not in ("text", "vector")]
            for batch in file.iter_batches(BATCH):
                column = batch.column("vector")
                vectors = column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
                metadata = [_present(row) for row in batch.select(others).to_pylist()] if others else None
                yield Block(batch.column("text").to_pylist(), vectors.astype(np.float32, copy=False), metadata)
                advance(len(column))

    def _check_whole(self) -> None:
        """Refuse a folder with missing shards; each shard's name says how many there are."""
        if not self.source.is_dir():
            return
        last = sorted(self.source.glob("*.parquet"))[-1].stem.rpartition("-of-")[2]
        if last.isdecimal() and int(last) != len(self._files):
            raise InputError(f"{self.source} holds {len(self._files)} of {int(last)} shards. {EXPECTED}.")


def _present(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


def _open(path: Path) -> Any:
    import pyarrow as pa
    from pyarrow import parquet

    if not path.is_file():
        raise InputError(f"there is no {path}. {EXPECTED}.")
    try:
        return parquet.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise InputError(f"{path} is not a parquet file: {str(error).rstrip('.')}. {EXPECTED}.") from error


def _notes(path: Path, file: Any) -> dict[str, str]:
    schema = file.schema_arrow
    notes = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items() if key[:5] != b"ARROW"}
    if "model_fingerprint" not in notes or not {"text", "vector"} <= {*schema.names}:
        raise InputError(f"{path} has no texts with vectors of a known model. {EXPECTED}.")
    return notes
