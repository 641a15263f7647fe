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
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinpass import files
from twinpass.errors import InputError, ModelError, OutputError
from twinpass.files import is_sealed, plain, sealed, write_json
from twinpass.search.checksums import BLOCK, DIGITS, Checksum
from twinpass.search.engines.approximate import ENGINES, FLOAT32, KINDS, STORAGES

if TYPE_CHECKING:
    from twinpass.encoder.folder import Exported

FILE = "index.json"
LOCK = "lock"
FORMAT = (
    3  # 1 had no checksums, 2 no words and no id columns; such an index is read, and the next change writes this format
)
REMEMBERED = 50  # changes in the history
LARGEST = 2**63 - 1  # number that is read from a manifest
# The names that a writer gives, and no others: such a file is deleted when the manifest does not list it.
SEGMENT, REMOVED = re.compile(r"segment-\d{6,}"), re.compile(r"removed-\d{6,}\.npy")
OURS = re.compile(rf"{SEGMENT.pattern}|{REMOVED.pattern}|\.index\.json\..+")
VECTORS, IDS, DIGESTS, ROWS, ENGINE = "vectors.f32", "ids.i64", "digests.u64", "rows.arrow", "engine.faiss"
KEYS, TERMS, POSTINGS, LENGTHS = "keys.u64", "terms.arrow", "postings.u32", "lengths.u32"
WORDS = {TERMS, POSTINGS, LENGTHS}  # an index of format 2 has none
NEEDED, POSSIBLE = {VECTORS, IDS, DIGESTS, ROWS}, {ENGINE, KEYS} | WORDS  # files of a segment


@dataclass(frozen=True, kw_only=True)
class Part:
    """One segment: rows that were written together and never change."""

    name: str  # of its folder
    rows: int
    kind: str  # how it is searched: one of ENGINES
    columns: tuple[str, ...] = ()  # of metadata
    quality: dict[str, Any] = field(default_factory=dict)  # of an approximate search, as measured when built
    files: dict[str, Checksum] = field(default_factory=dict)  # empty if format 1 wrote it, and on Milvus
    batches: tuple[tuple[int, int], ...] = ()  # of rows.arrow: for each its rows, and the byte after it


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What an index holds, and what made it."""

    model: dict[str, Any]  # name, fingerprint, and the options that it was loaded with
    dimensions: int
    kind: str  # as requested: auto, exact, hnsw or ivf-pq
    storage: str = FLOAT32  # of vectors in memory, as requested: float32, int8 or binary
    id_column: str | None = None  # of the metadata: its values are the ids; None: the rows are numbered
    parts: tuple[Part, ...] = ()
    next_id: int = 0
    removed: str | None = None  # the file that lists the ids which were removed and still take space
    removed_rows: int = 0
    removed_file: Checksum | None = None  # of that file
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


def check_is_index(folder: Path) -> None:
    """Refuse a folder without a manifest."""
    if not (folder / FILE).is_file():
        raise InputError(
            f"{folder} is not an index: it has no {FILE}. Make one: twinpass index build TEXTS -m MODEL -o {folder}"
        )


def read_manifest(folder: Path) -> Manifest:
    """Read what an index holds, or say why this is not an index."""
    check_is_index(folder)
    path = folder / FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(document, dict) or document.get("format") not in range(1, FORMAT + 1):
            found = document.get("format") if isinstance(document, dict) else type(document).__name__
            raise InputError(f"{path}: expected format 1 to {FORMAT}, got {found!r}: use the twinpass it needs.")
        if not is_sealed(document) and ("checksum" in document or document["format"] > 1):
            raise ValueError("its checksum does not match")
        return parse_manifest(document)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        what = f"it has no {error}" if isinstance(error, KeyError) else error
        advice = "Restore it from a copy, or build the index again with --overwrite."
        raise InputError(f"cannot read {path}: {what}. The index is damaged. {advice}") from error


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest: this is the moment in which the index changes."""
    sync(folder)  # what the manifest lists must be on the disk before it
    document = plain({"format": FORMAT, **asdict(manifest)})
    write_json(folder / FILE, sealed(document))
    sync(folder)


