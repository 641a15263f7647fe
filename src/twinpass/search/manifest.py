"""The one file that says what an index holds; replacing it is the only way an index changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from twinpass.errors import InputError, ModelError
from twinpass.files import write_json
from twinpass.search.disk import sync

FILE = "index.json"
FORMAT = 1
REMEMBERED = 50  # changes in the history


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
    kind: str  # as asked for: auto, exact, hnsw or ivf-pq
    parts: tuple[Part, ...] = ()
    next_id: int = 0
    removed: str | None = None  # the file that lists the ids which were removed and still take room
    removed_rows: int = 0
    generation: int = 0  # counts the changes
    history: tuple[dict[str, Any], ...] = ()  # the latest changes: what, how many rows, when, and what made it

    @property
    def rows(self) -> int:
        """Number of rows, removed ones included."""
        return sum(part.rows for part in self.parts)

    def changed(self, what: str, rows: int, facts: Mapping[str, Any] | None = None, **fields: Any) -> Manifest:
        """Return the manifest after a change, which it remembers."""
        entry = {"what": what, "rows": rows, "when": datetime.now(timezone.utc).isoformat(timespec="seconds")}
        history = (*self.history, {**entry, **(facts or {})})[-REMEMBERED:]
        return replace(self, generation=self.generation + 1, history=history, **fields)

    @property
    def names(self) -> set[str]:
        """Every file and folder that belongs to the index, apart from the manifest."""
        return {part.name for part in self.parts} | ({self.removed} if self.removed else set())

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all metadata columns."""
        return tuple(dict.fromkeys(column for part in self.parts for column in part.columns))


def stamp(folder: Path) -> tuple[int, ...] | None:
    """Return what changes whenever the manifest is replaced, without reading it; None if there is none."""
    try:
        found = (folder / FILE).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def read_manifest(folder: Path) -> Manifest:
    """Read what an index holds, or say why this is none."""
    path = folder / FILE
    if not path.is_file():
        raise InputError(
            f"{folder} is not an index: it has no {FILE}. Make one with: twinpass index build MODEL TEXTS -o {folder}"
        )
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != FORMAT:
            raise InputError(
                f"{path}: format {document['format']!r} is not {FORMAT}; it needs another version of twinpass."
            )
        return _parse(document)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"cannot read {path}: {error}. The index is damaged; build it again.") from error


def check_model(index: object, built: Mapping[str, Any], *, name: str, fingerprint: str) -> None:
    """Refuse a model other than the one that an index was built with."""
    if fingerprint == built["fingerprint"]:
        return
    ours = f"{built['name']} ({built['fingerprint'][:12]})"
    raise ModelError(
        f"{index} was built with the model {ours}, not with {name} ({fingerprint[:12]}); their vectors cannot be "
        "compared. Use that model, with the same pooler and limit of tokens, or build the index again."
    )


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Make a manifest the index's own; this is the moment in which the index changes."""
    sync(folder)  # what the manifest names must be on the disk before it
    write_json(folder / FILE, {"format": FORMAT, **asdict(manifest)})
    sync(folder)


def _parse(document: dict[str, Any]) -> Manifest:
    parts = tuple(Part(**{**_known(Part, part), "columns": tuple(part["columns"])}) for part in document["parts"])
    return Manifest(**{**_known(Manifest, document), "parts": parts, "history": tuple(document["history"])})


def _known(kind: Any, document: dict[str, Any]) -> dict[str, Any]:
    return {one.name: document[one.name] for one in fields(kind) if one.name in document}
