"""Rows on their way into Milvus: blocks in, requests of a bounded size out."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from twinpass.search.milvus_client import ANSWERING
from twinpass.search.milvus_filters import keys_of
from twinpass.search.milvus_store import PAGE, TEXT_BYTES, Store, as_signed
from twinpass.search.numbered import Seen
from twinpass.search.segment import Block, Digests, check_vectors, digest_of
from twinpass.search.writing import Written
from twinpass.vectors import unit

BATCH_BYTES = 8 << 20  # of one request; Milvus takes 64 MB, and a server has other things to do


class RowWriter:
    """Writes blocks into a collection of rows, and holds one request of them in memory."""

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        dimensions: int,
        next_id: int,
        columns: Iterable[str] = (),
        unique: bool = False,
    ) -> None:
        self.written = Written()
        self.places = {column: place for place, column in enumerate(columns)}
        self._store = store
        self._name = name
        self._dimensions = dimensions
        self._next_id = next_id
        self._seen = Seen() if unique else None
        self._shortened = 0

    def write(self, blocks: Iterable[Block]) -> Written:
        """Write every block and return how many rows were written and left out."""
        held: list[dict[str, Any]] = []
        size = 0
        for row in self._rows(blocks):
            held.append(row)
            size += 4 * self._dimensions + len(row["text"]) + len(str(row["metadata"]))
            if size > BATCH_BYTES or len(held) == PAGE:
                self._send(held)
                held, size = [], 0
        self._send(held)
        self._store.client.flush(self._name)
        if self._shortened:
            message = f"{self._shortened:,} texts are longer than the {TEXT_BYTES:,} bytes that Milvus stores"
            warnings.warn(f"{message}; only their beginning was kept.", UserWarning, stacklevel=3)
        return self.written

    def _send(self, rows: list[dict[str, Any]]) -> None:
        if rows:  # upsert: a request that the client sends twice must not make two rows
            self._store.client.upsert(self._name, rows, timeout=ANSWERING)

    def _rows(self, blocks: Iterable[Block]) -> Iterator[dict[str, Any]]:
        for block in blocks:
            vectors = unit(np.asarray(block.vectors, dtype=np.float32))
            check_vectors(vectors, rows=len(block.texts), dimensions=self._dimensions)
            digests = digest_of(block.texts)
            signed = as_signed(digests)
            chosen = self._fresh(digests)
            self.written.left_out += len(digests) - len(chosen)
            for place in chosen:
                metadata = _plain(block.metadata[place]) if block.metadata else {}
                yield {
                    "id": self._next_id + self.written.rows,
                    "vector": vectors[place],
                    "text": self._fitting(block.texts[place]),
                    "digest": signed[place],
                    "metadata": metadata,
                    "keys": keys_of(metadata, self.places),
                }
                self.written.rows += 1

    def _fresh(self, digests: Digests) -> list[int]:
        """Return the places to write: all, or those of texts that are not there yet."""
        if self._seen is None:
            return list(range(len(digests)))
        signed = as_signed(digests)
        there = {row["digest"] for row in self._store.find_each(self._name, "digest", signed, ["digest"])}
        return [place for place in self._seen.fresh(digests) if signed[place] not in there]

    def _fitting(self, text: str) -> str:
        content = text.encode()
        if len(content) <= TEXT_BYTES:
            return text
        self._shortened += 1
        return content[:TEXT_BYTES].decode(errors="ignore")


def _plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as JSON has it: a date becomes its text."""
    found: dict[str, Any] = json.loads(json.dumps(dict(metadata), ensure_ascii=False, default=str))
    return found