def parse_manifest(document: Mapping[str, Any], *, part: re.Pattern[str] = SEGMENT) -> Manifest:
    """Return a manifest from its JSON, or raise ValueError or KeyError; `part` are the names of segments.

    All that is later used as a name, a size or a count is checked. Fields of a later version are ignored.
    """
    document = {"removed": None, "removed_rows": 0, "pending": False, **document}  # some of format 1 lack these
    model = _get(document, "model", dict)
    _get(model, "name", str), _get(model, "fingerprint", str)
    parts = tuple(_parse_part(each, part) for each in _get(document, "parts", list))
    rows = sum(each.rows for each in parts)
    removed = document["removed"]
    if removed is not None and not (isinstance(removed, str) and REMOVED.fullmatch(removed)):
        raise ValueError(f"the list of removed ids is {removed!r:.80}, expected a name without a path")
    id_column = document.get("id_column")
    if id_column is not None:
        _get(document, "id_column", str)
        if bad := [each.name for each in parts if KEYS not in each.files]:
            raise ValueError(f"{bad[0]} lists no {KEYS}, which the id column needs")
    known = {
        "model": model,
        "dimensions": _get(document, "dimensions", int, least=1),
        "kind": _one_of(document, "kind", KINDS),
        "storage": _one_of({"storage": FLOAT32, **document}, "storage", STORAGES),
        "id_column": id_column,
        "parts": parts,
        "next_id": _get(document, "next_id", int, least=rows),
        "removed": removed,
        "removed_rows": _get(document, "removed_rows", int, most=rows),
        "removed_file": _parse_checksum(document["removed_file"]) if document.get("removed_file") else None,
        "generation": _get(document, "generation", int),
        "pending": _get(document, "pending", bool),
        "history": tuple(_get(document, "history", list)),
    }
    for change in known["history"]:
        _get(change, "what", str), _get(change, "rows", int), _get(change, "when", str)
    return Manifest(**known)


def _parse_part(document: Any, names: re.Pattern[str]) -> Part:
    name = _get(document, "name", str)
    if not names.fullmatch(name):
        raise ValueError(f"a segment is named {name!r:.80}, expected a name without a path such as segment-000001")
    kind, quality = _one_of(document, "kind", {*KINDS, *ENGINES}), _get(document, "quality", dict)
    if kind not in ("auto", "exact") and "effort" in quality:
        _get(quality, "effort", int, least=1, most=1 << 20)
    columns = _get(document, "columns", list)
    if not all(isinstance(column, str) for column in columns):
        raise ValueError(f"the columns of {name} are {columns!r:.80}, expected their names")
    files = {file: _parse_checksum(found) for file, found in document.get("files", {}).items()}
    if files and not (NEEDED <= files.keys() <= NEEDED | POSSIBLE and len(WORDS & files.keys()) in (0, len(WORDS))):
        raise ValueError(f"{name} lists the files {sorted(files)!r:.80}, expected those of a segment")
    rows = _get(document, "rows", int, least=1)
    batches = tuple(_parse_batch(batch) for batch in document.get("batches", []))
    ends = [end for _, end in batches]
    if files and (
        sum(count for count, _ in batches) != rows or ends != sorted({*ends}) or ends[-1] > files[ROWS].bytes
    ):
        raise ValueError(f"the batches of {name} do not add up to its {rows:,} rows")
    return Part(name=name, rows=rows, kind=kind, columns=tuple(columns), quality=quality, files=files, batches=batches)


def _parse_checksum(document: Any) -> Checksum:
    found = Checksum(_get(document, "bytes", int), _get(document, "crc32", str))
    if len(found.crc32) != DIGITS * found.blocks:
        raise ValueError(
            f"a checksum of {found.bytes:,} bytes does not have {DIGITS} digits for each {BLOCK:,} of them"
        )
    return found


def _parse_batch(batch: Any) -> tuple[int, int]:
    rows, end = batch
    return _within("rows of a batch", rows, 1, LARGEST), _within("end of a batch", end, 1, LARGEST)


def _get(document: Any, name: str, kind: type, *, least: int = 0, most: int = LARGEST) -> Any:
    """Return a field after checking its type, and of a number its range."""
    if not isinstance(document, dict):
        raise ValueError(f"expected an object with {name}, got {document!r:.80}")
    value = document[name]
    if kind is int:
        return _within(name, value, least, most)
    if not isinstance(value, kind):
        raise ValueError(f"{name} is {value!r:.80}, expected {kind.__name__}")
    return value


def _within(name: str, value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is {value!r:.80}, expected a number from {least:,} to {most:,}")
    return value


def _one_of(document: Any, name: str, known: Collection[str]) -> str:
    value: str = _get(document, name, str)
    if value not in known:
        raise ValueError(f"{name} is {value!r:.80}, expected one of {', '.join(sorted(known))}")
    return value


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
