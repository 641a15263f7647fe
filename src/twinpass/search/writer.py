"""Changing an index in a folder: a change is written beside what is there, and replacing the manifest makes it true."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from twinpass.errors import ConfigError, InputError, OutputError
from twinpass.files import explaining
from twinpass.registry import suggest
from twinpass.search import manifest as disk
from twinpass.search.checksums import Checksum
from twinpass.search.engines.approximate import (
    AUTO,
    BINARY,
    ENGINES,
    EXACT,
    FLOAT32,
    HNSW,
    IVF_PQ,
    KINDS,
    STORAGES,
    Approximate,
    kind_for,
)
from twinpass.search.filters import Filter
from twinpass.search.manifest import ENGINE, FILE, KEYS, TERMS, Manifest, Part, read_manifest, sweep, write_manifest
from twinpass.search.results import Added, Id
from twinpass.search.segment import BATCH, Block, Digests, Ids, Prepared, Segment, digest_of, write_segment
from twinpass.search.snapshot import Snapshot, open_snapshot

MOST_PARTS = 8  # segments; each costs a search a little
STALE = 4  # all segments are joined when one row in this many is removed, or is not in the graph yet

Facts = Mapping[str, Any] | None


def build(
    place: Path | str,
    blocks: Iterable[Block],
    *,
    model: Mapping[str, Any],
    kind: str,
    unique: bool,
    overwrite: bool,
    facts: Facts,
    id_column: str | None = None,
    storage: str = FLOAT32,
) -> None:
    """Make an index of blocks; until all is written, what was there before stays."""
    folder = Path(place)
    with _new_folder(folder), disk.locked(folder), explaining(folder):
        keep, generation = _check_replaceable(folder, overwrite=overwrite)
        sweep(folder, keep)
        first, blocks = peek(blocks)
        dimensions = int(np.shape(first.vectors)[1])
        manifest = Manifest(
            model=dict(model),
            dimensions=dimensions,
            kind=kind,
            storage=storage,
            id_column=id_column,
            generation=generation,
        )
        part, skipped = _write(folder, manifest, _prepared(blocks, Seen() if unique else None, id_column), whole=True)
        facts = {**(facts or {}), "skipped": skipped}
        manifest = manifest.changed("build", part.rows, facts, parts=(part,), next_id=part.rows)
        write_manifest(folder, manifest)
        sweep(folder, manifest.names)


def add(folder: Path, blocks: Iterable[Block], *, model: Mapping[str, Any], unique: bool, facts: Facts) -> Added:
    """Add blocks, which this model made, to an index as a segment of their own; they replace rows of equal ids."""
    with _changing(folder) as manifest:
        # Another process may have replaced the index since it was opened.
        disk.check_model(folder, manifest.model, name=model["name"], fingerprint=model["fingerprint"])
        check_unique(unique, manifest.id_column)
        there = Snapshot(folder, manifest) if unique or manifest.id_column is not None else None
        seen = Seen(there.digests[there.alive]) if unique and there is not None else None
        part, skipped = _write(folder, manifest, _prepared(blocks, seen, manifest.id_column), whole=False)
        facts = {**(facts or {}), "skipped": skipped}
        replaced = np.empty(0, np.int64)
        if part.rows:
            changes: dict[str, Any] = {"parts": (*manifest.parts, part), "next_id": manifest.next_id + part.rows}
            if there is not None and manifest.id_column is not None:
                replaced = there.ids[there.alive & np.isin(there.keys, _keys_in(folder, part))]
                facts |= {"replaced": len(replaced)}
                changes |= _write_removed(folder, manifest, np.union1d(there.removed, replaced))
            manifest = manifest.changed("add", part.rows, facts, **changes)
            write_manifest(folder, manifest)
        _join(folder, manifest)
    return Added(part.rows, skipped, len(replaced), facts)


def _keys_in(folder: Path, part: Part) -> Digests:
    return np.fromfile(folder / part.name / KEYS, "<u8")


def remove(folder: Path, ids: Sequence[Id] | None, texts: Sequence[str] | None, given: Filter | None) -> int:
    """Mark the rows that one of these chooses as removed, and join the segments if there are many such rows."""
    with _changing(folder) as manifest:
        snapshot = Snapshot(folder, manifest)
        if ids is not None:
            chosen = np.unique(snapshot.ids[snapshot.rows_of(ids)])
        elif texts is not None:
            chosen = _ids_of_texts(snapshot, texts)
        else:
            assert given is not None
            chosen = snapshot.ids[snapshot.meeting(given)]
        if len(chosen):
            removed = np.union1d(snapshot.removed, chosen)
            manifest = manifest.changed("remove", len(chosen), **_write_removed(folder, manifest, removed))
            write_manifest(folder, manifest)
            _join(folder, manifest)
    return len(chosen)


def compact(folder: Path) -> None:
    """Join all segments into one, without the removed rows; also one without checksums or words, or a damaged graph.

    Every byte is checked first: damage is reported also where there is nothing to join.
    """
    with _changing(folder) as manifest:
        parts = manifest.parts
        if len(parts) > 1 or manifest.removed_rows or any(not _is_whole(folder / part.name, part) for part in parts):
            _join_from(folder, manifest, 0)
        else:
            for segment in open_snapshot(folder).segments:
                segment.check()


def _is_whole(folder: Path, part: Part) -> bool:
    """Tell whether a segment has checksums and words, and a graph that matches its own checksum if it needs one."""
    if TERMS not in part.files:
        return False
    try:
        for name in {ENGINE} & part.files.keys():
            part.files[name].check(folder / name)
    except (InputError, OSError):
        return False
    return True


def _join(folder: Path, manifest: Manifest) -> None:
    """Join segments if the index has become slow or wasteful, and delete the files that it no longer lists."""
    first = first_to_join(manifest)
    if first is None:
        sweep(folder, manifest.names)
        return
    try:
        _join_from(folder, manifest, first)
    except (OSError, InputError) as error:  # a full disk, or damage; the change was made and must not be repeated
        reason = (getattr(error, "strerror", None) or str(error)).rstrip(".")
        message = f"{folder} was changed, but its segments could not be joined: {reason}"
        warnings.warn(f"{message}. When that is solved: twinpass index compact {folder}", UserWarning, stacklevel=2)


def first_to_join(manifest: Manifest) -> int | None:
    """Return the first of the segments to join into one, or None: few segments search fast, few joins write little."""
    if not manifest.parts:
        return None
    rows = [part.rows for part in manifest.parts]
    living = sum(rows) - manifest.removed_rows
    now = manifest.parts[0].kind
    behind = now != EXACT and sum(rows[1:]) * STALE > sum(rows)
    grown = ENGINES.index(kind_for(living, manifest.kind, manifest.storage)) > ENGINES.index(now)
    if manifest.removed_rows * STALE > sum(rows) or behind or grown:
        return 0
    if len(rows) <= MOST_PARTS:
        return None
    first = len(rows) - 1
    while first > 0 and rows[first - 1] <= 2 * sum(rows[first:]):  # so that a row is seldom written again
        first -= 1
    return first if first < len(rows) - 1 else None


def _join_from(folder: Path, manifest: Manifest, first: int) -> None:
    snapshot = Snapshot(folder, manifest)
    for segment in snapshot.segments[first:]:
        segment.check()  # damage must not be copied and get a valid checksum
    kept, start = manifest.parts[:first], int(snapshot.starts[first])
    rows = start + np.flatnonzero(snapshot.alive[start:])
    part, _ = _write(folder, manifest, _copied(snapshot, rows), whole=first == 0)
    removed = snapshot.removed[np.isin(snapshot.removed, snapshot.ids[:start])]
    parts = (*kept, part) if part.rows else kept
    manifest = manifest.changed("join", part.rows, parts=parts, **_write_removed(folder, manifest, removed))
    write_manifest(folder, manifest)
    sweep(folder, manifest.names)


def _write(folder: Path, manifest: Manifest, blocks: Iterable[Prepared], *, whole: bool) -> tuple[Part, int]:
    """Write a segment and, if it is the whole index, what searching it approximately needs; also return the skipped."""
    name, dimensions = f"segment-{manifest.generation + 1:06d}", manifest.dimensions
    place = folder / name
    try:
        keyed = manifest.id_column is not None
        written = write_segment(place, blocks, dimensions=dimensions, next_id=manifest.next_id, keyed=keyed)
        kind = kind_for(written.rows, manifest.kind, manifest.storage) if whole else EXACT
        part = Part(name=name, rows=written.rows, kind=kind, columns=written.columns)
        if part.kind != EXACT:
            engine = Approximate.build(part.kind, Segment(place, part, dimensions=dimensions).vectors)
            engine.save(place / ENGINE)
            sizes = {"memory": (place / ENGINE).stat().st_size, "memory_float32": 4 * part.rows * dimensions}
            part = replace(part, quality=engine.tune() | sizes)
        files = {path.name: Checksum.of(path) for path in sorted(place.iterdir())}
        disk.sync_all(place)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    return replace(part, files=files, batches=written.batches), written.skipped


def _write_removed(folder: Path, manifest: Manifest, removed: Ids) -> dict[str, Any]:
    """Write the list of removed ids; return what the manifest says of it."""
    if not len(removed):
        return {"removed": None, "removed_rows": 0, "removed_file": None}
    path = folder / f"removed-{manifest.generation + 1:06d}.npy"
    np.save(path, removed)
    disk.sync(path)
    return {"removed": path.name, "removed_rows": len(removed), "removed_file": Checksum.of(path)}


def peek(blocks: Iterable[Block]) -> tuple[Block, Iterable[Block]]:
    """Return the first block, and all of them."""
    iterator = iter(blocks)
    first = next((block for block in iterator if len(block.texts)), None)
    if first is None:
        raise InputError("there is no text to index.")
    return first, chain([first], iterator)


class Seen:
    """Which texts there are already, by their digests."""

    def __init__(self, known: Digests | None = None) -> None:
        self._known = np.empty(0, np.uint64) if known is None else np.sort(known)
        self._new: set[int] = set()

    def fresh(self, digests: Digests) -> list[int]:
        """Return the positions of the digests that are seen for the first time."""
        places = []
        for place, (digest, old) in enumerate(zip(digests.tolist(), self._is_known(digests), strict=True)):
            if not old and digest not in self._new:
                self._new.add(digest)
                places.append(place)
        return places

    def _is_known(self, digests: Digests) -> list[bool]:
        """Look each up by bisection: `np.isin` would sort all known digests again for every block."""
        if not len(self._known):
            return [False] * len(digests)
        places = np.minimum(np.searchsorted(self._known, digests), len(self._known) - 1)
        found: list[bool] = (self._known[places] == digests).tolist()
        return found


class Keys:
    """The digests of rows' own ids; each row has one, and no two the same."""

    def __init__(self, column: str) -> None:
        self._column = column
        self._seen = Seen()
        self._rows = 0

    def of(self, metadata: Sequence[Mapping[str, Any]]) -> Digests:
        """Return the digests of the next rows' ids. Ids are compared as texts: 17 is '17'."""
        column = self._column
        for row, each in enumerate(metadata, start=self._rows + 1):
            value = each.get(column)
            if not (isinstance(value, str) and value.strip()) and type(value) is not int:
                others = f"{suggest(column, list(each))} Columns beside the text: {', '.join(each) or 'none'}."
                if not any(column in other for other in metadata):
                    raise InputError(f"text {row}: expected an id, but there is no column {column!r}.{others}")
                raise InputError(
                    f"text {row}: expected an id in the column {column!r}, a text or a whole number; "
                    f"got {value!r:.80}.{'' if column in each else others}"
                )
        digests = digest_of(str(each[column]) for each in metadata)
        fresh = self._seen.fresh(digests)
        if len(fresh) < len(digests):
            place = min({*range(len(digests))} - {*fresh})
            raise InputError(
                f"text {self._rows + place + 1}: the id {metadata[place][column]!r:.80} in the column {column!r} "
                "occurs twice. An id names one text: choose another column, or one text column."
            )
        self._rows += len(digests)
        return digests


