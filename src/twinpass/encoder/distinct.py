"""Texts taken in windows, each checked to be one and each distinct one noted once."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from twinpass.errors import ConfigError, InputError

Item = TypeVar("Item")


class Distinct:
    """Remembers which row of the distinct texts each text met so far stands for."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self._row_of: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._row_of)

    def add(self, window: Sequence[str]) -> list[str]:
        """Note every text of a window and return those not met before."""
        fresh = []
        for text in window:
            # A digest, so that an iterator's texts need not be kept to recognise them.
            key = hashlib.blake2b(self._bytes(text), digest_size=16).digest()
            if key not in self._row_of:
                self._row_of[key] = len(self._row_of)
                fresh.append(text)
            self.rows.append(self._row_of[key])
        return fresh

    def places(self, wanted: set[int]) -> list[int]:
        """Return the places of the texts met so far that stand for one of these rows."""
        return [place for place, row in enumerate(self.rows) if row in wanted] if wanted else []

    def _bytes(self, text: str) -> bytes:
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"text {len(self.rows)} holds half a character ({text[error.start]!r} at place {error.start}), which "
                "no encoding can write. It was decoded wrongly; read it again as UTF-8."
            ) from error


def windows(items: Iterable[Item], size: int, key: Callable[[Item], str] | None = None) -> Iterator[list[Item]]:
    """Cut items into lists of at most `size`; each is a text, or has one that `key` returns."""
    if size < 1:
        raise ConfigError(f"a window holds at least one text; got {size}.")
    given: object = items
    if isinstance(given, (str, bytes, bytearray)) or not isinstance(given, Iterable):
        raise InputError(f"expected texts, got {type(given).__name__}. Pass a list or an iterator of strings.")
    stream = enumerate(items)
    while window := list(itertools.islice(stream, size)):
        for place, item in window:
            text: object = item if key is None else key(item)
            if not isinstance(text, str):
                raise InputError(f"text {place} is not a string but {type(text).__name__}: {text!r:.60}.")
        yield [item for _, item in window]
