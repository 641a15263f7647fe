"""What was already made: models, layers and scores in one folder, each under a key computed from all that shaped it."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from twinpass.errors import ConfigError, OutputError
from twinpass.files import explaining, locked, write_json


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


class Busy(Exception):
    """Another process works on it."""


class Store:
    """Folders `models`, `layers` and `scores` under an output folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
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

    def recognise(self, name: str, content: str) -> None:
        """Remember the content of an encoder's folder: keys hold only its name, so its content must not change."""
        path = self.folder / "encoders.json"
        with self.locked("encoders"):
            known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
            if known.get(name, content) != content:
                raise ConfigError(
                    f"{name} has changed since results in {self.folder} were made with it. "
                    "Choose another output folder (-o), or restore the encoder."
                )
            write_json(path, known | {name: content})

    @contextlib.contextmanager
    def locked(self, key: str, *, wait: bool = True) -> Iterator[None]:
        """Let one process at a time work on a key; another waits and then finds the work done, or gets Busy."""
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locked(self.folder / "models" / f".{key}.lock", wait=wait))
            except OutputError:
                if wait:
                    raise
                raise Busy from None
            yield
