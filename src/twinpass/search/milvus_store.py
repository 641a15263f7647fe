"""What an index is made of on a Milvus server: one collection of rows, and one that says which rows count.

    NAME_twinpass            a row for each change, the newest of which is the index: model, columns, next id ...
    NAME_twinpass_000001     the rows: id, vector, text, its digest, metadata, keys to filter by

Inserting a row into the first is the moment of every change, so that a writer that is killed changes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from twinpass.errors import ConfigError, InputError
from twinpass.registry import suggest
from twinpass.search.manifest import Manifest, Part
from twinpass.search.milvus_client import ANSWERING, Address, connect, explained

METRIC = "COSINE"
KINDS: dict[str, dict[str, Any]] = {
    "auto": {"index_type": "AUTOINDEX"},  # as the server is set up
    "exact": {"index_type": "FLAT"},
    "hnsw": {"index_type": "HNSW", "params": {"M": 32, "efConstruction": 200}},
}
EFFORT = 128  # candidates that a search of a graph keeps, at least
TEXT_BYTES = 65_535  # the longest text that Milvus stores
STATE_BYTES = 60_000  # of the 65,536 that a JSON value may take
PAGE = 1_000  # rows in one answer


@dataclass(frozen=True)
class State:
    """What an index holds, and whether rows may lie about that do not belong to it yet."""

    manifest: Manifest
    pending: bool = False

    @property
    def rows(self) -> str:
        """The name of the collection of rows."""
        return self.manifest.parts[0].name

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the metadata columns, in the order of their places."""
        return self.manifest.columns

    @property
    def filter(self) -> str:
        """An expression that keeps an unfinished addition out of sight; empty if there is none."""
        return f"id < {self.manifest.next_id}" if self.pending else ""


class Store:
    """The collections of one index."""

    def __init__(self, address: Address, *, create: bool = False) -> None:
        self.address = address
        self.client = connect(address, create=create)
        self.states = f"{address.collection}_twinpass"
        self._loaded: set[str] = set()

    def explained(self) -> Any:
        """Explain what Milvus refuses."""
        return explained(self.address)

    def state(self) -> State | None:
        """Return the index as it is now, if there is one."""
        if not self.client.has_collection(self.states, timeout=ANSWERING):
            return None
        self.load(self.states)
        rows = self.client.query(
            self.states, filter="generation >= 0", output_fields=["generation", "state"], timeout=ANSWERING
        )
        newest = max(rows, key=lambda row: int(row["generation"]), default=None)
        return _parse(newest["state"]) if newest else None

    def put(self, state: State) -> None:
        """Make a state the index's own; this is the moment in which the index changes."""
        if not self.client.has_collection(self.states, timeout=ANSWERING):
            self._create_states()
        generation = state.manifest.generation
        row = {"generation": generation, "vector": [0.0, 1.0], "state": _describe(state)}
        self.client.insert(self.states, [row], timeout=ANSWERING)
        self.client.flush(self.states)
        self.client.delete(self.states, filter=f"generation < {generation}", timeout=ANSWERING)

    def load(self, name: str) -> None:
        """Have a collection ready to search: a file that is opened again has none in memory."""
        if name not in self._loaded:
            self.client.load_collection(name)
            self._loaded.add(name)

    def create_rows(self, name: str, *, dimensions: int, kind: str) -> None:
        """Make an empty collection of rows, ready to search."""
        from pymilvus import DataType

        schema = self.client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dimensions)
        schema.add_field("text", DataType.VARCHAR, max_length=TEXT_BYTES)
        schema.add_field("digest", DataType.INT64)
        schema.add_field("metadata", DataType.JSON)
        schema.add_field("keys", DataType.JSON)
        self._create(name, schema, KINDS[kind])

    def _create_states(self) -> None:
        from pymilvus import DataType

        schema = self.client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("generation", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=2)  # a collection must have one
        schema.add_field("state", DataType.JSON)
        self._create(self.states, schema, KINDS["exact"])

    def _create(self, name: str, schema: Any, kind: Mapping[str, Any]) -> None:
        index = self.client.prepare_index_params()
        index.add_index("vector", metric_type=METRIC, **kind)
        self.client.create_collection(name, schema=schema, index_params=index, consistency_level="Strong")

    def sweep(self, keep: str | None) -> None:
        """Drop every collection of rows that the index no longer names."""
        for name in self.client.list_collections():
            if re.fullmatch(rf"{self.states}_\d{{6}}", name) and name != keep:
                self.client.drop_collection(name)

    def find(self, name: str, expression: str, fields: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the rows for which an expression holds, page by page."""
        pages = self.client.query_iterator(
            name, filter=expression, output_fields=list(fields), batch_size=PAGE, timeout=ANSWERING
        )
        try:
            while page := pages.next():
                yield from page
        finally:
            pages.close()

    def find_each(
        self, name: str, field: str, values: Iterable[int], fields: Sequence[str]
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows in which a field has one of these values."""
        wanted = list(dict.fromkeys(int(value) for value in values))
        for start in range(0, len(wanted), PAGE):
            listed = ", ".join(map(str, wanted[start : start + PAGE]))
            yield from self.find(name, f"{field} in [{listed}]", fields)


def check_kind(kind: str) -> None:
    """Refuse a kind of index that we do not ask Milvus for."""
    if kind not in KINDS:
        raise ConfigError(
            f"no kind of index named {kind!r} with Milvus.{suggest(kind, KINDS)} Known: {', '.join(KINDS)}."
        )


def as_signed(digests: Any) -> list[int]:
    """Return digests of 64 bits as Milvus counts: with a sign."""
    found: list[int] = np.asarray(digests, dtype=np.uint64).view(np.int64).tolist()
    return found


def _describe(state: State) -> dict[str, Any]:
    manifest = state.manifest
    document = {"format": 1, "pending": state.pending, **asdict(manifest)}
    while manifest.history and len(json.dumps(document, default=str).encode()) > STATE_BYTES:
        manifest = replace(manifest, history=manifest.history[1:])  # the oldest is forgotten first
        document["history"] = manifest.history
    plain: dict[str, Any] = json.loads(json.dumps(document, default=str))
    return plain


def _parse(document: dict[str, Any]) -> State:
    if document.pop("format") != 1:
        raise InputError("the index on this server needs another version of twinpass.")
    pending = bool(document.pop("pending"))
    parts = tuple(Part(**{**part, "columns": tuple(part["columns"])}) for part in document["parts"])
    return State(Manifest(**{**document, "parts": parts, "history": tuple(document["history"])}), pending)
