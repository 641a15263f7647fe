"""What Milvus keeps of an index: its collections, on a server or in a file of milvus-lite.

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

from twinpass.display import counted
from twinpass.errors import ConfigError, InputError, MissingExtra, OutputError
from twinpass.search.engines.milvus_filters import keys_of
from twinpass.search.manifest import FORMAT, Manifest, Part, parse_manifest
from twinpass.search.segment import Block, check_vectors, digest_of
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
PAGE = 1_000  # rows in one request or answer
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
    """The collections of one index; with `create`, a missing file is made."""

    def __init__(self, address: Address, *, create: bool = False) -> None:
        address.check_ready(create=create)
        from pymilvus import MilvusClient

        for name in ("pymilvus", "milvus_lite"):  # they also log what they raise, with long tracebacks
            logging.getLogger(name).setLevel(logging.CRITICAL)
        advice = " Is another process using it?" if address.is_file else " Check --milvus and --milvus-token."
        with explained(f"cannot reach Milvus at {address.uri}", advice):
            self.client = MilvusClient(uri=address.uri, token=address.token or "", timeout=CONNECTING)
        self.address = address
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
        fields = ["generation", "state"]
        rows = self.client.query(self.states, filter="generation >= 0", output_fields=fields, timeout=ANSWERING)
        newest = max(rows, key=lambda row: int(row["generation"]), default=None)
        if newest is None:
            return None
        if newest["state"].get("format") not in range(1, FORMAT + 1):
            raise InputError("the index on this server needs another version of twinpass.")
        try:
            return parse_manifest(newest["state"], part=re.compile(rf"{self.states}_\d{{6,}}"))
        except (ValueError, KeyError, TypeError) as error:
            what = f"it has no {error}" if isinstance(error, KeyError) else error
            raise InputError(f"the record of the index {self.address} is damaged: {what}. Build it again.") from error

    def put(self, manifest: Manifest) -> None:
        """Make a manifest the current one: this is the moment in which the index changes."""
        if not self.client.has_collection(self.states, timeout=ANSWERING):
            self.create(self.states, "generation", dimensions=2, kind="exact", state="JSON")  # a vector is required
        state = _plain({"format": FORMAT, **asdict(manifest)})
        while state["history"] and len(json.dumps(state).encode()) > STATE_BYTES:
            del state["history"][0]  # the oldest
        row = {"generation": manifest.generation, "vector": [0.0, 1.0], "state": state}
        self.client.insert(self.states, [row], timeout=ANSWERING)
        self.client.flush(self.states)
        self.client.delete(self.states, filter=f"generation < {manifest.generation}", timeout=ANSWERING)

    def load(self, name: str) -> None:
        """Make a collection ready to search: a file that is opened again has none in memory."""
        if name not in self._loaded:
            self.client.load_collection(name)
            self._loaded.add(name)

    def create(self, name: str, key: str, *, dimensions: int, kind: str, **fields: str) -> None:
        """Make an empty collection, ready to search: a key, a vector, and other fields with their types."""
        from pymilvus import DataType

        schema = self.client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field(key, DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dimensions)
        for field, type_name in fields.items():
            length = {"max_length": TEXT_BYTES} if type_name == "VARCHAR" else {}
            schema.add_field(field, DataType[type_name], **length)
        index = self.client.prepare_index_params()
        index.add_index("vector", metric_type=METRIC, **KINDS[kind])
        self.client.create_collection(name, schema=schema, index_params=index, consistency_level="Strong")

    def sweep(self, keep: str | None) -> None:
        """Drop every collection of rows that the index no longer lists."""
        for name in self.client.list_collections():
            if re.fullmatch(rf"{self.states}_\d{{6}}", name) and name != keep:
                self.client.drop_collection(name)

    def find(self, name: str, expression: str, fields: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the rows for which an expression holds, page by page."""
        options = {"output_fields": list(fields), "batch_size": PAGE, "timeout": ANSWERING}
        with contextlib.closing(self.client.query_iterator(name, filter=expression, **options)) as pages:
            while page := pages.next():
                yield from page

    def find_each(
        self, name: str, field: str, values: Sequence[int], fields: Sequence[str], visible: str = ""
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows in which a field has one of these values, and for which another expression holds."""
        given = list(dict.fromkeys(values))
        for start in range(0, len(given), PAGE):
            listed = ", ".join(map(str, given[start : start + PAGE]))
            yield from self.find(name, f"{field} in [{listed}]" + (f" and {visible}" if visible else ""), fields)

    def write(self, name: str, manifest: Manifest, blocks: Iterable[Block], *, unique: bool) -> tuple[Part, int]:
        """Add rows to a collection in requests of bounded size; return what was added and how many were skipped."""
        seen = Seen() if unique else None
        places = {column: place for place, column in enumerate(manifest.columns)}
        rows = skipped = shortened = size = 0
        held: list[dict[str, Any]] = []
        for block in blocks:
            vectors = unit(np.asarray(block.vectors, dtype=np.float32))
            check_vectors(vectors, rows=len(block.texts), dimensions=manifest.dimensions)
            digests = digest_of(block.texts)
            numbers = signed(digests)
            chosen: Sequence[int] = range(len(numbers))
            if seen is not None:
                there = {row["digest"] for row in self.find_each(name, "digest", numbers, ["digest"])}
                chosen = [place for place in seen.fresh(digests) if numbers[place] not in there]
            skipped += len(numbers) - len(chosen)
            for place in chosen:
                metadata = _plain(block.metadata[place]) if block.metadata else {}
                text = block.texts[place].encode()[:TEXT_BYTES].decode(errors="ignore")
                shortened += text != block.texts[place]
                row = {"id": manifest.next_id + rows, "vector": vectors[place], "text": text, "digest": numbers[place]}
                held.append({**row, "metadata": metadata, "keys": keys_of(metadata, places)})
                rows += 1
                size += 4 * manifest.dimensions + len(text) + len(str(metadata))
                if size > BATCH_BYTES or len(held) == PAGE:
                    self._send(name, held)
                    held, size = [], 0
        self._send(name, held)
        self.client.flush(name)
        if shortened:
            are, their = ("is", "its") if shortened == 1 else ("are", "their")
            message = f"{counted(shortened, 'text')} {are} longer than the {TEXT_BYTES:,} bytes that Milvus stores"
            warnings.warn(f"{message}; only {their} beginning was stored.", UserWarning, stacklevel=3)
        return Part(name=name, rows=rows, kind=manifest.kind, columns=tuple(places)), skipped

    def _send(self, name: str, rows: list[dict[str, Any]]) -> None:
        if rows:  # upsert: a request that the client sends twice must not make two rows
            self.client.upsert(name, rows, timeout=ANSWERING)


def signed(digests: Any) -> list[int]:
    """Return digests of 64 bits as the signed numbers that Milvus stores."""
    found: list[int] = np.asarray(digests, dtype=np.uint64).view(np.int64).tolist()
    return found


def _plain(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with JSON types only: a date becomes its text."""
    found: dict[str, Any] = json.loads(json.dumps(dict(document), ensure_ascii=False, default=str))
    return found
