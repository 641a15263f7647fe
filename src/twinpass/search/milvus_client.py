"""Talking to Milvus: where it is, how it is reached, and what its refusals mean."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinpass.errors import ConfigError, InputError, MissingExtra, OutputError

CONNECTING = 10  # seconds: a server that is there answers in far less
ANSWERING = 120  # seconds for one request: the client would go on trying for many minutes
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")  # what every Milvus accepts, with room for our own endings


@dataclass(frozen=True)
class Address:
    """Where an index is: a file that ends in .db, or a server, and the name of a collection there."""

    uri: str
    collection: str = "twinpass"
    token: str | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.collection):
            raise ConfigError(
                f"a collection is named by letters, digits and _, not beginning with a digit; got {self.collection!r}."
            )
        if not self.is_file and "://" not in self.uri:
            raise ConfigError(
                f"wanted a file that ends in .db or a server such as http://localhost:19530, got {self.uri!r}."
            )

    def __str__(self) -> str:
        return f"{self.collection} at {self.uri}"

    @property
    def is_file(self) -> bool:
        """Whether the index is in a file of this machine, without a server."""
        return "://" not in self.uri and self.uri.endswith(".db")


def connect(address: Address, *, create: bool = False) -> Any:
    """Return a client; a file is made only if asked for."""
    check_ready(address, create=create)
    from pymilvus import MilvusClient

    for name in ("pymilvus", "milvus_lite"):  # they log what they also raise, with pages of traceback
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with _reached(address):
        return MilvusClient(uri=address.uri, token=address.token or "", timeout=CONNECTING)


def check_ready(address: Address, *, create: bool) -> None:
    """Refuse what cannot be reached for want of a library, a file, or a folder to make the file in."""
    needed = ["pymilvus", "milvus_lite"] if address.is_file else ["pymilvus"]
    if any(importlib.util.find_spec(name) is None for name in needed):
        raise MissingExtra("--engine milvus", "milvus")
    path = Path(address.uri)
    if address.is_file and not create and not path.exists():
        raise InputError(
            f"there is no {path}. Make it with: twinpass index build TEXTS -o NAME --engine milvus --uri {path}"
        )
    if address.is_file and not path.absolute().parent.is_dir():
        raise OutputError(f"cannot write {path}: there is no folder {path.parent}. Make it first.")


@contextlib.contextmanager
def explained(address: Address) -> Iterator[None]:
    """Turn a refusal of Milvus into one line that names the place."""
    from pymilvus import MilvusException

    try:
        yield
    except MilvusException as error:
        raise InputError(f"Milvus refused ({address}): {_reason(error)}.") from error


@contextlib.contextmanager
def _reached(address: Address) -> Iterator[None]:
    from pymilvus import MilvusException

    try:
        yield
    except MilvusException as error:
        advice = "Is another process using it?" if address.is_file else "Look at --uri and --token."
        raise InputError(f"cannot reach Milvus at {address.uri}: {_reason(error)}. {advice}") from error


def _reason(error: Any) -> str:
    return " ".join(str(error.message or error).split()).rstrip(".")
