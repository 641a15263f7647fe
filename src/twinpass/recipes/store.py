"""What was already made: models, layers and scores in one folder, each under a key computed from all that shaped it."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from twinpass.files import Item, explaining, locked, sharing, write_json
from twinpass.progress import Log, ignore


def describe(thing: Any) -> Any:
    """Return a dataclass as plain data, every field of it."""
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        fields = {f.name: describe(getattr(thing, f.name)) for f in dataclasses.fields(thing)}
        return {"kind": type(thing).__name__} | fields
    return list(thing) if isinstance(thing, tuple) else thing


def key_of(description: Any) -> str:
    """Return a short name for a description; equal descriptions have equal names."""
    text = json.dumps(description, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Store:
    """Folders `models`, `layers` and `scores` under an output folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.waits = True  # for what another process works on; else that raises Busy
        with explaining(folder):
            for part in ("models", "layers", "scores"):
                (folder / part).mkdir(parents=True, exist_ok=True)

    def model(self, key: str) -> Path:
        """Return the folder of a model."""
        return self.folder / "models" / key

    def layer(self, key: str) -> Path:
        """Return the folder of a fitted layer."""
        return self.folder / "layers" / key

    def is_finished(self, key: str) -> bool:
        """Tell whether a model was trained to its end."""
        return (self.model(key) / "finished.json").is_file()

    def finish(self, key: str, facts: Any) -> None:
        """Mark a model as finished."""
        write_json(self.model(key) / "finished.json", facts)

    def read_score(self, key: str) -> Any | None:
        """Return what was measured under a key, or None."""
        path = self.folder / "scores" / f"{key}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def write_score(self, key: str, found: Any) -> None:
        """Keep what was measured."""
        write_json(self.folder / "scores" / f"{key}.json", found)

    @contextlib.contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Let one process at a time work on a key; another waits and then finds the work done, or gets Busy."""
        with locked(self.folder / "models" / f".{key}.lock", wait=self.waits):
            yield

    def share(self, items: Iterable[Item], work: Callable[[Item], None], *, log: Log = ignore) -> None:
        """Do the work of each item, what another process works on last: wait for it then, or raise Busy."""
        waits = self.waits

        def one(item: Item, wait: bool) -> None:
            self.waits = wait
            work(item)

        try:
            for _ in sharing(items, one, waits=waits, log=log):
                pass
        finally:
            self.waits = waits
