"""Vectors cached on disk by model and text, so that no sentence is encoded twice.

One SQLite file in WAL mode, safe for several processes at once. When it grows beyond its limit, the vectors of the
least recently used models are deleted first. A cache that cannot be used only causes a warning: runs get slower, never
wrong.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinpass.encoder.any_model import Encode, Model
from twinpass.errors import ModelError, OutputError
from twinpass.files import cache_folder
from twinpass.progress import Advance
from twinpass.vectors import check_finite

MAX_BYTES = 4 << 30
_BLOCK = 4_096  # texts encoded before they are stored: a run that is stopped loses at most these
_ASKED = 500  # keys in one query; SQLite allows 999 everywhere
_CHECKSUM = 8  # bytes
_SCHEMA = """
CREATE TABLE IF NOT EXISTS models (id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, used REAL NOT NULL);
CREATE TABLE IF NOT EXISTS vectors (
    id INTEGER PRIMARY KEY, model INTEGER NOT NULL, text BLOB NOT NULL, vector BLOB NOT NULL, UNIQUE (model, text));
"""

Vectors = NDArray[np.float32]


class Cache:
    """Vectors on disk; a model is identified by a fingerprint of everything its vectors depend on."""

    def __init__(self, path: Path | None = None, *, max_bytes: int = MAX_BYTES) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self.usable = True
        self._ready = False  # the database has its mode and its tables

    def load(self, model: str, texts: Sequence[str]) -> dict[int, Vectors]:
        """Return the cached vectors, by the position of their text."""
        found: dict[int, Vectors] = {}
        with self._forgiven(), self._connected() as database:
            number = _number(database, model)
            database.commit()  # others may write while this run reads
            for start in range(0, len(texts), _ASKED):
                keys = {_key(text): start + i for i, text in enumerate(texts[start : start + _ASKED])}
                marks = ",".join("?" * len(keys))
                question = f"SELECT text, vector FROM vectors WHERE model = ? AND text IN ({marks})"
                for key, stored in database.execute(question, (number, *keys)):
                    vector, checksum = stored[:-_CHECKSUM], stored[-_CHECKSUM:]
                    if key in keys and checksum == _checksum(key, vector):  # a damaged one is computed again
                        found[keys[key]] = np.frombuffer(vector, dtype="<f4")
        return found

    def save(self, model: str, texts: Sequence[str], vectors: Vectors) -> None:
        """Store the vectors (n, d) of distinct texts, all or none of them."""
        rows = [(_key(text), row.tobytes()) for text, row in zip(texts, vectors.astype("<f4"), strict=True)]
        with self._forgiven(), self._connected() as database:
            number = _number(database, model)
            insert = "INSERT OR REPLACE INTO vectors (model, text, vector) VALUES (?, ?, ?)"
            database.executemany(insert, ((number, key, vector + _checksum(key, vector)) for key, vector in rows))
            self._shrink(database)

    def _shrink(self, database: sqlite3.Connection) -> None:
        """Delete the vectors of the least recently used models; of a single model, the oldest."""
        models = [row[0] for row in database.execute("SELECT id FROM models ORDER BY used")]
        while _used_bytes(database) > self.max_bytes:
            if len(models) > 1:
                database.execute("DELETE FROM vectors WHERE model = ?", (models[0],))
                database.execute("DELETE FROM models WHERE id = ?", (models.pop(0),))
                continue
            (count,) = database.execute("SELECT COUNT(*) FROM vectors").fetchone()
            if not count:
                break
            oldest = "SELECT id FROM vectors ORDER BY id LIMIT ?"
            database.execute(f"DELETE FROM vectors WHERE id IN ({oldest})", (-(-count // 4),))

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Yield the database inside one transaction."""
        self.path = self.path or cache_folder("vectors") / "vectors.sqlite"
        if not self.usable:
            raise sqlite3.OperationalError("it failed before")
        with contextlib.closing(sqlite3.connect(self.path, timeout=60)) as database:
            if not self._ready:
                self._set_up(database)
            database.execute("PRAGMA synchronous = NORMAL")
            with database:
                yield database
            database.execute("PRAGMA incremental_vacuum").fetchall()

    def _set_up(self, database: sqlite3.Connection) -> None:
        """Set the mode and make the tables, one process at a time.

        Of two connections that switch to WAL mode at once, SQLite lets one fail without waiting for the timeout.
        """
        from filelock import FileLock

        with FileLock(f"{self.path}.lock", timeout=60):
            database.execute("PRAGMA auto_vacuum = INCREMENTAL")
            database.execute("PRAGMA journal_mode = WAL")
            database.executescript(_SCHEMA)
        self._ready = True

    @contextlib.contextmanager
    def _forgiven(self) -> Iterator[None]:
        """Continue without the cache if it fails, with a warning the first time."""
        try:
            yield
        except (
            sqlite3.Error,
            ValueError,
            TypeError,
            OutputError,
            OSError,
            NotImplementedError,
        ) as error:  # some disks have no locks
            if self.usable:
                warnings.warn(f"continuing without the vector cache ({self.path}): {error}", stacklevel=4)
            self.usable = False


def _number(database: sqlite3.Connection, model: str) -> int:
    """Return the model's number, and record that it was used now."""
    database.execute(
        "INSERT INTO models (name, used) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET used = excluded.used",
        (model, time.time()),
    )
    (number,) = database.execute("SELECT id FROM models WHERE name = ?", (model,)).fetchone()
    return int(number)


def _used_bytes(database: sqlite3.Connection) -> int:
    pages, free, size = (
        database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def _checksum(key: bytes, vector: bytes) -> bytes:
    """Return what is stored after a vector: SQLite does not notice a flipped bit."""
    return hashlib.blake2b(key + vector, digest_size=_CHECKSUM).digest()


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


def encode_once(
    model: Model, texts: Iterable[str], *, cache: Cache | None = None, advance: Advance = lambda count: None
) -> Encode:
    """Encode distinct texts that are not in the cache; return a function that looks their vectors up."""
    distinct = list(dict.fromkeys(texts))
    known = cache.load(model.fingerprint, distinct) if cache and model.fingerprint else {}
    advance(len(known))
    missing = [place for place in range(len(distinct)) if place not in known]
    for start in range(0, len(missing), _BLOCK):
        places = missing[start : start + _BLOCK]
        block = [distinct[place] for place in places]
        vectors = checked_vectors(model, block)
        if cache and model.fingerprint:
            cache.save(model.fingerprint, block, vectors)
        known.update(zip(places, vectors, strict=True))
        advance(len(block))
    # A task may bring no texts to encode; then nothing is looked up.
    matrix: Vectors = np.stack([known.pop(i) for i in range(len(distinct))]) if distinct else np.zeros((0, 1), "f4")
    row = {text: place for place, text in enumerate(distinct)}
    return lambda asked: matrix[[row[text] for text in asked]]


def checked_vectors(model: Model, texts: Sequence[str]) -> Vectors:
    """Encode texts and refuse vectors of a wrong shape or with non-finite values."""
    vectors = np.asarray(model.encode(texts))
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise ModelError(
            f"{model.name} was given {len(texts)} texts and returned an array of shape {vectors.shape}; "
            f"expected ({len(texts)}, dimensions)."
        )
    if not (np.issubdtype(vectors.dtype, np.floating) or np.issubdtype(vectors.dtype, np.integer)):
        raise ModelError(f"{model.name} returned {vectors.dtype} values; expected numbers.")
    check_finite(vectors, texts, model=model.name)
    return vectors.astype(np.float32, copy=False)
