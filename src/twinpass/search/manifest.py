"""The manifest says what an index holds; replacing this one file is the only way in which an index changes.

Here is also what protects it: the lock of the one writer, the removal of what a killed writer left, and fsync.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinpass import files
from twinpass.errors import InputError, ModelError, OutputError
from twinpass.files import write_json

if TYPE_CHECKING:
    from twinpass.encoder.folder import Exported

FILE = "index.json"
LOCK = "lock"
FORMAT = 1
REMEMBERED = 50  # changes in the history
# The names that a writer gives, and no others: such a file is deleted when the manifest does not list it.
OURS = re.compile(r"segment-\d{6,}|removed-\d{6,}\.npy|\.index\.json\..+")


@dataclass(frozen=True, kw_only=True)
class Part:
    """One segment: rows that were written together and never change."""

    name: str  # of its folder
    rows: int
    kind: str  # how it is searched: exact, hnsw or ivf-pq
    columns: tuple[str, ...] = ()  # of metadata
    quality: dict[str, Any] = field(default_factory=dict)  # of an approximate search, as measured when built


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What an index holds, and what made it."""

    model: dict[str, Any]  # name, fingerprint, and the options that it was loaded with
    dimensions: int
    kind: str  # as requested: auto, exact, hnsw or ivf-pq
    parts: tuple[Part, ...] = ()
    next_id: int = 0
    removed: str | None = None  # the file that lists the ids which were removed and still take space
    removed_rows: int = 0
    generation: int = 0  # counts the changes
    pending: bool = False  # on Milvus: there may be rows of an unfinished addition
    history: tuple[dict[str, Any], ...] = ()  # the latest changes: what, how many rows, when, and their facts

    @property
    def rows(self) -> int:
        """Number of rows, removed ones included."""
        return sum(part.rows for part in self.parts)

    def changed(self, what: str, rows: int, facts: Mapping[str, Any] | None = None, **fields: Any) -> Manifest:
        """Return the manifest after a change, which is added to its history."""
        entry = {"what": what, "rows": rows, "when": datetime.now(timezone.utc).isoformat(timespec="seconds")}
        history = (*self.history, {**entry, **(facts or {})})[-REMEMBERED:]
        return replace(self, generation=self.generation + 1, history=history, **fields)

    @property
    def names(self) -> set[str]:
        """Every file and folder of the index, apart from the manifest."""
        return {part.name for part in self.parts} | ({self.removed} if self.removed else set())

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all metadata columns."""
        return tuple(dict.fromkeys(column for part in self.parts for column in part.columns))


def read_manifest(folder: Path) -> Manifest:
    """Read what an index holds, or say why this is not an index."""
    path = folder / FILE
    if not path.is_file():
        raise InputError(
            f"{folder} is not an index: it has no {FILE}. Make one with: twinpass index build MODEL TEXTS -o {folder}"
        )
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != FORMAT:
            raise InputError(
                f"{path}: expected format {FORMAT}, got {document['format']!r}: use the twinpass it needs."
            )
        return parse_manifest(document)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"cannot read {path}: {error}. The index is damaged; build it again.") from error


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest: this is the moment in which the index changes."""
    sync(folder)  # what the manifest lists must be on the disk before it
    write_json(folder / FILE, {"format": FORMAT, **asdict(manifest)})
    sync(folder)


def parse_manifest(document: Mapping[str, Any]) -> Manifest:
    """Return a manifest from its JSON; fields of a later version are ignored."""
    parts = tuple(Part(**{**_known(Part, part), "columns": tuple(part["columns"])}) for part in document["parts"])
    return Manifest(**{**_known(Manifest, document), "parts": parts, "history": tuple(document["history"])})


def _known(kind: Any, document: Mapping[str, Any]) -> dict[str, Any]:
    return {one.name: document[one.name] for one in fields(kind) if one.name in document}


def stamp(folder: Path) -> tuple[int, ...] | None:
    """Return what changes whenever the manifest is replaced, without reading it; None if there is none."""
    try:
        return identify(folder / FILE)
    except OSError:
        return None


def identify(path: Path) -> tuple[int, ...]:
    """Return what distinguishes a file from one that was written later under the same name."""
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def check_model(
    index: object, built: Mapping[str, Any], *, name: str, fingerprint: str, exported: Exported | None = None
) -> None:
    """Refuse a model other than the one that an index was built with, unless it was `exported` from that one."""
    if fingerprint == built["fingerprint"]:
        return
    if exported is not None and exported.source["fingerprint"] == built["fingerprint"]:
        if (precision := built.get("precision", "fp32")) != exported.precision:
            warnings.warn(
                f"the texts of {index} were encoded in {precision}, queries are in {exported.precision}: scores differ "
                "a little from those of the index's own model.",
                stacklevel=3,
            )
        return
    ours = f"{built['name']} ({built['fingerprint'][:12]})"
    raise ModelError(
        f"{index} was built with the model {ours}, not with {name} ({fingerprint[:12]}); their vectors cannot be "
        "compared. Use that model, with the same pooler and token limit, or build the index again."
    )


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold an index for writing, without waiting for it; the system releases it even if we are killed."""
    path = folder / LOCK
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(files.locked(path, wait=False))
        except OutputError as error:
            if error.__cause__ is not None:  # the lock is free, but the system refuses to write it
                raise
            holder = ""
            with contextlib.suppress(OSError):  # some systems let nobody read a locked file
                holder = path.read_text(encoding="utf-8")
            raise OutputError(
                f"another process ({holder or 'unknown'}) is writing to {folder}. "
                "Wait until it is done; searching needs no waiting."
            ) from None
        with contextlib.suppress(OSError):
            path.write_text(f"process {os.getpid()}", encoding="utf-8")
        yield


def sweep(folder: Path, keep: set[str]) -> None:
    """Delete what a killed writer left behind, and what the index no longer lists."""
    for path in folder.iterdir():
        if OURS.fullmatch(path.name) and path.name not in keep:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)  # a reader may hold a file open on a system that forbids it
            else:
                with contextlib.suppress(OSError):
                    path.unlink()


def strangers(folder: Path) -> list[str]:
    """Return the names of files in a folder that are not part of an index."""
    names = (path.name for path in folder.iterdir())
    return sorted(name for name in names if name not in (FILE, LOCK) and not OURS.fullmatch(name))


def sync(path: Path) -> None:
    """Put a file, or a folder's list of names, on the disk."""
    if path.is_dir() and sys.platform == "win32":
        return  # folders cannot be opened there
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_all(folder: Path) -> None:
    """Put every file of a folder, and the folder, on the disk."""
    for path in folder.iterdir():
        sync(path)
    sync(folder)


def size(folder: Path) -> int:
    """Return the bytes of all files of an index; a file that a writer deletes meanwhile does not count."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(parent) / name).stat().st_size
    return total
