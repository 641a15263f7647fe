"""What an index is made of on Milvus: one collection of rows, and one that says which rows count.

    NAME_twinpass            a row for each change, the newest of which is the index: model, columns, next id ...
    NAME_twinpass_000001     the rows: id, vector, text, its digest, metadata, keys to filter by

Inserting a row into the first is the moment of every change, so a writer that is killed changes nothing.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twinpass.errors import ConfigError, InputError, MissingExtra, OutputError
from twinpass.search.filters import keys_of
from twinpass.search.manifest import FORMAT, Manifest, parse_manifest
from twinpass.search.segment import Block, Digests, check_vectors, digest_of
from twinpass.search.writer import Seen
from twinpass.vectors import unit

METRIC = "COSINE"
KINDS: dict[str, dict[str, Any]] = {
    "auto": {"index_type": "AUTOINDEX"},  # as the server is configured
    "exact": {"index_type": "FLAT"},
    "hnsw": {"index_type": "HNSW", "params": {"M": 32, "efConstruction": 200}},
}
CONNECTING = 10  # seconds: a running server answers in far less
ANSWERING = 120  # seconds for one request: the client would retry for many minutes
TEXT_BYTES = 65_535  # the longest text that Milvus stores
STATE_BYTES = 60_000  # of the 65,536 that a JSON value may take
BATCH_BYTES = 8 << 20  # of one request; Milvus accepts 64 MB
PAGE = 1_000  # rows in one answer
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")  # what every Milvus accepts, with room for our own endings


@dataclass(frozen=True)
class Address:
    """Where an index is: a file that ends in .db, or a server, and the name of a collection there."""

    uri: str
    collection: str = "twinpass"
    token: str | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.collection):
            raise ConfigError(
                "expected a collection name of letters, digits and _, not beginning with a digit; "
                f"got {self.collection!r}."
            )
        if not self.is_file and "://" not in self.uri:
            raise ConfigError(
                f"expected a file that ends in .db or a server such as http://localhost:19530, got {self.uri!r}."
            )

    def __str__(self) -> str:
        return f"{self.collection} at {self.uri}"

    @property
    def is_file(self) -> bool:
        """Whether the index is in a file of this machine, without a server."""
        return "://" not in self.uri and self.uri.endswith(".db")

    def check_ready(self, *, create: bool) -> None:
        """Refuse an address whose library, file or folder is missing; `create` allows the file to be missing."""
        needed = ["pymilvus", "milvus_lite"] if self.is_file else ["pymilvus"]
        if any(importlib.util.find_spec(name) is None for name in needed):
            raise MissingExtra("--milvus", "milvus")
        path = Path(self.uri)
        if self.is_file and not create and not path.exists():
            raise InputError(f"there is no {path}. Make it with: twinpass index build TEXTS -o NAME --milvus {path}")
        if self.is_file and not path.absolute().parent.is_dir():
            raise OutputError(f"cannot write {path}: there is no folder {path.parent}. Make it first.")

    def connect(self, *, create: bool = False) -> Any:
        """Return a client; with `create`, a missing file is made."""
        self.check_ready(create=create)
        from pymilvus import MilvusClient

        for name in ("pymilvus", "milvus_lite"):  # they also log what they raise, with long tracebacks
            logging.getLogger(name).setLevel(logging.CRITICAL)
        advice = " Is another process using it?" if self.is_file else " Check --milvus and --milvus-token."
        with explained(f"cannot reach Milvus at {self.uri}", advice):
            return MilvusClient(uri=self.uri, token=self.token or "", timeout=CONNECTING)


@contextlib.contextmanager
def explained(what: str, advice: str = "") -> Iterator[None]:
    """Turn an error of Milvus into one line."""
    from pymilvus import MilvusException

    try:
        yield
    except MilvusException as error:
        reason = " ".join(str(error.message or error).split()).rstrip(".")
        raise InputError(f"{what}: {reason}.{advice}") from error


class Store:
    """The collections of one index."""

    def __init__(self, address: Address, *, create: bool = False) -> None:
        self.address = address
        self.client = address.connect(create=create)
        self.states = f"{address.collection}_twinpass"
        self._loaded: set[str] = set()

    def explained(self) -> contextlib.AbstractContextManager[None]:
        """Explain what Milvus refuses."""
        return explained(f"Milvus refused ({self.address})")

    def manifest(self) -> Manifest | None:
        """Return what the index holds now, if there is one."""
        if not self.client.has_collection(self.states, timeout=ANSWERING):
            return None
        self.load(self.states)
        rows = self.client.query(
            self.states, filter="generation >= 0", output_fields=["generation", "state"], timeout=ANSWERING
        )
        newest = max(rows, key=lambda row: int(row["generation"]), default=None)
        if newest is None:
            return None
        if newest["state"]["format"] != FORMAT:
            raise InputError("the index on this server needs another version of twinpass.")
        return parse_manifest(newest["state"])

    def put(self, manifest: Manifest) -> None:
        """Make a manifest the current one: this is the moment in which the index changes."""
        if not self.client.has_collection(self.states, timeout=ANSWERING):
            self._create_states()
        generation = manifest.generation
        row = {"generation": generation, "vector": [0.0, 1.0], "state": _stored(manifest)}
        self.client.insert(self.states, [row], timeout=ANSWERING)
        self.client.flush(self.states)
        self.client.delete(self.states, filter=f"generation < {generation}", timeout=ANSWERING)

    def load(self, name: str) -> None:
        """Make a collection ready to search: a file that is opened again has none in memory."""
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
        """Drop every collection of rows that the index no longer lists."""
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
        given = list(dict.fromkeys(int(value) for value in values))
        for start in range(0, len(given), PAGE):
            listed = ", ".join(map(str, given[start : start + PAGE]))
            yield from self.find(name, f"{field} in [{listed}]", fields)


class RowWriter:
    """Writes blocks into a collection of rows, one request of bounded size after another."""

    def __init__(self, store: Store, name: str, manifest: Manifest, *, unique: bool) -> None:
        self.rows = self.skipped = 0
        self.places = {column: place for place, column in enumerate(manifest.columns)}
        self._store, self._name, self._manifest = store, name, manifest
        self._seen = Seen() if unique else None
        self._shortened = 0

    def write(self, blocks: Iterable[Block]) -> None:
        """Write every block, and count rows and skipped rows."""
        held: list[dict[str, Any]] = []
        size = 0
        for row in self._rows(blocks):
            held.append(row)
            size += 4 * self._manifest.dimensions + len(row["text"]) + len(str(row["metadata"]))
            if size > BATCH_BYTES or len(held) == PAGE:
                self._send(held)
                held, size = [], 0
        self._send(held)
        self._store.client.flush(self._name)
        if self._shortened:
            message = f"{self._shortened:,} texts are longer than the {TEXT_BYTES:,} bytes that Milvus stores"
            warnings.warn(f"{message}; only their beginning was stored.", UserWarning, stacklevel=3)

    def _send(self, rows: list[dict[str, Any]]) -> None:
        if rows:  # upsert: a request that the client sends twice must not make two rows
            self._store.client.upsert(self._name, rows, timeout=ANSWERING)

    def _rows(self, blocks: Iterable[Block]) -> Iterator[dict[str, Any]]:
        for block in blocks:
            vectors = unit(np.asarray(block.vectors, dtype=np.float32))
            check_vectors(vectors, rows=len(block.texts), dimensions=self._manifest.dimensions)
            digests = digest_of(block.texts)
            signed = as_signed(digests)
            chosen = self._fresh(digests)
            self.skipped += len(digests) - len(chosen)
            for place in chosen:
                metadata = _plain(block.metadata[place]) if block.metadata else {}
                yield {
                    "id": self._manifest.next_id + self.rows,
                    "vector": vectors[place],
                    "text": self._fitting(block.texts[place]),
                    "digest": signed[place],
                    "metadata": metadata,
                    "keys": keys_of(metadata, self.places),
                }
                self.rows += 1

    def _fresh(self, digests: Digests) -> list[int]:
        """Return the positions to write: all, or those of texts that are not there yet."""
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


def rows_of(manifest: Manifest) -> str:
    """Return the name of the collection of rows."""
    return manifest.parts[0].name


def _stored(manifest: Manifest) -> dict[str, Any]:
    """Return a manifest as Milvus stores it; if it is too long, the oldest history is dropped."""
    document = _plain({"format": FORMAT, **asdict(manifest)})
    while document["history"] and len(json.dumps(document).encode()) > STATE_BYTES:
        del document["history"][0]
    return document


def as_signed(digests: Any) -> list[int]:
    """Return digests of 64 bits as the signed numbers that Milvus stores."""
    found: list[int] = np.asarray(digests, dtype=np.uint64).view(np.int64).tolist()
    return found


def _plain(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with JSON types only: a date becomes its text."""
    found: dict[str, Any] = json.loads(json.dumps(dict(document), ensure_ascii=False, default=str))
    return found
