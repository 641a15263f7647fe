"""MilvusIndex: an index on a Milvus server, or in a file of milvus-lite, for more than one machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from twinpass.errors import ConfigError, InputError, OutputError
from twinpass.search.engines.exact import Floats
from twinpass.search.engines.milvus_store import (
    ANSWERING,
    KINDS,
    METRIC,
    PAGE,
    Address,
    RowWriter,
    Store,
    as_signed,
    rows_of,
)
from twinpass.search.filters import Where, conditions_to_remove, expression, parse
from twinpass.search.index import Index
from twinpass.search.manifest import Manifest, Part
from twinpass.search.results import Added, Hit, Info
from twinpass.search.segment import Block, Ids, check_vectors, digest_of
from twinpass.search.writer import check_kind, peek
from twinpass.vectors import unit

MOST = 16_384  # neighbours that Milvus returns for one query
QUERIES = 256  # in one request
EFFORT = 128  # candidates that a search of a graph keeps, at least


class MilvusIndex(Index):
    """An index that others may change meanwhile: every search looks first at what there is."""

    def _connect(self) -> None:
        self._store = Store(self.place)
        with self._store.explained():
            self._manifest = self._existing()

    @classmethod
    def from_blocks(
        cls,
        place: Address,
        blocks: Iterable[Block],
        *,
        model: Mapping[str, Any],
        kind: str = "auto",
        unique: bool = False,
        overwrite: bool = False,
        facts: Mapping[str, Any] | None = None,
    ) -> MilvusIndex:
        """Make an index of blocks; until all are written, what was there before stays."""
        check_kind(kind, KINDS, " with Milvus")
        store = Store(place, create=True)
        with store.explained():
            old = _check_free(store, overwrite=overwrite)
            store.sweep(keep=rows_of(old) if old else None)
            first, blocks = peek(blocks)
            dimensions, generation = int(np.shape(first.vectors)[1]), old.generation if old else 0
            manifest = Manifest(model=dict(model), dimensions=dimensions, kind=kind, generation=generation)
            name = f"{store.states}_{manifest.generation + 1:06d}"
            store.create_rows(name, dimensions=dimensions, kind=kind)
            writer = RowWriter(store, name, manifest, unique=unique)
            writer.write(blocks)
            part = Part(name=name, rows=writer.rows, kind=kind, columns=tuple(writer.places))
            facts = {**(facts or {}), "skipped": writer.skipped}
            store.put(manifest.changed("build", writer.rows, facts, parts=(part,), next_id=writer.rows))
            store.sweep(keep=name)
        return cls(place)

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
        with store.explained():
            self._manifest = manifest = self._existing()
            self.check_model(name=model["name"], fingerprint=model["fingerprint"])  # it may have been replaced
            if not manifest.pending:
                manifest = replace(manifest, generation=manifest.generation + 1, pending=True)
                self._put(manifest)
            # What a killed addition left: its ids are given again.
            store.client.delete(rows_of(manifest), filter=f"id >= {manifest.next_id}", timeout=ANSWERING)
            writer = RowWriter(store, rows_of(manifest), manifest, unique=unique)
            writer.write(blocks)
            next_id = manifest.next_id + writer.rows
            part = replace(manifest.parts[0], rows=next_id, columns=tuple(writer.places))
            facts = {**(facts or {}), "skipped": writer.skipped}
            self._put(manifest.changed("add", writer.rows, facts, parts=(part,), next_id=next_id, pending=False))
        return Added(writer.rows, writer.skipped, facts)

    def _remove(self, ids: Sequence[int] | None, texts: Sequence[str] | None, where: Where) -> int:
        with self._store.explained():
            self._manifest = manifest = self._existing()
            chosen = self._chosen(ids, texts, where)
            for start in range(0, len(chosen), PAGE):
                self._store.client.delete(rows_of(manifest), ids=chosen[start : start + PAGE], timeout=ANSWERING)
            if chosen:
                removed = manifest.removed_rows + len(chosen)
                self._put(manifest.changed("remove", len(chosen), removed_rows=removed))
        return len(chosen)

    def _chosen(self, ids: Sequence[int] | None, texts: Sequence[str] | None, where: Where) -> list[int]:
        """Return the ids of the rows to remove."""
        if ids is not None:
            return list(self._rows(ids, ["id"]))
        if texts is not None:
            given = set(texts)
            found = self._store.find_each(
                rows_of(self._manifest), "digest", as_signed(digest_of(given)), ["id", "text"]
            )
            return [int(row["id"]) for row in found if row["text"] in given and self._is_visible(row)]
        visible = self._visible(conditions_to_remove(where))
        return [int(row["id"]) for row in self._store.find(rows_of(self._manifest), visible, ["id"])]

    def compact(self) -> None:
        """Do nothing: Milvus frees the space of removed rows by itself."""

    def refresh(self) -> bool:
        """See what others have changed; return whether there was a change."""
        before = self._manifest.generation
        with self._store.explained():
            self._manifest = self._existing()
        return before != self._manifest.generation

    def search_vectors(
        self, vectors: Floats, k: int = 10, *, where: Where = None, min_score: float | None = None
    ) -> list[list[Hit]]:
        """Return each query's k nearest texts, best first."""
        if not 1 <= k <= MOST:
            raise ConfigError(f"k is {k}; expected 1 to {MOST:,} with Milvus.")
        queries = np.atleast_2d(np.asarray(vectors, dtype=np.float32))
        self.refresh()
        check_vectors(queries, dimensions=self.dimensions)
        conditions = parse(where)
        least = -np.inf if min_score is None else min_score
        found: list[list[Hit]] = []
        with self._store.explained():
            for start in range(0, len(queries), QUERIES):
                answers = self._search(queries[start : start + QUERIES], k, self._visible(conditions))
                found += [[hit for hit in map(_hit, answer) if hit.score >= least] for answer in answers]
        return found

    def _search(self, queries: Floats, k: int, visible: str) -> Any:
        params = {"ef": max(EFFORT, k)} if self.manifest.kind == "hnsw" else {}
        return self._store.client.search(
            rows_of(self._manifest),
            data=list(unit(queries)),
            anns_field="vector",
            limit=k,
            filter=visible,
            output_fields=["text", "metadata"],
            search_params={"metric_type": METRIC, "params": params},
            timeout=ANSWERING,
        )

    def _check_where(self, where: Where) -> None:
        self.refresh()  # for columns that others have added
        super()._check_where(where)

    def __len__(self) -> int:
        with self._store.explained():
            answer = self._store.client.query(
                rows_of(self._manifest), filter=self._visible([]), output_fields=["count(*)"], timeout=ANSWERING
            )
        return int(answer[0]["count(*)"])

    @property
    def manifest(self) -> Manifest:
        """What the index holds."""
        return self._manifest

    @property
    def exact(self) -> bool:
        """Whether every search looks at every vector."""
        return self.manifest.kind == "exact"

    def ids(self) -> Ids:
        """Return the ids of all rows, ascending."""
        with self._store.explained():
            found = self._store.find(rows_of(self._manifest), self._visible([]) or "id >= 0", ["id"])
            return np.array(sorted(int(row["id"]) for row in found), np.int64)

    def vectors(self, ids: Sequence[int] | Ids | None = None) -> Floats:
        """Return the unit vectors (n, d) of these ids, or of all."""
        chosen = self.ids() if ids is None else ids
        with self._store.explained():
            rows = self._rows(chosen, ["id", "vector"])
        vectors = [rows[int(each)]["vector"] for each in chosen]
        return np.asarray(vectors, dtype=np.float32).reshape(len(vectors), self.dimensions)

    def entries(self, ids: Sequence[int] | Ids) -> list[Hit]:
        """Return texts and metadata of these ids, each with score 1."""
        with self._store.explained():
            rows = self._rows(ids, ["id", "text", "metadata"])
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
        manifest, rows = self.manifest, len(self)
        with self._store.explained():
            version = self._store.client.get_server_version()
        return Info(
            index=str(self.place),
            rows=rows,
            removed=manifest.removed_rows,
            dimensions=manifest.dimensions,
            kind=manifest.kind,
            columns=manifest.columns,
            model=manifest.model,
            segments=[{"rows": rows, "kind": manifest.kind}],
            history=manifest.history,
            server=version,
            unfinished_addition=manifest.pending,
        )

    def _existing(self) -> Manifest:
        manifest = self._store.manifest()
        if manifest is None:
            raise InputError(
                f"there is no index {self.place}. Make one with: twinpass index build MODEL TEXTS -o NAME --milvus URI"
            )
        self._store.load(rows_of(manifest))
        return manifest

    def _put(self, manifest: Manifest) -> None:
        self._store.put(manifest)
        self._manifest = manifest

    def _visible(self, conditions: Sequence[Any]) -> str:
        hidden = f"id < {self.manifest.next_id}" if self.manifest.pending else ""  # of an unfinished addition
        return " and ".join(part for part in (hidden, expression(conditions, self.columns)) if part)

    def _is_visible(self, row: Mapping[str, Any]) -> bool:
        """Tell whether a row belongs to the index, and not to an unfinished addition."""
        return int(row["id"]) < self.manifest.next_id

    def _rows(self, ids: Sequence[int] | Ids, fields: Sequence[str]) -> dict[int, dict[str, Any]]:
        """Return the rows with these ids by id, or say which id is missing."""
        given = list(dict.fromkeys(int(each) for each in ids))
        found = self._store.find_each(rows_of(self._manifest), "id", given, fields)
        rows = {int(row["id"]): row for row in found if self._is_visible(row)}
        if missing := [each for each in given if each not in rows]:
            raise InputError(f"{self.place} has no row with the id {missing[0]}.")
        return rows


def _check_free(store: Store, *, overwrite: bool) -> Manifest | None:
    """Return the index that is to be replaced, if there is one; refuse without `overwrite`."""
    old = store.manifest()
    if old is not None and not overwrite:
        raise OutputError(f"there is an index {store.address} already. Add to it, or replace it with --overwrite.")
    return old


def _hit(found: Mapping[str, Any]) -> Hit:
    entity = found["entity"]
    return Hit(int(found["id"]), str(entity["text"]), float(found["distance"]), dict(entity["metadata"]))
