"""MilvusIndex: the Index of index.py on a Milvus server or in a file of milvus-lite, beyond one machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from twinpass.errors import ConfigError, InputError, OutputError
from twinpass.search.exact import Floats
from twinpass.search.index import Hit
from twinpass.search.manifest import Manifest, Part, check_model
from twinpass.search.milvus_client import ANSWERING, Address, check_ready
from twinpass.search.milvus_filters import expression
from twinpass.search.milvus_rows import RowWriter
from twinpass.search.milvus_store import EFFORT, METRIC, PAGE, State, Store, as_signed, check_kind
from twinpass.search.segment import Block, Ids, check_vectors, digest_of
from twinpass.search.where import Where, check_one_choice, parse
from twinpass.search.writing import Written, peek
from twinpass.vectors import unit

__all__ = ["Address", "MilvusIndex"]

MOST = 16_384  # neighbours that Milvus returns for one query
QUERIES = 256  # in one request


class MilvusIndex:
    """An index that others may change meanwhile: every call looks first at what there is."""

    def __init__(self, store: Store, state: State) -> None:
        self.address = store.address
        self._store = store
        self._state = state

    @classmethod
    def open(cls, address: Address) -> MilvusIndex:
        """Open the index at an address."""
        store = Store(address)
        with store.explained():
            return cls(store, _existing(store))

    @classmethod
    def build(
        cls,
        address: Address,
        blocks: Iterable[Block],
        *,
        model: Mapping[str, Any],
        kind: str = "auto",
        unique: bool = False,
        overwrite: bool = False,
        facts: Mapping[str, Any] | None = None,
    ) -> MilvusIndex:
        """Make an index from a stream of blocks; until all are written, what was there before stays."""
        check_kind(kind)
        store = Store(address, create=True)
        with store.explained():
            old = _check_free(store, overwrite=overwrite)
            store.sweep(keep=old.rows if old else None)
            first, blocks = peek(blocks)
            dimensions = int(np.shape(first.vectors)[1])
            manifest = Manifest(
                model=dict(model), dimensions=dimensions, kind=kind, generation=old.manifest.generation if old else 0
            )
            name = f"{store.states}_{manifest.generation + 1:06d}"
            store.create_rows(name, dimensions=dimensions, kind=kind)
            writer = RowWriter(store, name, dimensions=dimensions, next_id=0, unique=unique)
            written = writer.write(blocks)
            part = Part(name=name, rows=written.rows, kind=kind, columns=tuple(writer.places))
            state = State(manifest.changed("build", written.rows, facts, parts=(part,), next_id=written.rows))
            store.put(state)
            store.sweep(keep=name)
        return cls(store, state)

    def add(self, blocks: Iterable[Block], *, unique: bool = False, facts: Mapping[str, Any] | None = None) -> Written:
        """Add a stream of blocks; nobody sees them before all are written."""
        store = self._store
        with store.explained():
            state = _existing(store)
            check_model(store.address, state.manifest.model, **_identity(self.model))  # it may be another by now
            if not state.pending:
                state = State(replace(state.manifest, generation=state.manifest.generation + 1), pending=True)
                store.put(state)
            manifest = state.manifest
            # What an addition left that was killed: its ids are given again.
            store.client.delete(state.rows, filter=f"id >= {manifest.next_id}", timeout=ANSWERING)
            writer = RowWriter(
                store,
                state.rows,
                dimensions=manifest.dimensions,
                next_id=manifest.next_id,
                columns=state.columns,
                unique=unique,
            )
            written = writer.write(blocks)
            next_id = manifest.next_id + written.rows
            part = replace(manifest.parts[0], rows=next_id, columns=tuple(writer.places))
            self._put(State(manifest.changed("add", written.rows, facts, parts=(part,), next_id=next_id)))
        return written

    def remove(
        self, *, ids: Sequence[int] | None = None, texts: Sequence[str] | None = None, where: Where = None
    ) -> int:
        """Remove the rows with these ids, with these texts, or that meet these conditions; return how many."""
        check_one_choice(ids, texts, where)
        with self._store.explained():
            self._state = state = _existing(self._store)
            chosen = self._chosen(ids=ids, texts=texts, where=where)
            for start in range(0, len(chosen), PAGE):
                self._store.client.delete(state.rows, ids=chosen[start : start + PAGE], timeout=ANSWERING)
            if chosen:
                manifest = state.manifest
                removed = manifest.removed_rows + len(chosen)
                manifest = manifest.changed("remove", len(chosen), removed_rows=removed)
                self._put(replace(state, manifest=manifest))
        return len(chosen)

    def refresh(self) -> bool:
        """Look at the index again; return whether it has changed."""
        with self._store.explained():
            before, self._state = self._state, _existing(self._store)
        return before.manifest.generation != self._state.manifest.generation

    def search(
        self, vectors: Floats, k: int = 10, *, where: Where = None, min_score: float | None = None
    ) -> list[list[Hit]]:
        """Return each query's k nearest texts, best first; fewer where fewer meet the conditions or the score."""
        if not 1 <= k <= MOST:
            raise ConfigError(f"k is {k}; with Milvus it lies between 1 and {MOST:,}.")
        queries = np.atleast_2d(np.asarray(vectors, dtype=np.float32))
        self.refresh()
        check_vectors(queries, dimensions=self.dimensions)
        conditions = parse(where)
        least = -np.inf if min_score is None else min_score
        found: list[list[Hit]] = []
        with self._store.explained():
            for start in range(0, len(queries), QUERIES):
                answers = self._search(unit(queries[start : start + QUERIES]), k, self._visible(conditions))
                found += [[hit for hit in map(_hit, answer) if hit.score >= least] for answer in answers]
        return found

    def _search(self, queries: Floats, k: int, visible: str) -> Any:
        params = {"ef": max(EFFORT, k)} if self._state.manifest.kind == "hnsw" else {}
        return self._store.client.search(
            self._state.rows,
            data=list(queries),
            anns_field="vector",
            limit=k,
            filter=visible,
            output_fields=["text", "metadata"],
            search_params={"metric_type": METRIC, "params": params},
            timeout=ANSWERING,
        )

    def check_model(self, *, name: str, fingerprint: str) -> None:
        """Refuse a model other than the one that made the vectors."""
        check_model(self.address, self.model, name=name, fingerprint=fingerprint)

    def __len__(self) -> int:
        answer = self._store.client.query(
            self._state.rows, filter=self._visible([]), output_fields=["count(*)"], timeout=ANSWERING
        )
        return int(answer[0]["count(*)"])

    @property
    def model(self) -> dict[str, Any]:
        """Name and fingerprint of the model that made the vectors, and the options it was loaded with."""
        return self._state.manifest.model

    @property
    def dimensions(self) -> int:
        """The length of a vector."""
        return self._state.manifest.dimensions

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the metadata columns."""
        return self._state.columns

    def info(self) -> dict[str, Any]:
        """Return what there is to know about the index, as a JSON object."""
        self.refresh()
        manifest = self._state.manifest
        with self._store.explained():
            rows, version = len(self), self._store.client.get_server_version()
        return {
            "index": str(self.address),
            "engine": "milvus",
            "server": version,
            "rows": rows,
            "removed": manifest.removed_rows,
            "dimensions": manifest.dimensions,
            "kind": manifest.kind,
            "columns": list(manifest.columns),
            "model": manifest.model,
            "unfinished_addition": self._state.pending,
            "segments": [{"rows": rows, "kind": manifest.kind}],
            "history": list(manifest.history),
        }

    def _put(self, state: State) -> None:
        self._store.put(state)
        self._state = state

    def _visible(self, conditions: Sequence[Any]) -> str:
        parts = [self._state.filter, expression(conditions, self.columns)]
        return " and ".join(part for part in parts if part)

    def _chosen(self, *, ids: Sequence[int] | None, texts: Sequence[str] | None, where: Where) -> list[int]:
        """Return the ids of the rows to remove."""
        if ids is not None:
            return self._checked(ids)
        rows, store = self._state.rows, self._store
        if texts is not None:
            wanted = set(texts)
            found = store.find_each(rows, "digest", as_signed(digest_of(wanted)), ["id", "text"])
            return [int(row["id"]) for row in found if row["text"] in wanted and self._is_seen(row)]
        conditions = parse(where)
        if not conditions:
            raise InputError("wanted a condition that says what to remove, got none.")
        return [int(row["id"]) for row in store.find(rows, self._visible(conditions), ["id"])]

    def _is_seen(self, row: Mapping[str, Any]) -> bool:
        """Tell whether a row belongs to the index, and not to an addition that is unfinished."""
        return int(row["id"]) < self._state.manifest.next_id

    def _checked(self, ids: Sequence[int] | Ids) -> list[int]:
        wanted = list(dict.fromkeys(int(each) for each in ids))
        rows = self._store.find_each(self._state.rows, "id", wanted, ["id"])
        found = {int(row["id"]) for row in rows if self._is_seen(row)}
        if missing := [each for each in wanted if each not in found]:
            raise InputError(f"{self.address} has no row with the id {missing[0]}.")
        return wanted


def check_target(address: Address, *, kind: str, overwrite: bool) -> None:
    """Refuse, before any work is done, a place where `build` would fail."""
    check_kind(kind)
    check_ready(address, create=True)
    if not address.is_file or Path(address.uri).exists():  # looking into a file that is not there would make it
        store = Store(address, create=True)
        with store.explained():
            _check_free(store, overwrite=overwrite)


def _check_free(store: Store, *, overwrite: bool) -> State | None:
    """Return the index that is to be replaced, if there is one; refuse where that was not asked for."""
    old = store.state()
    if old is not None and not overwrite:
        raise OutputError(f"there is an index {store.address} already. Add to it, or replace it with --overwrite.")
    return old


def _existing(store: Store) -> State:
    state = store.state()
    if state is None:
        raise InputError(
            f"there is no index {store.address}. Make one with: twinpass index build MODEL TEXTS --engine milvus"
        )
    store.load(state.rows)
    return state


def _identity(model: Mapping[str, Any]) -> dict[str, str]:
    return {"name": model["name"], "fingerprint": model["fingerprint"]}


def _hit(found: Mapping[str, Any]) -> Hit:
    entity = found["entity"]
    return Hit(int(found["id"]), str(entity["text"]), float(found["distance"]), dict(entity["metadata"]))
