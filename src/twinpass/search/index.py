"""Index: texts and their vectors in a folder, searched by cosine; it never meets the model that made them.

index.json           what there is: the only file that is ever replaced, and so the moment of every change
segment-000001/      rows that were written together (see segment.py)
removed-000002.npy   ids that were removed and still take room
lock                 held by the one process that writes
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from twinpass.errors import ConfigError, InputError
from twinpass.search import writing
from twinpass.search.exact import Floats
from twinpass.search.manifest import check_model, stamp
from twinpass.search.numbered import ids_of_texts
from twinpass.search.segment import Block, Ids, check_vectors
from twinpass.search.snapshot import Snapshot, open_snapshot
from twinpass.search.where import Where, check_one_choice, parse
from twinpass.search.writing import Written
from twinpass.vectors import unit

__all__ = ["Block", "Hit", "Index", "Written"]


class Hit(NamedTuple):
    """A text that was found."""

    id: int
    text: str
    score: float  # cosine
    metadata: dict[str, Any]


class Index:
    """A saved index as it was when opened, or when it was last changed through this object."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._refreshing = threading.Lock()
        self._stamp = stamp(folder)  # before the manifest is read: what is replaced in between is read again
        self._snapshot = open_snapshot(folder)

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Index:
        """Open a saved index; nothing is read into memory before it is needed."""
        return cls(Path(folder))

    @classmethod
    def build(
        cls,
        folder: str | os.PathLike[str],
        blocks: Iterable[Block],
        *,
        model: Mapping[str, Any],
        kind: str = "auto",
        unique: bool = False,
        overwrite: bool = False,
        facts: Mapping[str, Any] | None = None,
    ) -> Index:
        """Make an index from a stream of blocks, whole or not at all.

        `model` says what made the vectors: at least its `name` and `fingerprint`. `kind` is exact, hnsw, ivf-pq,
        or auto: by size. With `unique` a text that comes again is left out. `facts` are kept in the history.
        """
        if missing := {"name", "fingerprint"} - set(model):
            raise ConfigError(f"an index wants its model's name and fingerprint; there is no {min(missing)}.")
        writing.build(Path(folder), blocks, model=model, kind=kind, unique=unique, overwrite=overwrite, facts=facts)
        return cls.open(folder)

    def add(self, blocks: Iterable[Block], *, unique: bool = False, facts: Mapping[str, Any] | None = None) -> Written:
        """Add a stream of blocks, all or nothing; return how many rows were added and left out."""
        written = writing.add(self.folder, blocks, model=self.model, unique=unique, facts=facts)
        self.refresh()
        return written

    def remove(
        self, *, ids: Sequence[int] | None = None, texts: Sequence[str] | None = None, where: Where = None
    ) -> int:
        """Remove the rows with these ids, with these texts, or that meet these conditions; return how many."""
        check_one_choice(ids, texts, where)
        removed = writing.remove(self.folder, lambda now: _chosen(now, ids=ids, texts=texts, where=where))
        self.refresh()
        return removed

    def compact(self) -> None:
        """Join all segments into one and give back the room of removed rows."""
        writing.compact(self.folder)
        self.refresh()

    def refresh(self) -> bool:
        """See what others have changed since the index was opened; return whether there was a change.

        If there was none this costs one look at a file's date. It may be called while other threads search: they
        finish on what they began with.
        """
        with self._refreshing:
            now = stamp(self.folder)
            if now is not None and now == self._stamp:
                return False
            self._snapshot = open_snapshot(self.folder, self._snapshot.segments)
            self._stamp = now
        return True

    def search(
        self, vectors: Floats, k: int = 10, *, where: Where = None, min_score: float | None = None
    ) -> list[list[Hit]]:
        """Return each query's k nearest texts, best first; fewer where fewer meet the conditions or the score."""
        if k < 1:
            raise ConfigError(f"k is {k}; wanted at least 1.")
        queries = np.atleast_2d(np.asarray(vectors, dtype=np.float32))
        snapshot, conditions = self._snapshot, parse(where)
        check_vectors(queries, dimensions=snapshot.manifest.dimensions)
        allowed = snapshot.meeting(conditions) if conditions else None
        least = -np.inf if min_score is None else min_score
        scores, rows = snapshot.nearest(unit(queries), k, allowed)
        good = (rows >= 0) & (scores >= least)
        return [
            [_hit(snapshot, int(row), float(score)) for row, score in zip(found[kept], each[kept], strict=True)]
            for found, each, kept in zip(rows, scores, good, strict=True)
        ]

    def check_model(self, *, name: str, fingerprint: str) -> None:
        """Refuse a model other than the one that made the vectors."""
        check_model(self.folder, self.model, name=name, fingerprint=fingerprint)

    def __len__(self) -> int:
        manifest = self._snapshot.manifest
        return manifest.rows - manifest.removed_rows

    @property
    def model(self) -> dict[str, Any]:
        """Name and fingerprint of the model that made the vectors, and the options it was loaded with."""
        return self._snapshot.manifest.model

    @property
    def dimensions(self) -> int:
        """The length of a vector."""
        return self._snapshot.manifest.dimensions

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the metadata columns."""
        return self._snapshot.manifest.columns

    @property
    def exact(self) -> bool:
        """Whether every search looks at every vector."""
        return all(part.kind == "exact" for part in self._snapshot.manifest.parts)

    def ids(self) -> Ids:
        """Return the ids of all rows, ascending."""
        return self._snapshot.living_ids

    def vectors(self, ids: Sequence[int] | Ids | None = None) -> Floats:
        """Return the unit vectors (n, d) of these ids, or of all."""
        snapshot = self._snapshot
        return snapshot.vectors(snapshot.rows_of(snapshot.living_ids if ids is None else ids))

    def entries(self, ids: Sequence[int] | Ids) -> list[Hit]:
        """Return texts and metadata of these ids, each with the score 1 of itself."""
        snapshot = self._snapshot
        return [_hit(snapshot, int(row), 1.0) for row in snapshot.rows_of(ids)]

    def nearest(self, vectors: Floats, k: int) -> tuple[Floats, Ids]:
        """Return cosines and ids (n, at most k) of what is nearest; an id of -1 stands for none."""
        snapshot = self._snapshot
        scores, rows = snapshot.nearest(unit(np.asarray(vectors, dtype=np.float32)), k)
        return scores, np.where(rows < 0, -1, snapshot.ids[rows])

    def info(self) -> dict[str, Any]:
        """Return what there is to know about the index, as a JSON object."""
        snapshot = self._snapshot
        manifest, digests = snapshot.manifest, [segment.digests for segment in snapshot.segments]
        distinct = len(np.unique(np.concatenate(digests)[snapshot.alive])) if digests else 0
        return {
            "index": str(self.folder),
            "rows": manifest.rows - manifest.removed_rows,
            "distinct": distinct,
            "removed": manifest.removed_rows,
            "dimensions": manifest.dimensions,
            "kind": manifest.kind,
            "columns": list(manifest.columns),
            "model": manifest.model,
            "segments": [{"rows": part.rows, "kind": part.kind, **part.quality} for part in manifest.parts],
            "bytes": _size(self.folder),
            "history": list(manifest.history),
        }


def _size(folder: Path) -> int:
    """Return the bytes of all files of an index; one that a writer deletes meanwhile does not count."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(parent) / name).stat().st_size
    return total


def _hit(snapshot: Snapshot, row: int, score: float) -> Hit:
    segment, place = snapshot.locate(row)
    return Hit(int(segment.ids[place]), segment.text(place), score, segment.metadata(place))


def _chosen(snapshot: Snapshot, *, ids: Sequence[int] | None, texts: Sequence[str] | None, where: Where) -> Ids:
    if ids is not None:
        return snapshot.ids[snapshot.rows_of(ids)]
    if texts is not None:
        return ids_of_texts(snapshot, texts)
    conditions = parse(where)
    if not conditions:
        raise InputError("wanted a condition that says what to remove, got none.")
    return snapshot.ids[snapshot.meeting(conditions)]
