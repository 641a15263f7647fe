"""What a result came from: versions, model, data and options, in the same form everywhere."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from twinpass import __version__

LIBRARIES = ("torch", "transformers", "numpy")


class Model(Protocol):
    """The attributes that provenance needs of a model; an Encoder has them."""

    @property
    def name(self) -> str:
        """The name that the user gave."""

    @property
    def fingerprint(self) -> str:
        """A hash of its content."""


def provenance(
    *, model: Model | None = None, data: Sequence[tuple[str, str | None]] = (), options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return versions, model, data as (source, fingerprint) pairs, and options, as a JSON object."""
    facts: dict[str, Any] = {"twinpass": __version__}
    if model is not None:
        facts["model"] = {"name": model.name, "fingerprint": model.fingerprint}
    if data:
        facts["data"] = [{"source": source, "fingerprint": fingerprint} for source, fingerprint in data]
    if options is not None:
        facts["options"] = dict(options)
    facts["versions"] = {"python": platform.python_version()} | {name: installed(name) for name in LIBRARIES}
    facts["platform"] = platform.platform()
    return facts


def installed(distribution: str) -> str | None:
    """Return the version of an installed distribution without importing it, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def checksum(facts: Mapping[str, str], columns: Iterable[str]) -> str:
    """Return a SHA-256 over what a file of vectors says of itself: its facts, and the names of its columns."""
    return hashlib.sha256(json.dumps([dict(facts), list(columns)], sort_keys=True).encode()).hexdigest()
