"""Checksums of an index's files: what was written, and whether it is still what is there.

A checksum is taken of every megabyte, so that of a large file the part can be checked that is about to be used. CRC-32
finds every flipped bit and every burst of up to 32 of them; it protects against damage, not against forgery.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from twinpass.errors import InputError

BLOCK = 1 << 20
WHOLE = 64  # blocks: a file up to this size is checked whole when an index is opened, in about 20 ms
SAMPLED = 4  # random blocks of a larger file, with its first and last: every opening looks at others
DIGITS = 8  # of a block's checksum, in hexadecimal


@dataclass(frozen=True)
class Checksum:
    """The size of a file, and 8 hexadecimal digits for each of its blocks."""

    bytes: int
    crc32: str

    @classmethod
    def of(cls, path: Path) -> Checksum:
        """Return the checksum of a file as it is now."""
        size, digits = 0, []
        for block in _blocks(path):
            size += len(block)
            digits.append(_digits(block))
        return cls(size, "".join(digits))

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return -(-self.bytes // BLOCK)

    def of_block(self, place: int) -> str:
        """Return what was recorded of one block."""
        return self.crc32[place * DIGITS : (place + 1) * DIGITS]

    def check(self, path: Path) -> None:
        """Refuse a file that is not the one that was written; it is read once, in constant memory."""
        check_size(path, self.bytes)
        for place, block in enumerate(_blocks(path)):
            if _digits(block) != self.of_block(place):
                _refuse(path, place)


class Mapped:
    """A file by memory map. Each of its blocks is checked at most once, when it is first asked for."""

    def __init__(self, path: Path, checksum: Checksum | None, *, size: int | None = None) -> None:
        self.path = path
        self.checksum = checksum  # None: written by a version that recorded none
        for expected in (None if checksum is None else checksum.bytes, size):
            if expected is not None:
                check_size(path, expected)
        empty = not path.stat().st_size  # which cannot be mapped
        self.bytes: NDArray[np.uint8] = np.empty(0, np.uint8) if empty else np.memmap(path, np.uint8, "r")
        self._unchecked = np.ones(0 if checksum is None else checksum.blocks, bool)

    def check(self, start: int = 0, end: int | None = None) -> None:
        """Refuse a file of which these bytes, or any, are not those that were written."""
        last = len(self._unchecked) if end is None else -(-end // BLOCK)
        for place in np.flatnonzero(self._unchecked[start // BLOCK : last]).tolist():
            self._check_block(start // BLOCK + place)

    def check_rows(self, rows: NDArray[np.int64], width: int) -> None:
        """Refuse a file of which some rows, each of this many bytes, are not those that were written."""
        if self._unchecked.any():
            places = np.union1d(rows * width // BLOCK, ((rows + 1) * width - 1) // BLOCK)
            for place in places[self._unchecked[places]].tolist():
                self._check_block(place)

    def check_some(self) -> None:
        """Check a small file whole; of a large one the first and last block, and some at random."""
        blocks = len(self._unchecked)
        if blocks <= WHOLE:
            self.check()
        else:
            for place in {0, blocks - 1, *random.sample(range(blocks), SAMPLED)}:
                self._check_block(place)

    def _check_block(self, place: int) -> None:
        assert self.checksum is not None
        if _digits(self.bytes[place * BLOCK : (place + 1) * BLOCK].data) != self.checksum.of_block(place):
            _refuse(self.path, place)
        self._unchecked[place] = False


def check_size(path: Path, expected: int) -> None:
    """Refuse a file that has another size."""
    if (found := path.stat().st_size) != expected:
        raise InputError(damage(path, f"expected {expected:,} bytes, got {found:,}"))


def damage(path: Path, what: str) -> str:
    """Return the message about a damaged file of an index: its name, what is wrong, and what to do."""
    index = path.parent if path.parent.name.partition("-")[0] != "segment" else path.parent.parent
    remedy = (
        f"Build the graph again from the vectors: twinpass index compact {index}"
        if path.name == "engine.faiss"
        else "Restore the file from a copy, or build the index again with --overwrite"
    )
    return f"{path} is damaged: {what}. {remedy}. To check every file: twinpass index verify {index}"


def _refuse(path: Path, place: int) -> NoReturn:
    raise InputError(damage(path, f"megabyte {place + 1} does not match its checksum"))


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while block := stream.read(BLOCK):
            yield block


def _digits(block: bytes | memoryview) -> str:
    return f"{zlib.crc32(block):0{DIGITS}x}"
