"""MilvusIndex: an index on a Milvus server, or in a file of milvus-lite, for more than one machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from twinpass.errors import ConfigError, InputError, OutputError
from twinpass.search.engines.approximate import FLOAT32
from twinpass.search.engines.exact import Floats
from twinpass.search.engines.milvus_filters import expression
from twinpass.search.engines.milvus_store import ANSWERING, KINDS, METRIC, PAGE, Address, Store, signed
from twinpass.search.filters import Filter, Where, parse
from twinpass.search.index import Index
from twinpass.search.manifest import Manifest
from twinpass.search.results import Added, Hit, Id, Info
from twinpass.search.searching import DENSE, check_least, check_mode
from twinpass.search.segment import Block, Ids, check_vectors, digest_of
from twinpass.search.verify import DAMAGED, OK, Verdict, Verification
from twinpass.search.writer import check_kind, peek
from twinpass.vectors import unit

__all__ = ["Address", "MilvusIndex"]

MOST = 16_384  # neighbours that Milvus returns for one query
QUERIES = 256  # in one request
EFFORT = 128  # candidates that a search of a graph keeps, at least


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
    id_column: None = None,
    storage: str = FLOAT32,
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


def verify(place: Address) -> Verification:
    """Count the rows that Milvus holds: it keeps checksums of its own files, and checks them itself."""
    index = MilvusIndex(place)
    manifest, found = index.manifest, len(index)
    expected = manifest.next_id - manifest.removed_rows
    problem = "" if found == expected else f"{place} holds {found:,} rows, expected {expected:,}. Build it again."
    return Verification(str(place), [Verdict(manifest.parts[0].name, DAMAGED if problem else OK, problem=problem)])


class MilvusIndex(Index):
    """An index that others may change meanwhile: every search looks first at what there is."""

    _build = staticmethod(build)
    _verify = staticmethod(verify)

    def _connect(self) -> None:
        self._store = Store(self.place)
        self._manifest = self._existing()

    @classmethod
    def check_target(
        cls, place: Address, *, kind: str, storage: str, unique: bool, id_column: str | None, overwrite: bool
    ) -> None:
        """Refuse, before any work is done, a collection where an index could not be built."""
        if storage != FLOAT32:
            raise ConfigError(f"Milvus holds vectors in float32, not in {storage}. Keep the index in a folder.")
        if id_column is not None:
            raise ConfigError(
                "an index on Milvus has no id column: Milvus cannot replace rows in one step. Leave out the id column, "
                "and remove what is to be replaced by a filter; or keep the index in a folder."
            )
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
        return Added(added, skipped, provenance=facts)

    def _remove(self, ids: Sequence[Id] | None, texts: Sequence[str] | None, given: Filter | None) -> int:
        self.refresh()
        with self._store.explained():
            if ids is not None:
                chosen = list(self._by_id(ids, ["id"]))
            elif texts is not None:
                wanted = set(texts)
                found = self._store.find_each(self._rows, "digest", signed(digest_of(wanted)), ["id", "text"])
                equal = (int(row["id"]) for row in found if row["text"] in wanted)
                chosen = [each for each in equal if each < self.manifest.next_id]  # not of an unfinished addition
            else:
                chosen = [int(row["id"]) for row in self._store.find(self._rows, self._visible(given), ["id"])]
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
                advice = "Make one with: twinpass index build TEXTS -m MODEL -o NAME --milvus URI"
                raise InputError(f"there is no index {self.place}. {advice}")
            self._store.load(manifest.parts[0].name)
            return manifest

    def search_vectors(
        self,
        vectors: Floats | None,
        k: int = 10,
        *,
        texts: Sequence[str] | None = None,
        mode: str = DENSE,
        where: Where = None,
        min_score: float | None = None,
        group: bool | None = None,
    ) -> list[list[Hit]]:
        """Return each query's k nearest texts, best first."""
        if not 1 <= k <= MOST:
            raise ConfigError(f"k is {k}; expected 1 to {MOST:,} with Milvus.")
        if mode != DENSE:
            check_mode(mode)
            raise ConfigError(f"an index on Milvus is searched by vectors only, not by {mode}. Keep it in a folder.")
        check_least(min_score)
        queries = np.atleast_2d(np.asarray(vectors, dtype=np.float32))
        self.refresh()
        check_vectors(queries, dimensions=self.dimensions)
        visible, least = self._visible(parse(where)), -np.inf if min_score is None else min_score
        search = self._grouped if self._groups(group) else self._nearest
        found: list[list[Hit]] = []
        for start in range(0, len(queries), QUERIES):
            with self._store.explained():
                found += search(unit(queries[start : start + QUERIES]), k, visible)
        return [[hit for hit in hits if hit.score >= least] for hits in found]

    def _nearest(self, queries: Floats, k: int, visible: str) -> list[list[Hit]]:
        effort = {"ef": max(EFFORT, k)} if self.manifest.kind == "hnsw" else {}
        options = {"limit": k, "filter": visible, "search_params": {"metric_type": METRIC, "params": effort}}
        options |= {"anns_field": "vector", "output_fields": ["text", "metadata"], "timeout": ANSWERING}
        return [list(map(_hit, found)) for found in self._store.client.search(self._rows, list(queries), **options)]

    def _grouped(self, queries: Floats, k: int, visible: str) -> list[list[Hit]]:
        """Search until each query has k different texts, or all; the first row of equal texts stands for them."""
        found: dict[int, list[Hit]] = {}
        waiting, limit = list(range(len(queries))), k
        while waiting:
            for query, hits in zip(waiting, self._nearest(queries[waiting], limit, visible), strict=True):
                distinct = list({hit.text: hit for hit in reversed(hits)}.values())[::-1]  # the best of each text
                if len(distinct) >= k or len(hits) < limit or limit == MOST:
                    found[query] = sorted(distinct, key=lambda hit: -hit.score)[:k]
            waiting = [query for query in waiting if query not in found]
            limit = min(4 * limit, MOST)
        texts = {hit.text for hits in found.values() for hit in hits}
        equal: dict[str, list[dict[str, Any]]] = {text: [] for text in texts}
        fields = ["id", "text", "metadata"]
        for row in self._store.find_each(self._rows, "digest", signed(digest_of(texts)), fields, visible):
            if row["text"] in equal:
                equal[row["text"]].append(row)
        shown = {text: (min(rows, key=lambda row: int(row["id"])), len(rows)) for text, rows in equal.items() if rows}
        return [
            [_group(hit, *shown[hit.text]) if hit.text in shown else hit for hit in found[query]]
            for query in range(len(queries))
        ]

    def _check_where(self, where: Where) -> None:
        self.refresh()  # for columns that others have added
        super()._check_where(where)

    def __len__(self) -> int:
        counting = {"filter": self._visible(), "output_fields": ["count(*)"], "timeout": ANSWERING}
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

    def numbers(self) -> Ids:
        """Return the ids of all rows, ascending."""
        with self._store.explained():
            found = self._store.find(self._rows, self._visible() or "id >= 0", ["id"])
            return np.array(sorted(int(row["id"]) for row in found), np.int64)

    def vectors_numbered(self, numbers: Sequence[int] | Ids) -> Floats:
        """Return the unit vectors (n, d) of these ids."""
        rows = self._by_id(numbers, ["id", "vector"])
        vectors = [rows[int(each)]["vector"] for each in numbers]
        return np.asarray(vectors, dtype=np.float32).reshape(len(vectors), self.dimensions)

    def entries_numbered(self, numbers: Sequence[int] | Ids) -> list[Hit]:
        """Return texts and metadata of these ids, each with score 1."""
        rows = self._by_id(numbers, ["id", "text", "metadata"])
        return [_hit({"id": each, "distance": 1.0, "entity": rows[int(each)]}) for each in numbers]

    def nearest(self, vectors: Floats, k: int) -> tuple[Floats, Ids]:
        """Return cosines and ids (n, at most k) of the nearest rows; an id of -1 means none."""
        scores = np.full((len(vectors), k), -np.inf, np.float32)
        ids = np.full((len(vectors), k), -1, np.int64)
        for row, hits in enumerate(self.search_vectors(vectors, k, group=False)):
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

    def _visible(self, given: Filter | None = None) -> str:
        hidden = f"id < {self.manifest.next_id}" if self.manifest.pending else ""  # of an unfinished addition
        return " and ".join(part for part in (hidden, expression(given, self.columns)) if part)

    def _by_id(self, ids: Sequence[Id] | Ids, fields: Sequence[str]) -> dict[int, dict[str, Any]]:
        """Return the rows with these ids by id, or say which id is missing."""
        given = [int(each) for each in ids]
        with self._store.explained():
            found = self._store.find_each(self._rows, "id", given, fields)
            rows = {int(row["id"]): row for row in found if int(row["id"]) < self.manifest.next_id}
        if missing := [each for each in given if each not in rows]:
            raise InputError(f"{self.place} has no row with the id {missing[0]}.")
        return rows


def _group(hit: Hit, first: Mapping[str, Any], copies: int) -> Hit:
    return hit._replace(id=int(first["id"]), metadata=dict(first["metadata"]), copies=copies)


def _hit(found: Mapping[str, Any]) -> Hit:
    entity = found["entity"]
    return Hit(int(found["id"]), float(found["distance"]), str(entity["text"]), dict(entity["metadata"]))
