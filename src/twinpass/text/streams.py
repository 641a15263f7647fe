"""Bytes in, numbered lines out: opening, unpacking and decoding text files."""

from __future__ import annotations

import contextlib
import gzip
import io
import lzma
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from twinpass.errors import InputError

BLOCK = 1 << 16
Line = tuple[int, str, str, str]  # number from 1, text with its line end, what is wrong with it, detail


@dataclass(frozen=True)
class Source:
    """A file to read: where it is, how it is packed, and what messages call it."""

    path: Path
    format: str
    packing: str = ""
    name: str = ""
    keep: object = field(default=None, repr=False)  # a temporary folder that lives as long as we do

    @property
    def label(self) -> str:
        """The file's name in messages."""
        return self.name or str(self.path)


@contextlib.contextmanager
def reading(source: Source) -> Iterator[None]:
    """Turn the system's and the unpacker's refusals into an InputError that names the file."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise InputError(
            f"cannot unpack {source.label}: {error}. The file is damaged or is not what its suffix says; "
            "fetch or pack it again."
        ) from error
    except OSError as error:
        raise InputError(f"cannot read {source.label}: {error.strerror or error}.") from error


def open_bytes(source: Source) -> io.BufferedReader:
    """Open a source for reading, unpacked."""
    openers = {"": Path.open, ".gz": gzip.open, ".xz": lzma.open}
    raw = cast(io.RawIOBase, openers[source.packing](source.path, "rb"))  # type: ignore[operator]
    return io.BufferedReader(raw, BLOCK)


def read_lines(source: Source) -> Iterator[Line]:
    """Yield every line of a UTF-8 text source; a damaged line is yielded with its fault."""
    with reading(source), open_bytes(source) as stream:
        _refuse_binary(source, stream.peek(BLOCK))
        for number, raw in enumerate(stream, 1):
            try:
                text = raw.decode()
            except UnicodeDecodeError as error:
                detail = f"byte 0x{raw[error.start]:02x} is byte {error.start + 1} of the line"
                yield number, raw.decode("utf-8", "replace"), "not UTF-8", detail
                continue
            if number == 1:
                text = text.removeprefix("\ufeff")
            yield number, text, "a NUL character in the text" if "\0" in text else "", ""


def _refuse_binary(source: Source, head: bytes) -> None:
    """Raise InputError if the first bytes are not those of a UTF-8 text."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{source.label} is UTF-16 text; wanted UTF-8. Convert it: iconv -f UTF-16 -t UTF-8 IN > OUT")
    if b"\0" in head:
        line = head.count(b"\n", 0, head.index(b"\0")) + 1
        raise InputError(
            f"{source.label}:{line}: a NUL byte, so this is not a text file. Name a text file, or one with a "
            "suffix that says what it is (.parquet, .gz, .xz)."
        )


def spool(stream: BinaryIO, source: Source) -> Source:
    """Copy a stream that can be read only once to a temporary file that can be read again."""
    folder = tempfile.TemporaryDirectory(prefix="twinpass-")
    path = Path(folder.name) / f"input.{source.format}"
    with reading(source), path.open("wb") as copy:
        shutil.copyfileobj(stream, copy, BLOCK)
    return Source(path, source.format, "", source.label, folder)


def spool_stdin(format: str) -> Source:
    """Copy standard input to a temporary file, so that several passes can be made over it."""
    if sys.stdin is None:  # what Python makes of a closed one
        raise InputError("standard input is closed, so there is nothing to read. Name a file, or pipe text in.")
    return spool(sys.stdin.buffer, Source(Path("-"), format, "", "stdin"))
