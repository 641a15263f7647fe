"""From what a user names (a file, a folder, a pattern, -) to files, and from a file to its numbered lines."""

from __future__ import annotations

import contextlib
import glob
import gzip
import io
import lzma
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, cast

from twinpass.errors import InputError
from twinpass.files import sha256
from twinpass.registry import suggest

FORMATS = ("txt", "csv", "tsv", "jsonl", "parquet")  # twinpass.text.formats has a reader for each
FORMS = (*FORMATS, "scsv")  # that may stand before a name and a colon
PACKINGS = (".gz", ".xz")
EXPECTED = "Expected .txt, .csv, .tsv, .jsonl or .parquet, each also with .gz or .xz"
BLOCK = 1 << 16
MAX_LINE_BYTES = 10_000_000  # of one row: no sentence has as many, and whoever packs 2 GB into a line gets no further
Line = tuple[int, str, str, str]  # number from 1, text with its line end, what is wrong with it, message

# pathlib raises for a text that is too long to be a name; these return False.
exists, is_file, is_folder = os.path.exists, os.path.isfile, os.path.isdir


@dataclass(frozen=True)
class Source:
    """A file to read: its path, format and compression, and its name in messages."""

    path: Path
    format: str
    packing: str = ""
    name: str = ""
    given: str = ""  # what the user named, without a format: this file, its folder, a pattern or -
    max_line_bytes: int = MAX_LINE_BYTES
    is_stated: bool = False  # whether the user wrote the format before the name
    keep: object = field(default=None, repr=False)  # a temporary folder, deleted when nothing refers to it

    @property
    def label(self) -> str:
        """The file's name in messages."""
        return self.name or str(self.path)


def find_sources(named: str, *, max_line_bytes: int = MAX_LINE_BYTES) -> list[Source]:
    """Return the files that a name stands for, sorted; `csv:NAME` and `scsv:NAME` say which format they have."""
    format, rest = _split_format(named)
    if rest == "-":
        if sys.stdin is None:  # Python's value for a closed one
            raise InputError("standard input is closed, so there is nothing to read. Name a file, or pipe text in.")
        stdin = Source(Path("-"), format or "txt", "", "stdin", rest, max_line_bytes, bool(format))
        return [copy_to_disk(stdin, sys.stdin.buffer)]
    paths = _find_files(format, rest)
    if not paths:
        if is_folder(rest):
            raise InputError(f"the folder {rest} has no file we can read. {EXPECTED}.")
        missing = f"no file matches {rest}." if glob.has_magic(rest) else f"no file {rest}.{_where_to_look(Path(rest))}"
        raise InputError(missing)
    sources = [replace(_recognise(path, format), given=rest, max_line_bytes=max_line_bytes) for path in paths]
    return [source if source.path.is_file() else copy_to_disk(source) for source in sources]


def input_files(named: str | os.PathLike[str]) -> list[Path]:
    """Return the files that a name stands for, none for standard input, the built-in corpus, the hub or no file."""
    return _find_files(*_split_format(os.fspath(named)))


def content_of(named: str) -> list[str]:
    """Return what tells a text apart wherever it lies: format, and each file's name and hash; the name of no file."""
    files = input_files(named)
    return [_split_format(named)[0], *(f"{path.name} {sha256(path)}" for path in files)] if files else [named]


def _split_format(named: str) -> tuple[str, str]:
    format, _, rest = named.partition(":")
    return ("", named) if format not in FORMS or not rest or exists(named) else (format, rest)


def _find_files(format: str, rest: str) -> list[Path]:
    """Return the files of a folder, a name or a pattern, sorted."""
    if is_folder(rest):
        return sorted(_in_folder(Path(rest), format))
    if exists(rest):
        return [Path(rest)]
    found = glob.glob(rest, recursive=True) if glob.has_magic(rest) else []  # noqa: PTH207 -- pathlib takes no absolute pattern
    return sorted(path for path in map(Path, found) if path.is_file())


