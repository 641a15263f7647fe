"""The Python source files that are installed on this machine, by package."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

from twinpass.errors import InputError
from twinpass.registry import suggest

# Tests talk to their authors, vendored packages repeat others, and our own words are no built-in corpus.
LEFT_OUT = frozenset({"tests", "test", "testing", "_vendor", "__pycache__", "site-packages", "dist-packages"})
OURS = "twinpass"


def find_packages(wanted: Sequence[str] = ()) -> dict[str, list[os.DirEntry[str]]]:
    """Return the source files of every wanted package (all, if none is named), both in alphabetical order."""
    tops = _top_level()
    if not wanted:
        return {name: list(_sources(tops[name])) for name in sorted(tops) if name != OURS}
    names = [name.strip().replace("-", "_") for name in wanted]
    for name in names:
        if name not in tops:
            raise InputError(_unknown(name, tops))
    return {name: list(_sources(tops[name])) for name in sorted(set(names))}


def _top_level() -> dict[str, os.DirEntry[str]]:
    """Every package and module by its import name; the standard library's come first."""
    found: dict[str, os.DirEntry[str]] = {}
    for folder in _roots():
        for entry in _scan(folder):
            name = entry.name.removesuffix(".py")
            if name.isidentifier() and (entry.is_dir() or entry.name.endswith(".py")):
                found.setdefault(name, entry)
    return found


def _roots() -> list[str]:
    """The standard library and every folder of installed packages on the path."""
    installed = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    return [sysconfig.get_path("stdlib"), *installed]


def _sources(entry: os.DirEntry[str]) -> Iterator[os.DirEntry[str]]:
    if entry.is_file():
        if entry.name.endswith(".py"):
            yield entry
    elif entry.name not in LEFT_OUT and entry.is_dir(follow_symlinks=False):
        for inner in _scan(entry.path):
            yield from _sources(inner)


def _scan(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _unknown(name: str, tops: dict[str, os.DirEntry[str]]) -> str:
    return (
        f"docs: no package {name!r} is installed here.{suggest(name, tops)} "
        "Name packages as they are imported, such as numpy."
    )
