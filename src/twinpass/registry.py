"""A dictionary whose error for an unknown name has a suggestion and the list of known names."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from twinpass.errors import ConfigError

T = TypeVar("T")


def suggest(name: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` for the most similar known name, or nothing if none is similar."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


class Registry(Generic[T]):
    """Named things of one kind, in the order in which they were registered."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def add(self, name: str, entry: T) -> T:
        """Register an entry under a new name."""
        if name in self._entries:
            raise ValueError(f"a {self.kind} named {name!r} is registered already")
        self._entries[name] = entry
        return entry

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that registers an entry under a name."""
        return lambda entry: self.add(name, entry)

    def __getitem__(self, name: str) -> T:
        try:
            return self._entries[name]
        except KeyError:
            raise ConfigError(self._unknown(name)) from None

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _unknown(self, name: str) -> str:
        return f"no {self.kind} named {name!r}.{suggest(name, self)} Known: {', '.join(self)}."
