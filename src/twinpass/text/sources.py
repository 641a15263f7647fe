"""From what a user names (a file, a folder, a pattern, -) to the files that are meant."""

from __future__ import annotations

import glob
import os
from pathlib import Path

from twinpass.errors import InputError
from twinpass.registry import suggest
from twinpass.text.readers import READERS
from twinpass.text.streams import Source, spool_stdin

PACKINGS = (".gz", ".xz")
WANTED = "Wanted .txt, .csv, .tsv, .jsonl or .parquet, each also with .gz or .xz"


def find_sources(named: str) -> list[Source]:
    """Return the files that a name stands for, sorted; `csv:NAME` says what format they have."""
    format, _, rest = named.partition(":")
    if format in READERS and rest and not exists(named):
        return _find(rest, format)
    return _find(named, None)


def _find(named: str, format: str | None) -> list[Source]:
    if named == "-":
        return [spool_stdin(format or "txt")]
    path = Path(named)
    if is_folder(named):
        return _in_folder(path, format)
    if exists(named):
        return [_recognise(path, format)]
    if glob.has_magic(named):
        return _matching(named, format)
    raise InputError(f"no file {named}.{_where_to_look(path)}")


def exists(name: str) -> bool:
    """Tell whether anything has this name; a text that no file could be named by is a name of nothing."""
    return os.path.exists(name)  # noqa: PTH110 -- pathlib raises for what is too long to be a name


def is_file(name: str) -> bool:
    """Tell whether a file has this name, whatever the text."""
    return os.path.isfile(name)  # noqa: PTH113 -- as above


def is_folder(name: str) -> bool:
    """Tell whether a folder has this name, whatever the text."""
    return os.path.isdir(name)  # noqa: PTH112 -- as above


def _in_folder(folder: Path, format: str | None) -> list[Source]:
    """Every readable file in a folder and the folders within, hidden ones left out."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not _is_hidden(path, folder))
    sources = [_recognise(path, format) for path in files if format or _format_of(path)[0]]
    if not sources:
        raise InputError(f"the folder {folder} has no file we can read. {WANTED}.")
    return sources


def _matching(pattern: str, format: str | None) -> list[Source]:
    files = sorted(Path(found) for found in glob.glob(pattern, recursive=True))  # noqa: PTH207 -- absolute patterns
    sources = [_recognise(path, format) for path in files if path.is_file()]
    if not sources:
        raise InputError(f"no file matches {pattern}.")
    return sources


def _is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _recognise(path: Path, format: str | None) -> Source:
    known, packing = _format_of(path)
    if not (format or known):
        raise InputError(f"cannot tell from its name what {path} is. {WANTED}; or say what it is: txt:{path}")
    return Source(path, format or known, packing)


def _format_of(path: Path) -> tuple[str, str]:
    """Return a file's format and packing by its suffixes; an unknown format is an empty string."""
    packing = path.suffix.lower() if path.suffix.lower() in PACKINGS else ""
    suffix = (path.with_suffix("") if packing else path).suffix.lower().removeprefix(".")
    return (suffix if suffix in READERS else ""), packing


def _where_to_look(path: Path) -> str:
    """Return a hint: a name in the same folder that is nearly this one, or that folder."""
    if not is_folder(str(path.parent)):
        return f" There is no folder {path.parent} either."
    try:
        near = suggest(path.name, os.listdir(path.parent))  # noqa: PTH208 -- names are all we want
    except OSError:  # a folder that may be entered and not listed
        near = ""
    return near or f" Look in {path.parent.resolve()}."
