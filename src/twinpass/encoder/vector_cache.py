"""Vectors kept on disk by (model, text), so that no sentence is encoded twice, whoever asks.

One SQLite file in WAL mode: its locks make it safe for several runs at once. When it outgrows its bound, the models
that were used longest ago lose their vectors first. A cache that cannot be used is left alone, with a warning: it
makes a run slower, never wrong.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from twinpass.encoder.any_model import Encode, Model
from twinpass.errors import ModelError, OutputError
from twinpass.files import cache_folder

MAX_BYTES = 4 << 30
_ASKED = 500  # keys in one question; SQLite takes 999 everywhere
_SCHEMA = """
CREATE TABLE IF NOT EXISTS models (id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, used REAL NOT NULL);
CREATE TABLE IF NOT EXISTS vectors (
    id INTEGER PRIMARY KEY, model INTEGER NOT NULL, text BLOB NOT NULL, vector BLOB NOT NULL, UNIQUE (model, text));
"""

Vectors = npt.NDArray[np.float32]


class Cache:
    """Vectors on disk; models are told apart by a name that says all that shapes their vectors."""

    def __init__(self, path: Path | None = None, *, max_bytes: int = MAX_BYTES) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self.usable = True

    def load(self, model: str, texts: Sequence[str]) -> dict[int, Vectors]:
        """Return the vectors that are there, by the position of their text."""
        found: dict[int, Vectors] = {}
        with self._forgiven(), self._connected() as database:
            number = _number(database, model)
            database.commit()  # others may write while this run reads
            for start in range(0, len(texts), _ASKED):
                keys = {_key(text): start + i for i, text in enumerate(texts[start : start + _ASKED])}
                marks = ",".join("?" * len(keys))
                question = f"SELECT text, vector FROM vectors WHERE model = ? AND text IN ({marks})"
                for key, vector in database.execute(question, (number, *keys)):
                    found[keys[key]] = np.frombuffer(vector, dtype="<f4")
        return found

    def save(self, model: str, texts: Sequence[str], vectors: Vectors) -> None:
        """Keep the vectors (n, d) of distinct texts, all or none of them."""
        rows = zip(map(_key, texts), (row.tobytes() for row in vectors.astype("<f4")), strict=True)
        with self._forgiven(), self._connected() as database:
            number = _number(database, model)
            insert = "INSERT OR IGNORE INTO vectors (model, text, vector) VALUES (?, ?, ?)"
            database.executemany(insert, ((number, key, vector) for key, vector in rows))
            self._shrink(database)

    def _shrink(self, database: sqlite3.Connection) -> None:
        """Drop the vectors of the models used longest ago; of a lone model, those that came first."""
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
            database.execute("PRAGMA auto_vacuum = INCREMENTAL")
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            database.executescript(_SCHEMA)
            with database:
                yield database
            database.execute("PRAGMA incremental_vacuum").fetchall()

    @contextlib.contextmanager
    def _forgiven(self) -> Iterator[None]:
        """Go on without the cache if it fails, and say so the first time."""
        try:
            yield
        except (sqlite3.Error, OutputError) as error:
            if self.usable:
                warnings.warn(f"going on without the cache of vectors ({self.path}): {error}", stacklevel=4)
            self.usable = False


def _number(database: sqlite3.Connection, model: str) -> int:
    """Return the model's number, and note that it was used now."""
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


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


Advance = Callable[[int], None]
_BLOCK = 4_096  # texts encoded before they are kept: a run that is stopped loses no more than these


def encode_once(
    model: Model, texts: Iterable[str], *, cache: Cache | None = None, advance: Advance | None = None
) -> Encode:
    """Encode distinct texts, from the cache where it has them; return a function that looks vectors up."""
    distinct = list(dict.fromkeys(texts))
    known = cache.load(model.fingerprint, distinct) if cache and model.fingerprint else {}
    if advance:
        advance(len(known))
    missing = [place for place in range(len(distinct)) if place not in known]
    for start in range(0, len(missing), _BLOCK):
        places = missing[start : start + _BLOCK]
        block = [distinct[place] for place in places]
        vectors = checked_vectors(model, block)
        if cache and model.fingerprint:
            cache.save(model.fingerprint, block, vectors)
        known.update(zip(places, vectors, strict=True))
        if advance:
            advance(len(block))
    # With nothing to encode (a task that brings its own texts) there is nothing to look up either.
    matrix: Vectors = np.stack([known.pop(i) for i in range(len(distinct))]) if distinct else np.zeros((0, 1), "f4")
    row = {text: place for place, text in enumerate(distinct)}
    return lambda wanted: matrix[[row[text] for text in wanted]]


def checked_vectors(model: Model, texts: Sequence[str]) -> Vectors:
    """Encode texts and refuse what cannot be judged: a wrong shape, or values that are not numbers."""
    vectors = np.asarray(model.encode(texts))
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise ModelError(
            f"{model.name} was given {len(texts)} texts and returned an array of shape {vectors.shape}; "
            f"({len(texts)}, dimensions) is wanted."
        )
    if not (np.issubdtype(vectors.dtype, np.floating) or np.issubdtype(vectors.dtype, np.integer)):
        raise ModelError(f"{model.name} returned {vectors.dtype} values; numbers are wanted.")
    wrong = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(wrong):
        raise ModelError(
            f"{model.name} returned NaN or infinity for {len(wrong)} of {len(texts)} texts, the first of them "
            f"{texts[wrong[0]][:80]!r}. Check its weights, or encode in fp32."
        )
    return vectors.astype(np.float32, copy=False)
