"""A dictionary whose error for an unknown name has a suggestion and the list of known names."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import NoReturn, TypeVar

from twinpass.errors import ConfigError

T = TypeVar("T")


def suggest(name: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` for the most similar known name, or nothing if none is similar."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


class Registry(dict[str, T]):
    """Named things of one kind, in the order in which they were registered."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def __missing__(self, name: str) -> NoReturn:
        raise ConfigError(f"no {self.kind} named {name!r}.{suggest(name, self)} Known: {', '.join(self)}.")

    def add(self, name: str, entry: T) -> T:
        """Register an entry under a new name."""
        if name in self:
            raise ValueError(f"a {self.kind} named {name!r} is registered already")
        self[name] = entry
        return entry

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that registers an entry under a name."""
        return lambda entry: self.add(name, entry)
