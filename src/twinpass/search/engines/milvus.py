"""MilvusIndex: an index on a Milvus server, or in a file of milvus-lite, for more than one machine.

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
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from twinpass.errors import ConfigError, InputError, MissingExtra, OutputError
from twinpass.search.engines.exact import Floats
from twinpass.search.filters import Condition, Where, expression, keys_of, parse
from twinpass.search.index import Index
from twinpass.search.manifest import FORMAT, Manifest, Part, parse_manifest
from twinpass.search.results import Added, Hit, Info
from twinpass.search.segment import Block, Ids, check_vectors, digest_of
from twinpass.search.writer import Seen, check_kind, peek
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
MOST = 16_384  # neighbours that Milvus returns for one query
QUERIES = 256  # in one request
EFFORT = 128  # candidates that a search of a graph keeps, at least
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
        if newest["state"]["format"] != FORMAT:
            raise InputError("the index on this server needs another version of twinpass.")
        return parse_manifest(newest["state"])

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
        self, name: str, field: str, values: Sequence[int], fields: Sequence[str]
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows in which a field has one of these values."""
        given = list(dict.fromkeys(values))
        for start in range(0, len(given), PAGE):
            listed = ", ".join(map(str, given[start : start + PAGE]))
            yield from self.find(name, f"{field} in [{listed}]", fields)

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
            signed = _signed(digests)
            chosen: Sequence[int] = range(len(signed))
            if seen is not None:
                there = {row["digest"] for row in self.find_each(name, "digest", signed, ["digest"])}
                chosen = [place for place in seen.fresh(digests) if signed[place] not in there]
            skipped += len(signed) - len(chosen)
            for place in chosen:
                metadata = _plain(block.metadata[place]) if block.metadata else {}
                text = block.texts[place].encode()[:TEXT_BYTES].decode(errors="ignore")
                shortened += text != block.texts[place]
                row = {"id": manifest.next_id + rows, "vector": vectors[place], "text": text, "digest": signed[place]}
                held.append({**row, "metadata": metadata, "keys": keys_of(metadata, places)})
                rows += 1
                size += 4 * manifest.dimensions + len(text) + len(str(metadata))
                if size > BATCH_BYTES or len(held) == PAGE:
                    self._send(name, held)
                    held, size = [], 0
        self._send(name, held)
        self.client.flush(name)
        if shortened:
            message = f"{shortened:,} texts are longer than the {TEXT_BYTES:,} bytes that Milvus stores"
            warnings.warn(f"{message}; only their beginning was stored.", UserWarning, stacklevel=3)
        return Part(name=name, rows=rows, kind=manifest.kind, columns=tuple(places)), skipped

    def _send(self, name: str, rows: list[dict[str, Any]]) -> None:
        if rows:  # upsert: a request that the client sends twice must not make two rows
            self.client.upsert(name, rows, timeout=ANSWERING)


def _signed(digests: Any) -> list[int]:
    """Return digests of 64 bits as the signed numbers that Milvus stores."""
    found: list[int] = np.asarray(digests, dtype=np.uint64).view(np.int64).tolist()
    return found