def check_ids(metadata: Iterable[Mapping[str, Any]], column: str) -> None:
    """Refuse rows of which one has no id, or two the same."""
    keys, rows = Keys(column), iter(metadata)
    while held := list(islice(rows, BATCH)):
        keys.of(held)


def _prepared(blocks: Iterable[Block], seen: Seen | None, id_column: str | None) -> Iterator[Prepared]:
    """Yield new blocks, without the texts that were seen before, or with the keys of their ids."""
    keys = None if id_column is None else Keys(id_column)
    for block in blocks:
        digests = digest_of(block.texts)
        if seen is None:
            yield Prepared(block, digests, None if keys is None else keys.of(block.metadata or [{}] * len(block.texts)))
            continue
        places = seen.fresh(digests)
        metadata = [block.metadata[place] for place in places] if block.metadata else None
        kept = Block([block.texts[place] for place in places], np.asarray(block.vectors)[places], metadata)
        yield Prepared(kept, digests[places], skipped=len(digests) - len(places))


def _copied(snapshot: Snapshot, rows: Ids) -> Iterator[Prepared]:
    """Yield rows of an index in blocks, with the ids that they have."""
    for segment, start in zip(snapshot.segments, snapshot.starts, strict=False):
        here = rows[(rows >= start) & (rows < start + len(segment))] - start
        for chosen in np.array_split(here, range(BATCH, len(here), BATCH)):
            if len(chosen):
                keys = None if segment.keys is None else segment.keys[chosen]
                yield Prepared(segment.block(chosen), segment.digests[chosen], keys, segment.ids[chosen])


