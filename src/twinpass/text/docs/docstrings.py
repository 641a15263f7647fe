"""The built-in corpus: English sentences and pairs from the docstrings of the installed Python packages."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, groupby, islice
from pathlib import Path

import twinpass
from twinpass.errors import InputError, OutputError
from twinpass.files import cache_home, writing
from twinpass.registry import suggest
from twinpass.text.docs.prose import VERSION, Extract, distinct_pairs, extract
from twinpass.text.rows import SAMPLE, BadRows, Record

# Isolated (-I, -S), so that no file of the current folder is imported as a module; twinpass is all that is added to
# the standard library on the path.
CHILD = "import sys; sys.path.append(sys.argv[1]); from twinpass.text.docs.prose import answer; answer()"
MOST_CANDIDATES = 1_000  # held-out pairs that the built-in retrieval task asks for, at most
WORTH_A_PROCESS = 4_000_000  # bytes of source; parsing less takes less time than starting a process
# Tests are written for developers, vendored packages repeat others, and twinpass itself is not part of its corpus.
SKIPPED = frozenset({"tests", "test", "testing", "_vendor", "__pycache__", "site-packages", "dist-packages"})
OURS = "twinpass"


def docs_sentences(packages: Sequence[str] = ()) -> list[str]:
    """Return the distinct sentences of the named packages' docstrings, or of all installed ones."""
    return _load(packages).sentences


def docs_pairs(packages: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return (summary, description) pairs of the named packages' docstrings, or of all installed ones."""
    return _load(packages).pairs


def held_out_pairs(packages: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return the pairs kept from training, from which the built-in retrieval task takes its candidates."""
    return [pair for pair in docs_pairs(packages) if held_out(pair)]


def held_out(pair: tuple[str, str]) -> bool:
    """Tell whether a pair is in the tenth that is kept from training, the same on every machine."""
    return hashlib.sha256(pair[0].encode("utf-8", "surrogatepass")).digest()[0] < 26


class DocsTable:
    """The built-in corpus as a table: `docs:` has sentences, `docs-pairs:` has pairs."""

    def __init__(self, name: str) -> None:
        kind, _, listed = name.partition(":")
        packages = [package for package in listed.split(",") if package.strip()]
        self.name = name.rstrip(":")
        self.names: tuple[str, ...]
        self._rows: Sequence[tuple[str, ...]]
        if kind == "docs-pairs":
            self.names, self._rows = ("summary", "description"), docs_pairs(packages)
        else:
            self.names, self._rows = ("sentence",), [(text,) for text in docs_sentences(packages)]
        if not self._rows:
            raise InputError(f"{name} is empty: those packages have no docstrings in prose. Name others.")
        self.sample = list(islice(self._rows, SAMPLE))

    def rows(self, wanted: Sequence[int], bad: BadRows) -> Iterator[Record]:
        """Yield the wanted columns of every row."""
        return ((number, [row[at] for at in wanted]) for number, row in enumerate(self._rows, 1))


def _load(packages: Sequence[str]) -> Extract:
    """Return the prose of packages from the cache, or extract it and try to store it there."""
    sources = {file.path: file.stat() for file in _find_sources(packages)}
    listing = [(path, found.st_size, found.st_mtime_ns) for path, found in sources.items()]
    key = hashlib.sha256(json.dumps([VERSION, sys.version_info[:2], listing]).encode()).hexdigest()
    cached = cache_home() / "docs" / f"{key[:32]}.json"
    try:
        return _from_json(cached.read_bytes())
    except (OSError, ValueError):
        found = _extract_in_parallel({path: status.st_size for path, status in sources.items()})
    with contextlib.suppress(OSError, OutputError):  # a cache that cannot be written costs time, not the corpus
        cached.parent.mkdir(parents=True, exist_ok=True)
        with writing(cached) as aside:
            aside.write_text(json.dumps(found), encoding="utf-8")
    return found


def _from_json(document: bytes) -> Extract:
    sentences, pairs = json.loads(document)
    return Extract(sentences, [(summary, description) for summary, description in pairs])


def _extract_in_parallel(sizes: dict[str, int]) -> Extract:
    """Extract in as many processes as there are processors; the order is that of the files."""
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    total = sum(sizes.values())
    if total < WORTH_A_PROCESS or workers == 1:
        return extract(sizes)
    with ThreadPoolExecutor(workers) as pool:
        return _join(pool.map(_extract_in_process, _shares(sizes, total / (4 * workers))))


def _shares(sizes: dict[str, int], share: float) -> Iterator[list[str]]:
    """Cut the files into consecutive lists of about equal size in bytes."""
    placed = zip(sizes, accumulate(sizes.values(), initial=0), strict=False)
    for _, files in groupby(placed, key=lambda file: file[1] // share):
        yield [path for path, _ in files]


def _extract_in_process(paths: list[str]) -> Extract:
    """Extract in a fresh interpreter: unlike a forked one it is safe whatever threads run here."""
    command = [sys.executable, "-I", "-S", "-c", CHILD, str(Path(twinpass.__file__).parents[1])]
    try:
        return _from_json(subprocess.run(command, input=json.dumps(paths).encode(), capture_output=True).stdout)
    except (OSError, ValueError):  # no interpreter to start (frozen programs): extract here
        return extract(paths)


def _join(extracts: Iterable[Extract]) -> Extract:
    sentences: dict[str, None] = {}
    pairs: list[tuple[str, str]] = []
    for part in extracts:
        sentences.update(dict.fromkeys(part.sentences))
        pairs += part.pairs
    return Extract(list(sentences), distinct_pairs(pairs))


def _find_sources(packages: Sequence[str]) -> Iterator[os.DirEntry[str]]:
    """Yield the source files of the named packages (of all, if none is named), both in alphabetical order."""
    tops = _top_level()
    names = {name.strip().replace("-", "_") for name in packages} or tops.keys() - {OURS}
    for name in sorted(names):
        if name not in tops:
            raise InputError(
                f"docs: no package {name!r} is installed here.{suggest(name, tops)} "
                "Name packages as they are imported, such as numpy."
            )
        yield from _sources(tops[name])


def _top_level() -> dict[str, os.DirEntry[str]]:
    """Return every package and module by its import name, those of the standard library first."""
    installed = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    found: dict[str, os.DirEntry[str]] = {}
    for folder in [sysconfig.get_path("stdlib"), *installed]:
        for entry in _scan(folder):
            name = entry.name.removesuffix(".py")
            if name.isidentifier() and (entry.is_dir() or entry.name.endswith(".py")):
                found.setdefault(name, entry)
    return found


def _sources(entry: os.DirEntry[str]) -> Iterator[os.DirEntry[str]]:
    if entry.is_file():
        if entry.name.endswith(".py"):
            yield entry
    elif entry.name not in SKIPPED and entry.is_dir(follow_symlinks=False):
        for inner in _scan(entry.path):
            yield from _sources(inner)


def _scan(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []
