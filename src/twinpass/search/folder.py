"""FolderIndex: an index in a folder of this machine.

index.json           what there is: the only file that is ever replaced, and so the moment of every change
segment-000001/      rows that were written together (see segment.py)
removed-000002.npy   ids that were removed and still take space
lock                 held by the one process that writes
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinpass.errors import ConfigError
from twinpass.search import writer
from twinpass.search.engines.exact import Floats
from twinpass.search.filters import Where, check_columns, conditions_to_remove, parse
from twinpass.search.index import Index
from twinpass.search.manifest import Manifest, stamp
from twinpass.search.results import Added, Hit, Info
from twinpass.search.segment import Block, Ids, Snapshot, check_vectors, open_snapshot
from twinpass.vectors import unit


class FolderIndex(Index):
    """An index as it was when opened, or when it was last changed or refreshed through this object."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder
        self._refreshing = threading.Lock()
        self._stamp = stamp(folder)  # before the manifest is read: if it is replaced in between, it is read again
        self._snapshot = open_snapshot(folder)

    @classmethod
    def create(
        cls,
        place: Path,
        blocks: Iterable[Block],
        *,
        model: Mapping[str, Any],
        kind: str = "auto",
        unique: bool = False,
        overwrite: bool = False,
        facts: Mapping[str, Any] | None = None,
    ) -> FolderIndex:
        """Make an index of blocks in a folder, whole or not at all."""
        writer.build(place, blocks, model=model, kind=kind, unique=unique, overwrite=overwrite, facts=facts)
        return cls(place)

    @classmethod
    def check_target(cls, place: Path, *, kind: str, overwrite: bool) -> None:
        """Refuse, before any work is done, a folder where `create` would fail."""
        writer.check_kind(kind)
        writer.check_folder(place, overwrite=overwrite)

    def add_blocks(
        self, blocks: Iterable[Block], *, unique: bool = False, facts: Mapping[str, Any] | None = None
    ) -> Added:
        """Add blocks, all or nothing."""
        added = writer.add(self.folder, blocks, model=self.model, unique=unique, facts=facts)
        self.refresh()
        return added

    def _remove(self, ids: Sequence[int] | None, texts: Sequence[str] | None, where: Where) -> int:
        removed = writer.remove(self.folder, lambda now: _chosen(now, ids, texts, where))
        self.refresh()
        return removed

    def compact(self) -> None:
        """Join all segments into one and free the space of removed rows."""
        writer.compact(self.folder)
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

    def search_vectors(
        self, vectors: Floats, k: int = 10, *, where: Where = None, min_score: float | None = None
    ) -> list[list[Hit]]:
        """Return each query's k nearest texts, best first."""
        if k < 1:
            raise ConfigError(f"k is {k}; expected at least 1.")
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

    def __len__(self) -> int:
        return _living(self._snapshot.manifest)

    @property
    def manifest(self) -> Manifest:
        """What the index holds."""
        return self._snapshot.manifest

    @property
    def exact(self) -> bool:
        """Whether every search looks at every vector."""
        return all(part.kind == "exact" for part in self._snapshot.manifest.parts)

    def check_where(self, where: Where) -> None:
        """Refuse a condition that cannot be read, or on a column that no row has."""
        check_columns(parse(where), self.columns)

    def ids(self) -> Ids:
        """Return the ids of all rows, ascending."""
        return self._snapshot.living_ids

    def vectors(self, ids: Sequence[int] | Ids | None = None) -> Floats:
        """Return the unit vectors (n, d) of these ids, or of all."""
        snapshot = self._snapshot
        return snapshot.vectors(snapshot.rows_of(snapshot.living_ids if ids is None else ids))

    def entries(self, ids: Sequence[int] | Ids) -> list[Hit]:
        """Return texts and metadata of these ids, each with score 1."""
        snapshot = self._snapshot
        return [_hit(snapshot, int(row), 1.0) for row in snapshot.rows_of(ids)]

    def nearest(self, vectors: Floats, k: int) -> tuple[Floats, Ids]:
        """Return cosines and ids (n, at most k) of the nearest rows; an id of -1 means none."""
        snapshot = self._snapshot
        scores, rows = snapshot.nearest(unit(np.asarray(vectors, dtype=np.float32)), k)
        return scores, np.where(rows < 0, -1, snapshot.ids[rows])

    def info(self) -> Info:
        """Return what the index holds and what made it."""
        snapshot = self._snapshot
        manifest, digests = snapshot.manifest, [segment.digests for segment in snapshot.segments]
        return Info(
            index=str(self.folder),
            rows=_living(manifest),
            distinct=len(np.unique(np.concatenate(digests)[snapshot.alive])) if digests else 0,
            removed=manifest.removed_rows,
            dimensions=manifest.dimensions,
            kind=manifest.kind,
            columns=manifest.columns,
            model=manifest.model,
            segments=[{"rows": part.rows, "kind": part.kind, **part.quality} for part in manifest.parts],
            history=manifest.history,
            bytes=_size(self.folder),
        )


def _living(manifest: Manifest) -> int:
    return manifest.rows - manifest.removed_rows


def _size(folder: Path) -> int:
    """Return the bytes of all files of an index; a file that a writer deletes meanwhile does not count."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(parent) / name).stat().st_size
    return total


def _hit(snapshot: Snapshot, row: int, score: float) -> Hit:
    segment, place = snapshot.locate(row)
    return Hit(int(segment.ids[place]), segment.text(place), score, segment.metadata(place))


def _chosen(snapshot: Snapshot, ids: Sequence[int] | None, texts: Sequence[str] | None, where: Where) -> Ids:
    if ids is not None:
        return snapshot.ids[snapshot.rows_of(ids)]
    if texts is not None:
        return writer.ids_of_texts(snapshot, texts)
    return snapshot.ids[snapshot.meeting(conditions_to_remove(where))]
