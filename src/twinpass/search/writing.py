"""Changing an index: every change is written aside and becomes true in one moment, when the manifest is replaced."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from twinpass.errors import ConfigError, InputError, OutputError
from twinpass.files import explaining
from twinpass.registry import suggest
from twinpass.search.approximate import EXACT, KINDS, kind_for, make
from twinpass.search.disk import LOCK, locked, strangers, sweep, sync, sync_all
from twinpass.search.joining import first_to_join
from twinpass.search.manifest import FILE, Manifest, Part, check_model, read_manifest, write_manifest
from twinpass.search.numbered import Numbered, Seen, copied, living_digests, numbered
from twinpass.search.segment import ENGINE, Block, Ids, Segment, SegmentWriter
from twinpass.search.snapshot import Snapshot


@dataclass
class Written:
    """What a change added."""

    rows: int = 0
    left_out: int = 0  # texts that were there already, with unique


def build(
    folder: Path,
    blocks: Iterable[Block],
    *,
    model: Mapping[str, Any],
    kind: str,
    unique: bool,
    overwrite: bool,
    facts: Mapping[str, Any] | None,
) -> Written:
    """Make an index of blocks; until all is written, what was there before stays."""
    check_kind(kind)
    with _new_folder(folder), locked(folder), explaining(folder):
        old = _check_replaceable(folder, overwrite=overwrite)
        sweep(folder, old.names if old else set())
        first, blocks = peek(blocks)
        manifest = Manifest(
            model=dict(model),
            dimensions=int(np.shape(first.vectors)[1]),
            kind=kind,
            generation=old.generation if old else 0,
        )
        with _swept_on_failure(folder, old):
            part, written = _write(folder, manifest, numbered(blocks, Seen() if unique else None), kind)
        manifest = manifest.changed("build", written.rows, facts, parts=(part,), next_id=written.rows)
        write_manifest(folder, manifest)
        sweep(folder, manifest.names)
    return written


def add(
    folder: Path, blocks: Iterable[Block], *, model: Mapping[str, Any], unique: bool, facts: Mapping[str, Any] | None
) -> Written:
    """Add blocks, which this model made, to an index as a segment of their own."""
    with _changing(folder) as manifest:
        # Another process may have replaced the index since it was opened.
        check_model(folder, manifest.model, name=model["name"], fingerprint=model["fingerprint"])
        seen = Seen(living_digests(Snapshot(folder, manifest))) if unique else None
        with _swept_on_failure(folder, manifest):
            part, written = _write(folder, manifest, numbered(blocks, seen), EXACT)
        if written.rows:
            parts, next_id = (*manifest.parts, part), manifest.next_id + written.rows
            manifest = manifest.changed("add", written.rows, facts, parts=parts, next_id=next_id)
            write_manifest(folder, manifest)
        join(folder, manifest)
    return written


def remove(folder: Path, find: Callable[[Snapshot], Ids]) -> int:
    """Mark the ids that are found as removed, and join the segments where many are."""
    with _changing(folder) as manifest:
        snapshot = Snapshot(folder, manifest)
        ids = np.unique(find(snapshot))
        if len(ids):
            removed = np.union1d(snapshot.removed, ids)
            name = _write_removed(folder, manifest, removed)
            manifest = manifest.changed("remove", len(ids), removed=name, removed_rows=len(removed))
            write_manifest(folder, manifest)
            join(folder, manifest)
    return len(ids)


def compact(folder: Path) -> None:
    """Join all segments into one, without the removed rows."""
    with _changing(folder) as manifest:
        if len(manifest.parts) > 1 or manifest.removed_rows:
            _join_from(folder, manifest, 0)


def join(folder: Path, manifest: Manifest) -> None:
    """Join segments where an index has become slow or wasteful, and drop the files that it no longer names."""
    first = first_to_join(manifest)
    if first is None:
        sweep(folder, manifest.names)
        return
    try:
        _join_from(folder, manifest, first)
    except OSError as error:  # a full disk, as a rule; what was to be changed has been, and must not be tried again
        message = f"{folder} was changed, but its segments could not be joined: {error.strerror or error}"
        warnings.warn(f"{message}. Make room, then: twinpass index compact {folder}", UserWarning, stacklevel=2)


def _join_from(folder: Path, manifest: Manifest, first: int) -> None:
    snapshot = Snapshot(folder, manifest)
    kept, start = manifest.parts[:first], int(snapshot.starts[first])
    rows = start + np.flatnonzero(snapshot.alive[start:])
    kind = manifest.kind if first == 0 else EXACT
    with _swept_on_failure(folder, manifest):
        part, written = _write(folder, manifest, copied(snapshot, rows), kind)
    removed = snapshot.removed[np.isin(snapshot.removed, snapshot.ids[:start])]
    name = _write_removed(folder, manifest, removed) if len(removed) else None
    parts = (*kept, part) if written.rows else kept
    manifest = manifest.changed("join", written.rows, parts=parts, removed=name, removed_rows=len(removed))
    write_manifest(folder, manifest)
    sweep(folder, manifest.names)


def _write(folder: Path, manifest: Manifest, blocks: Iterable[Numbered], kind: str) -> tuple[Part, Written]:
    """Write a segment, and what searching it approximately needs."""
    name = f"segment-{manifest.generation + 1:06d}"
    place, written = folder / name, Written()
    with SegmentWriter(place, manifest.dimensions) as writer:
        for rows in blocks:
            start = manifest.next_id + written.rows
            count = len(rows.digests)
            ids = np.arange(start, start + count) if rows.ids is None else rows.ids
            writer.append(rows.block, ids, rows.digests)
            written.rows, written.left_out = written.rows + count, written.left_out + rows.left_out
    part = _with_engine(place, written.rows, manifest.dimensions, kind)
    sync_all(place)
    return Part(**{**part, "name": name, "columns": tuple(writer.columns)}), written


def _with_engine(place: Path, rows: int, dimensions: int, wanted: str) -> dict[str, Any]:
    kind = kind_for(rows, wanted)
    if kind == EXACT:
        return {"rows": rows, "kind": EXACT}
    engine = make(kind, Segment(place, rows=rows, dimensions=dimensions).vectors)
    quality = engine.tune()
    engine.save(place / ENGINE)
    return {"rows": rows, "kind": kind, "quality": quality}


def _write_removed(folder: Path, manifest: Manifest, removed: Ids) -> str:
    name = f"removed-{manifest.generation + 1:06d}.npy"
    np.save(folder / name, removed)
    sync(folder / name)
    return name


def peek(blocks: Iterable[Block]) -> tuple[Block, Iterable[Block]]:
    """Return the first block, and all of them."""
    iterator = iter(blocks)
    first = next((block for block in iterator if len(block.texts)), None)
    if first is None:
        raise InputError("there is no text to index.")
    return first, chain([first], iterator)


@contextlib.contextmanager
def _changing(folder: Path) -> Iterator[Manifest]:
    """Hold an existing index for writing, and clear away what an earlier writer left."""
    read_manifest(folder)  # before a lock file is made in a folder that is no index
    with locked(folder), explaining(folder):
        manifest = read_manifest(folder)
        sweep(folder, manifest.names)
        yield manifest


@contextlib.contextmanager
def _new_folder(folder: Path) -> Iterator[None]:
    """Make the folder of an index if need be, and take it away again if the index does not come about."""
    if not folder.parent.is_dir():
        raise OutputError(f"cannot write {folder}: there is no folder {folder.parent}. Make it first.")
    fresh = not folder.exists()
    with explaining(folder):
        folder.mkdir(exist_ok=True)
    try:
        yield
    finally:
        if fresh and not (folder / FILE).exists():
            (folder / LOCK).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                folder.rmdir()


@contextlib.contextmanager
def _swept_on_failure(folder: Path, manifest: Manifest | None) -> Iterator[None]:
    try:
        yield
    except BaseException:
        sweep(folder, manifest.names if manifest else set())
        raise


def _check_replaceable(folder: Path, *, overwrite: bool) -> Manifest | None:
    """Return the index that is to be replaced, if there is one; refuse where it is not ours to replace."""
    if strange := strangers(folder, {FILE}):
        raise OutputError(
            f"cannot build an index in {folder}: it holds {strange[0]}, which is no part of one. Choose another place."
        )
    if not (folder / FILE).exists():
        return None
    if not overwrite:
        raise OutputError(
            f"{folder} holds an index already. Add to it with: twinpass index add {folder} TEXTS; "
            "or replace it with --overwrite."
        )
    return read_manifest(folder)


def check_kind(kind: str) -> None:
    """Refuse a kind of search that there is not."""
    if kind not in KINDS:
        known = ", ".join(KINDS)
        raise ConfigError(f"no kind of index named {kind!r}.{suggest(kind, KINDS)} Known: {known}.")


def check_folder(folder: Path, *, overwrite: bool) -> None:
    """Refuse, before any work is done, a place where `build` would fail."""
    if folder.is_dir():
        _check_replaceable(folder, overwrite=overwrite)
    elif folder.exists() or not folder.parent.is_dir():
        raise OutputError(f"cannot write {folder}: wanted a new folder inside one that is there.")