def _ids_of_texts(snapshot: Snapshot, texts: Sequence[str]) -> Ids:
    """Return the ids of every row with one of these texts."""
    given = set(texts)
    rows = np.flatnonzero(np.isin(snapshot.digests, digest_of(given)) & snapshot.alive).tolist()
    located = ((row, *snapshot.locate(row)) for row in rows)
    return snapshot.ids[[row for row, segment, place in located if segment.text(place) in given]]


@contextlib.contextmanager
def _changing(folder: Path) -> Iterator[Manifest]:
    """Hold an existing index for writing, and delete what a killed writer left."""
    read_manifest(folder)  # before a lock file is made in a folder that is not an index
    with disk.locked(folder), explaining(folder):
        manifest = read_manifest(folder)
        sweep(folder, manifest.names)
        yield manifest


@contextlib.contextmanager
def _new_folder(folder: Path) -> Iterator[None]:
    """Make the folder of an index if needed, and delete it again if the index is not built."""
    fresh = not folder.exists()
    with explaining(folder):
        folder.mkdir(exist_ok=True)
    try:
        yield
    finally:
        if fresh and not (folder / FILE).exists():
            (folder / disk.LOCK).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                folder.rmdir()


class Temporary:
    """A folder that is deleted together with this object."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="twinpass-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)


def _check_replaceable(folder: Path, *, overwrite: bool) -> tuple[set[str], int]:
    """Return the names to keep until an index is replaced, and its generation; refuse what must not be replaced."""
    if strange := disk.strangers(folder):
        raise OutputError(
            f"cannot build an index in {folder}: it holds {strange[0]}, which is not part of one. Choose another place."
        )
    if not (folder / FILE).exists():
        return set(), 0
    if not overwrite:
        raise OutputError(
            f"{folder} holds an index already. Add to it with: twinpass index add {folder} TEXTS; "
            "or replace it with --overwrite (overwrite=True)."
        )
    try:
        manifest = read_manifest(folder)
    except InputError:  # damaged: whatever it may have listed stays until the new index is complete
        names = {path.name for path in folder.iterdir()}
        return names, max((int(number) for name in names for number in re.findall(r"\d+", name)), default=0)
    return manifest.names, manifest.generation


def check_unique(unique: bool, id_column: str | None) -> None:
    """Refuse to skip equal texts where rows have ids of their own: two rows may share a text."""
    if unique and id_column is not None:
        raise ConfigError(f"expected either unique texts or an id column, got both (id column: {id_column}).")


def check_kind(kind: str, known: Iterable[str] = KINDS, where: str = "") -> None:
    """Refuse an unknown kind of index."""
    known = list(known)
    if kind not in known:
        listed = ", ".join(known)
        raise ConfigError(f"no kind of index named {kind!r}{where}.{suggest(kind, known)} Known: {listed}.")


def check_storage(storage: str, kind: str) -> None:
    """Refuse an unknown way of holding vectors in memory, and one that a kind of index cannot have."""
    if storage not in STORAGES:
        listed = ", ".join(STORAGES)
        raise ConfigError(f"no vectors of type {storage!r}.{suggest(storage, STORAGES)} Known: {listed}.")
    if storage != FLOAT32 and (kind == IVF_PQ or (kind == HNSW and storage == BINARY)):
        fitting = f"{AUTO} or {EXACT}" if storage == BINARY else f"{AUTO}, {EXACT} or {HNSW}"
        raise ConfigError(f"vectors of type {storage} need an index of the kind {fitting}, got {kind}.")


def check_folder(folder: Path, *, overwrite: bool) -> None:
    """Refuse, before any work is done, a folder where `build` would fail."""
    if folder.is_dir():
        _check_replaceable(folder, overwrite=overwrite)
    elif folder.exists():
        raise OutputError(f"cannot write {folder}: expected a folder, got a file.")
    elif not folder.parent.is_dir():
        raise OutputError(f"cannot write {folder}: there is no folder {folder.parent}. Make it first.")