def _plain(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with JSON types only: a date becomes its text."""
    found: dict[str, Any] = json.loads(json.dumps(dict(document), ensure_ascii=False, default=str))
    return found


def _check_free(store: Store, *, overwrite: bool) -> Manifest | None:
    """Return the index that is to be replaced, if there is one; refuse without `overwrite`."""
    old = store.manifest()
    if old is not None and not overwrite:
        raise OutputError(f"there is an index {store.address} already. Add to it, or replace it with --overwrite.")
    return old


def build(
    place: Address,
    blocks: Iterable[Block],
    *,
    model: Mapping[str, Any],
    kind: str,
    unique: bool,
    overwrite: bool,
    facts: Mapping[str, Any] | None,
) -> None:
    """Make an index of blocks; until all are written, what was there before stays."""
    store = Store(place, create=True)
    with store.explained():
        old = _check_free(store, overwrite=overwrite)
        store.sweep(keep=old.parts[0].name if old else None)
        first, blocks = peek(blocks)
        dimensions, generation = int(np.shape(first.vectors)[1]), old.generation if old else 0
        manifest = Manifest(model=dict(model), dimensions=dimensions, kind=kind, generation=generation)
        name = f"{store.states}_{generation + 1:06d}"
        types = {"text": "VARCHAR", "digest": "INT64", "metadata": "JSON", "keys": "JSON"}
        store.create(name, "id", dimensions=dimensions, kind=kind, **types)
        part, skipped = store.write(name, manifest, blocks, unique=unique)
        facts = {**(facts or {}), "skipped": skipped}
        store.put(manifest.changed("build", part.rows, facts, parts=(part,), next_id=part.rows))
        store.sweep(keep=name)


class MilvusIndex(Index):
    """An index that others may change meanwhile: every search looks first at what there is."""

    _build = staticmethod(build)

    def _connect(self) -> None:
        self._store = Store(self.place)
        self._manifest = self._existing()

    @classmethod
    def check_target(cls, place: Address, *, kind: str, overwrite: bool) -> None:
        """Refuse, before any work is done, a collection where an index could not be built."""
        check_kind(kind, KINDS, " with Milvus")
        place.check_ready(create=True)
        if not place.is_file or Path(place.uri).exists():  # connecting to a missing file would make it
            store = Store(place, create=True)
            with store.explained():
                _check_free(store, overwrite=overwrite)

    def add_blocks(
        self, blocks: Iterable[Block], *, unique: bool = False, facts: Mapping[str, Any] | None = None
    ) -> Added:
        """Add blocks; nobody sees them before all are written."""
        store, model = self._store, self.model
        self.refresh()
        self.check_model(name=model["name"], fingerprint=model["fingerprint"])  # it may have been replaced
        with store.explained():
            manifest = self._manifest
            if not manifest.pending:
                manifest = replace(manifest, generation=manifest.generation + 1, pending=True)
                self._put(manifest)
            # What a killed addition left: its ids are given again.
            store.client.delete(self._rows, filter=f"id >= {manifest.next_id}", timeout=ANSWERING)
            part, skipped = store.write(self._rows, manifest, blocks, unique=unique)
            added, next_id = part.rows, manifest.next_id + part.rows
            facts = {**(facts or {}), "skipped": skipped}
            parts = (replace(part, rows=next_id),)
            self._put(manifest.changed("add", added, facts, parts=parts, next_id=next_id, pending=False))
        return Added(added, skipped, facts)

    def _remove(self, ids: Sequence[int] | None, texts: Sequence[str] | None, conditions: list[Condition]) -> int:
        self.refresh()
        with self._store.explained():
            if ids is not None:
                chosen = list(self._by_id(ids, ["id"]))
            elif texts is not None:
                given = set(texts)
                found = self._store.find_each(self._rows, "digest", _signed(digest_of(given)), ["id", "text"])
                equal = (int(row["id"]) for row in found if row["text"] in given)
                chosen = [each for each in equal if each < self.manifest.next_id]  # not of an unfinished addition
            else:
                chosen = [int(row["id"]) for row in self._store.find(self._rows, self._visible(conditions), ["id"])]
            for start in range(0, len(chosen), PAGE):
                self._store.client.delete(self._rows, ids=chosen[start : start + PAGE], timeout=ANSWERING)
            if chosen:
                removed = self._manifest.removed_rows + len(chosen)
                self._put(self._manifest.changed("remove", len(chosen), removed_rows=removed))
        return len(chosen)

    def compact(self) -> None:
        """Do nothing: Milvus frees the space of removed rows by itself."""

    def refresh(self) -> bool:
        """See what others have changed; return whether there was a change."""
        before, self._manifest = self._manifest.generation, self._existing()
        return before != self._manifest.generation

    def _existing(self) -> Manifest:
        with self._store.explained():
            manifest = self._store.manifest()
            if manifest is None:
                advice = "Make one with: twinpass index build MODEL TEXTS -o NAME --milvus URI"
                raise InputError(f"there is no index {self.place}. {advice}")
            self._store.load(manifest.parts[0].name)
            return manifest

    def search_vectors(
        self, vectors: Floats, k: int = 10, *, where: Where = None, min_score: float | None = None
    ) -> list[list[Hit]]:
        """Return each query's k nearest texts, best first."""
        if not 1 <= k <= MOST:
            raise ConfigError(f"k is {k}; expected 1 to {MOST:,} with Milvus.")
        queries = np.atleast_2d(np.asarray(vectors, dtype=np.float32))
        self.refresh()
        check_vectors(queries, dimensions=self.dimensions)
        visible, least = self._visible(parse(where)), -np.inf if min_score is None else min_score
        effort = {"ef": max(EFFORT, k)} if self.manifest.kind == "hnsw" else {}
        options = {"limit": k, "filter": visible, "search_params": {"metric_type": METRIC, "params": effort}}
        options |= {"anns_field": "vector", "output_fields": ["text", "metadata"], "timeout": ANSWERING}
        found: list[list[Hit]] = []
        for start in range(0, len(queries), QUERIES):
            with self._store.explained():
                answers = self._store.client.search(self._rows, list(unit(queries[start : start + QUERIES])), **options)
            found += [[hit for hit in map(_hit, answer) if hit.score >= least] for answer in answers]
        return found

    def _check_where(self, where: Where) -> None:
        self.refresh()  # for columns that others have added
        super()._check_where(where)

    def __len__(self) -> int:
        counting = {"filter": self._visible([]), "output_fields": ["count(*)"], "timeout": ANSWERING}
        with self._store.explained():
            return int(self._store.client.query(self._rows, **counting)[0]["count(*)"])

    @property
    def manifest(self) -> Manifest:
        """What the index holds."""
        return self._manifest

    @property
    def _rows(self) -> str:
        """The name of the collection of rows."""
        return self._manifest.parts[0].name

    def ids(self) -> Ids:
        """Return the ids of all rows, ascending."""
        with self._store.explained():
            found = self._store.find(self._rows, self._visible([]) or "id >= 0", ["id"])
            return np.array(sorted(int(row["id"]) for row in found), np.int64)

    def vectors(self, ids: Sequence[int] | Ids | None = None) -> Floats:
        """Return the unit vectors (n, d) of these ids, or of all."""
        chosen = self.ids() if ids is None else ids
        rows = self._by_id(chosen, ["id", "vector"])
        vectors = [rows[int(each)]["vector"] for each in chosen]
        return np.asarray(vectors, dtype=np.float32).reshape(len(vectors), self.dimensions)

    def entries(self, ids: Sequence[int] | Ids) -> list[Hit]:
        """Return texts and metadata of these ids, each with score 1."""
        rows = self._by_id(ids, ["id", "text", "metadata"])
        return [_hit({"id": each, "distance": 1.0, "entity": rows[int(each)]}) for each in ids]

    def nearest(self, vectors: Floats, k: int) -> tuple[Floats, Ids]:
        """Return cosines and ids (n, at most k) of the nearest rows; an id of -1 means none."""
        scores = np.full((len(vectors), k), -np.inf, np.float32)
        ids = np.full((len(vectors), k), -1, np.int64)
        for row, hits in enumerate(self.search_vectors(vectors, k)):
            scores[row, : len(hits)] = [hit.score for hit in hits]
            ids[row, : len(hits)] = [hit.id for hit in hits]
        return scores, ids

    def info(self) -> Info:
        """Return what the index holds and what made it."""
        self.refresh()
        rows = len(self)
        with self._store.explained():
            version = self._store.client.get_server_version()
        manifest, segments = self.manifest, [{"rows": rows, "kind": self.manifest.kind}]
        return self._info(manifest, rows, segments, server=version, unfinished_addition=manifest.pending)

    def _put(self, manifest: Manifest) -> None:
        self._store.put(manifest)
        self._manifest = manifest

    def _visible(self, conditions: Sequence[Condition]) -> str:
        hidden = f"id < {self.manifest.next_id}" if self.manifest.pending else ""  # of an unfinished addition
        return " and ".join(part for part in (hidden, expression(conditions, self.columns)) if part)

    def _by_id(self, ids: Sequence[int] | Ids, fields: Sequence[str]) -> dict[int, dict[str, Any]]:
        """Return the rows with these ids by id, or say which id is missing."""
        given = [int(each) for each in ids]
        with self._store.explained():
            found = self._store.find_each(self._rows, "id", given, fields)
            rows = {int(row["id"]): row for row in found if int(row["id"]) < self.manifest.next_id}
        if missing := [each for each in given if each not in rows]:
            raise InputError(f"{self.place} has no row with the id {missing[0]}.")
        return rows


def _hit(found: Mapping[str, Any]) -> Hit:
    entity = found["entity"]
    return Hit(int(found["id"]), str(entity["text"]), float(found["distance"]), dict(entity["metadata"]))