def _in_folder(folder: Path, format: str) -> list[Path]:
    """Return every readable file in a folder and its subfolders, without hidden ones."""
    found = (path for path in folder.rglob("*") if (format or format_of(path)[0]) and path.is_file())
    return [path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def _recognise(path: Path, format: str) -> Source:
    known, packing = format_of(path)
    if not (format or known):
        raise InputError(f"cannot tell the format of {path} from its name. {EXPECTED}; or name the format: txt:{path}")
    return Source(path, format or known, packing, is_stated=bool(format))


def format_of(path: Path) -> tuple[str, str]:
    """Return a file's format and compression by its suffixes; an unknown format is an empty string."""
    packing = path.suffix.lower() if path.suffix.lower() in PACKINGS else ""
    suffix = (path.with_suffix("") if packing else path).suffix.lower().removeprefix(".")
    return (suffix if suffix in FORMATS else ""), packing


def _where_to_look(path: Path) -> str:
    """Return a hint: a similar name in the same folder, or that folder."""
    if not is_folder(path.parent):
        return f" There is no folder {path.parent} either."
    try:
        near = suggest(path.name, os.listdir(path.parent))  # noqa: PTH208 -- names are all we need
    except OSError:  # a folder that may be entered but not listed
        near = ""
    return near or f" Look in {path.parent.resolve()}."


@contextlib.contextmanager
def reading(source: Source) -> Iterator[None]:
    """Turn errors of the system and of decompression into an InputError that names the file."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise InputError(
            f"cannot unpack {source.label}: {error}. The file is damaged or is not what its suffix says; "
            "download or compress it again."
        ) from error
    except OSError as error:
        raise InputError(f"cannot read {source.label}: {error.strerror or error}.") from error


def open_bytes(source: Source) -> io.BufferedReader:
    """Open a source for reading, decompressed."""
    openers = {"": Path.open, ".gz": gzip.open, ".xz": lzma.open}
    raw = cast(io.RawIOBase, openers[source.packing](source.path, "rb"))  # type: ignore[operator]
    return io.BufferedReader(raw, BLOCK)


def read_lines(source: Source) -> Iterator[Line]:
    """Yield every line of a UTF-8 text source; a damaged line, or one that is too long, is yielded with its fault."""
    with reading(source), open_bytes(source) as stream:
        _refuse_binary(source, stream.peek(BLOCK))
        number, limit = 0, source.max_line_bytes
        while raw := stream.readline(limit + 2):  # its end does not count
            number += 1
            if len(raw) > limit and len(raw.rstrip(b"\r\n")) > limit:
                while raw and not raw.endswith(b"\n"):
                    raw = stream.readline(BLOCK)  # read past the rest, a block at a time
                message = f"expected at most {limit:,} bytes in a line (max_line_bytes), got more"
                yield number, "\n", "line too long", message
                continue
            try:
                text = raw.decode()
            except UnicodeDecodeError as error:
                message = f"expected UTF-8, got byte 0x{raw[error.start]:02x} as byte {error.start + 1} of the line"
                yield number, raw.decode("utf-8", "replace"), "not UTF-8", message
                continue
            if number == 1:
                text = text.removeprefix("\ufeff")
            fault = ("NUL character", "expected text, got a NUL character") if "\0" in text else ("", "")
            yield number, text, *fault


def _refuse_binary(source: Source, head: bytes) -> None:
    """Raise InputError if the first bytes are not those of a UTF-8 text."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"expected UTF-8, got UTF-16 ({source.label}). Convert it: iconv -f UTF-16 -t UTF-8 IN > OUT")
    if b"\0" in head:
        line = head.count(b"\n", 0, head.index(b"\0")) + 1
        raise InputError(
            f"expected a text file, got a NUL byte ({source.label}:{line}). Name a text file, or one whose suffix "
            "says what it is (.parquet, .gz, .xz)."
        )


def copy_to_disk(source: Source, stream: BinaryIO | None = None) -> Source:
    """Copy a source, decompressed, or its open stream to a temporary file, which can be read again and in any order."""
    folder = tempfile.TemporaryDirectory(prefix="twinpass-")
    path = Path(folder.name) / f"input.{source.format}"
    with reading(source), contextlib.ExitStack() as opened, path.open("wb") as copy:
        shutil.copyfileobj(stream or opened.enter_context(open_bytes(source)), copy, BLOCK)
    return replace(source, path=path, packing="", name=source.label, keep=folder)
