"""Index: texts, their vectors and their metadata, searched by cosine; in a folder, or on Milvus (engines/milvus.py).

index.json           what there is: the only file that is ever replaced, and so the moment of every change
segment-000001/      rows that were written together (see segment.py)
removed-000002.npy   ids that were removed and still take space
lock                 held by the one process that writes
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from twinpass.errors import ConfigError, InputError
from twinpass.progress import Log, Progress, ignore, silent
from twinpass.provenance import provenance
from twinpass.search import writer
from twinpass.search.engines.exact import Floats
from twinpass.search.filters import Filter, Where, parse
from twinpass.search.manifest import FILE, Manifest, check_model, size, stamp
from twinpass.search.results import Added, Hit, Hits, Id, Info, Results
from twinpass.search.searching import Searching
from twinpass.search.segment import Block, Ids
from twinpass.search.snapshot import open_snapshot
from twinpass.search.texts import (
    OWN_VECTORS,
    Metadata,
    Name,
    StoredVectors,
    Texts,
    describe_model,
    load_again,
    load_encoder,
    read_texts,
)
from twinpass.search.verify import Verification, verify_folder
from twinpass.vectors import unit

if TYPE_CHECKING:
    from twinpass.encoder.encoder import Encoder
    from twinpass.encoder.folder import Exported
    from twinpass.search.clusters import Clustering
    from twinpass.search.duplicates import Duplicates

__all__ = ["Added", "Block", "Hit", "Hits", "Index", "Info", "Results"]

CHOSEN: dict[str, Any] = {"kind": "auto", "storage": "float32", "unique": False, "id_column": None}  # by default


class Index(Searching):
    """An index as it was when opened, or when it was last changed or refreshed through this object.

    `Index.open` and `Index.build` return one; with `milvus`, the path is the name of a collection there.
    """

    _build: ClassVar[Callable[..., None]] = staticmethod(writer.build)
    _verify: ClassVar[Callable[..., Verification]] = staticmethod(verify_folder)

    def __init__(self, place: Any) -> None:
        self.place = place  # a folder, or an address of Milvus
        self._encoder: Encoder | None = None
        self._checked = ""  # the fingerprint that the encoder was checked against
        self._loading: tuple[Name | None, Mapping[str, Any], Log] = (None, {}, ignore)
        self._temporary: writer.Temporary | None = None
        self._connect()

    def _connect(self) -> None:
        self.folder = Path(self.place)
        self._refreshing = threading.Lock()
        self._stamp = stamp(self.folder)  # before the manifest is read: if replaced in between, it is read again
        self._snapshot = open_snapshot(self.folder)

    @staticmethod
    def exists(path: Name) -> bool:
        """Tell whether this folder holds an index."""
        return os.path.isfile(os.path.join(path, FILE))  # noqa: PTH113, PTH118 - accepts any text

    @staticmethod
    def verify(path: Name, *, milvus: str | None = None, milvus_token: str | None = None) -> Verification:
        """Compare every file of an index with its checksum; `.check()` of the result raises if any is damaged.

        It works also where opening is refused. On Milvus, which keeps its own checksums, the rows are counted.
        """
        kind, place = _find(path, milvus, milvus_token)
        return kind._verify(place)

    @classmethod
    def open(
        cls,
        path: Name,
        *,
        encoder: Encoder | Name | None = None,
        milvus: str | None = None,
        milvus_token: str | None = None,
        log: Log = ignore,
        **loading: Any,
    ) -> Index:
        """Open an index; nothing is read into memory before it is needed.

        Texts are encoded with the index's own model, loaded when it is first needed. `encoder` says where that model
        is if it has moved, or is the loaded model; `loading` are options of Encoder.load, such as `device`. `milvus`
        is a server (http://HOST:19530) or a local path that ends in .db.
        """
        kind, place = _find(path, milvus, milvus_token)
        index = kind(place)
        if encoder is None or isinstance(encoder, (str, os.PathLike)):
            index._loading = encoder, loading, log
        else:
            index._encoder = encoder
        return index

    @classmethod
    def build(
        cls,
        path: Name | None,
        texts: Texts,
        *,
        encoder: Encoder | Name | None = None,
        vectors: Floats | None = None,
        metadata: Metadata | None = None,
        kind: str = "auto",
        storage: str = "float32",
        unique: bool = False,
        id_column: str | None = None,
        overwrite: bool = False,
        columns: str | Sequence[str] | None = None,
        join: str | None = None,
        header: bool | None = None,
        skip_bad_rows: bool = False,
        milvus: str | None = None,
        milvus_token: str | None = None,
        facts: Mapping[str, Any] | None = None,
        progress: Progress = silent,
        log: Log = ignore,
        **loading: Any,
    ) -> Index:
        """Make an index of texts, whole or not at all.

        `texts` are texts, or the name of a file, folder, pattern or corpus, whose other columns become the metadata.
        `encoder` is an Encoder or the name of a model (minilm if None), loaded with the options `loading`; with
        `vectors` (n, d) the texts are not encoded. `kind` is exact, hnsw, ivf-pq, or auto: by size. `storage` is the
        format of the vectors in memory: float32, int8 or binary, whose candidates are scored with the float32 on disk.
        With `unique` a repeated text is skipped. `id_column` names the column of the metadata whose values are the ids;
        `add` then replaces rows of equal ids. `facts` are kept in the history. Without a path the index is temporary:
        it is deleted together with the object.
        """
        temporary = None
        if path is None:
            temporary = writer.Temporary()
            path = temporary.folder / "index"
        target, place = _find(path, milvus, milvus_token)
        chosen: dict[str, Any] = {"kind": kind, "storage": storage, "unique": unique, "id_column": id_column}
        target.check_target(place, overwrite=overwrite, **chosen)
        reading: dict[str, Any] = {"columns": columns, "join": join, "header": header, "skip_bad_rows": skip_bad_rows}
        source = read_texts(texts, metadata, **reading, id_column=id_column, options=chosen, log=log)
        source.facts |= facts or {}
        loaded = None if vectors is not None and encoder is None else load_encoder(encoder, log, loading)
        model = OWN_VECTORS if loaded is None else describe_model(loaded)
        with progress("encoding" if vectors is None else "indexing", total=source.total) as advance:
            blocks = source.blocks(loaded, vectors, advance)
            index = target.from_blocks(place, blocks, model=model, **chosen, overwrite=overwrite, facts=source.facts)
        index._encoder, index._temporary = loaded, temporary
        return index

    @classmethod
    def load_vectors(
        cls,
        path: Name,
        source: Name,
        *,
        kind: str = "auto",
        storage: str = "float32",
        unique: bool = False,
        id_column: str | None = None,
        overwrite: bool = False,
        milvus: str | None = None,
        milvus_token: str | None = None,
        progress: Progress = silent,
    ) -> Index:
        """Make an index of a parquet file or folder that `encode_file` wrote; no model is loaded."""
        stored = StoredVectors(source)
        target, place = _find(path, milvus, milvus_token)
        chosen: dict[str, Any] = {"kind": kind, "storage": storage, "unique": unique, "id_column": id_column}
        target.check_target(place, overwrite=overwrite, **chosen)
        facts = provenance(data=[stored.data], options=chosen)
        with progress("indexing", total=stored.total) as advance:
            blocks = stored.blocks(advance)
            return target.from_blocks(place, blocks, model=stored.model, **chosen, overwrite=overwrite, facts=facts)

    @classmethod
    def from_blocks(
        cls,
        place: Any,
        blocks: Iterable[Block],
        *,
        model: Mapping[str, Any],
        facts: Mapping[str, Any] | None = None,
        overwrite: bool = False,
        **chosen: Any,
    ) -> Index:
        """Make an index from a stream of blocks with their vectors, whole or not at all.

        `model` says what made the vectors: at least its `name` and `fingerprint`. `facts` are kept in the history;
        they are read after the last block. `chosen` are the options of `build`: kind, storage, unique, id_column.
        """
        if missing := {"name", "fingerprint"} - set(model):
            raise ConfigError(f"expected the model's name and fingerprint, got no {min(missing)}.")
        chosen = CHOSEN | chosen
        cls.check_target(place, overwrite=overwrite, **chosen)
        cls._build(place, blocks, model=model, overwrite=overwrite, facts=facts, **chosen)
        return cls(place)

    @classmethod
    def check_target(
        cls, place: Any, *, kind: str, storage: str, unique: bool, id_column: str | None, overwrite: bool
    ) -> None:
        """Refuse, before any work is done, a place where an index could not be built."""
        writer.check_kind(kind)
        writer.check_storage(storage, kind)
        writer.check_unique(unique, id_column)
        writer.check_folder(Path(place), overwrite=overwrite)

    def add(
        self,
        texts: Texts,
        *,
        vectors: Floats | None = None,
        metadata: Metadata | None = None,
        unique: bool = False,
        columns: str | Sequence[str] | None = None,
        join: str | None = None,
        header: bool | None = None,
        skip_bad_rows: bool = False,
        progress: Progress = silent,
    ) -> Added:
        """Add texts, as for `build`, all or nothing; with `unique`, texts that are there already are skipped.

        In an index with an id column, a text replaces the one that has the same id.
        """
        reading: dict[str, Any] = {"columns": columns, "join": join, "header": header, "skip_bad_rows": skip_bad_rows}
        reading |= {"id_column": self.id_column, "log": self._loading[2]}
        source = read_texts(texts, metadata, **reading, options={"unique": unique})
        encoder = self.encoder if vectors is None else None
        if encoder is not None:  # strictly: an index holds the vectors of one model
            self.check_model(name=encoder.name, fingerprint=encoder.fingerprint)
        with progress("encoding" if vectors is None else "indexing", total=source.total) as advance:
            return self.add_blocks(source.blocks(encoder, vectors, advance), unique=unique, facts=source.facts)

    def add_blocks(
        self, blocks: Iterable[Block], *, unique: bool = False, facts: Mapping[str, Any] | None = None
    ) -> Added:
        """Add a stream of blocks with their vectors, all or nothing."""
        added = writer.add(self.folder, blocks, model=self.model, unique=unique, facts=facts)
        self.refresh()
        return added

    def remove(
        self, *, ids: Sequence[Id] | None = None, texts: Sequence[str] | None = None, where: Where = None
    ) -> int:
        """Remove the rows with these ids, with these texts, or that meet a filter; return how many."""
        if (given := sum(each is not None for each in (ids, texts, where))) != 1:
            raise ConfigError(f"expected one of ids, texts and where to say what to remove, got {given or 'none'}.")
        chosen = parse(where)
        if where is not None and chosen is None:
            raise InputError("expected a condition that says what to remove, got none.")
        return self._remove(ids, texts, chosen)

    def _remove(self, ids: Sequence[Id] | None, texts: Sequence[str] | None, chosen: Filter | None) -> int:
        removed = writer.remove(self.folder, ids, texts, chosen)
        self.refresh()
        return removed

    def compact(self) -> None:
        """Join all segments into one and free the space of removed rows."""
        writer.compact(self.folder)
        self.refresh()

    def refresh(self) -> bool:
        """See what others have changed since the index was opened; return whether there was a change.

        If there was none this costs one look at a file's date. It may be called while other threads search: they
        finish on what they began with.
        """
        with self._refreshing:
            now = stamp(self.folder)
            if now is not None and now == self._stamp:
                return False
            try:
                self._snapshot = open_snapshot(self.folder, self._snapshot.segments)
            except InputError as error:
                if not isinstance(error.__cause__, OSError):  # damaged: not read again before the next change
                    self._stamp = now
                raise
            self._stamp = now
        return True

    def dedupe(self, threshold: float = 0.9, *, output: Name | None = None) -> Duplicates:
        """Find texts that say nearly the same: a cosine of at least `threshold` with a text that is kept.

        `output` is a .txt, .csv, .parquet or .jsonl file for the texts that are kept.
        """
        from twinpass.search.duplicates import find_duplicates

        return find_duplicates(self, threshold, output=output)

    def cluster(
        self, k: int | None = None, *, seed: int = 42, representatives: int = 3, output: Name | None = None
    ) -> Clustering:
        """Sort the texts into k clusters by their vectors' directions; show typical words and texts near each centre.

        Without k, it is the number from 2 to 30 with the highest mean silhouette on a sample.

        `output` is a .csv, .parquet or .jsonl file for every text with its cluster.
        """
        from twinpass.search.clusters import find_clusters

        return find_clusters(self, k, seed=seed, representatives=representatives, output=output)

    @property
    def encoder(self) -> Encoder:
        """The model that made the vectors, loaded when it is first needed; a different one is refused."""
        known = self.model
        if self._encoder is None:
            self._encoder = load_again(known, *self._loading, place=self.place)
        if self._checked != known["fingerprint"]:
            used = self._encoder
            self.check_model(name=used.name, fingerprint=used.fingerprint, exported=used.exported)
            self._checked = known["fingerprint"]
        return self._encoder

    def check_model(self, *, name: str, fingerprint: str, exported: Exported | None = None) -> None:
        """Refuse a model other than the one that made the vectors; queries may use what was `exported` from it."""
        check_model(self.place, self.model, name=name, fingerprint=fingerprint, exported=exported)

    @property
    def manifest(self) -> Manifest:
        """What the index holds."""
        return self._snapshot.manifest

    @property
    def model(self) -> dict[str, Any]:
        """The record of the model that made the vectors: name, fingerprint, pooler, max_tokens ..."""
        return self.manifest.model

    @property
    def dimensions(self) -> int:
        """The length of a vector."""
        return self.manifest.dimensions

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the metadata columns."""
        return self.manifest.columns

    @property
    def id_column(self) -> str | None:
        """The metadata column whose values are the ids; None if the ids are the rows' numbers."""
        return self.manifest.id_column

    @property
    def exact(self) -> bool:
        """Whether every search looks at every vector."""
        return all(part.kind == "exact" for part in self.manifest.parts)

    def __len__(self) -> int:
        return self.manifest.rows - self.manifest.removed_rows

    def __repr__(self) -> str:
        return f"<Index {self.place}: {len(self):,} texts, {self.dimensions} dimensions, {self.model['name']}>"

    def ids(self) -> Any:
        """Return the ids of all rows as an array: their numbers, ascending, or the values of the id column."""
        numbers = self.numbers()
        if self.id_column is None:
            return numbers
        return np.array([entry.id for entry in self.entries_numbered(numbers)], object)

    def vectors(self, ids: Sequence[Id] | Ids | None = None) -> Floats:
        """Return the unit vectors (n, d) of these ids, or of all."""
        return self.vectors_numbered(self.numbers() if ids is None else self._numbers_of(ids))

    def entries(self, ids: Sequence[Id] | Ids) -> list[Hit]:
        """Return texts and metadata of these ids, each with score 1."""
        return self.entries_numbered(self._numbers_of(ids))

    def _numbers_of(self, ids: Sequence[Id] | Ids) -> Any:
        if self.id_column is None:
            return ids
        snapshot = self._snapshot
        return snapshot.ids[snapshot.rows_of(ids)]

    def numbers(self) -> Ids:
        """Return the numbers of all rows, ascending: the order in which they were added; never given twice."""
        return self._snapshot.living_ids

    def vectors_numbered(self, numbers: Sequence[int] | Ids) -> Floats:
        """Return the unit vectors (n, d) of the rows with these numbers."""
        snapshot = self._snapshot
        return snapshot.vectors(snapshot.rows_numbered(numbers))

    def entries_numbered(self, numbers: Sequence[int] | Ids) -> list[Hit]:
        """Return texts and metadata of the rows with these numbers, each with score 1."""
        snapshot = self._snapshot
        return [snapshot.hit(int(row), 1.0) for row in snapshot.rows_numbered(numbers)]

    def nearest(self, vectors: Floats, k: int) -> tuple[Floats, Ids]:
        """Return cosines and numbers (n, at most k) of the nearest rows; a number of -1 means none."""
        snapshot = self._snapshot
        scores, rows = snapshot.nearest(unit(np.asarray(vectors, dtype=np.float32)), k)
        return scores, np.where(rows < 0, -1, snapshot.ids[rows])

    def info(self) -> Info:
        """Return what the index holds and what made it."""
        snapshot = self._snapshot
        living = snapshot.digests[snapshot.alive]
        segments = [{"rows": part.rows, "kind": part.kind, **part.quality} for part in snapshot.manifest.parts]
        return self._info(
            snapshot.manifest, len(living), segments, distinct=len(np.unique(living)), bytes=size(self.folder)
        )

    def _info(self, manifest: Manifest, rows: int, segments: Sequence[Mapping[str, Any]], **more: Any) -> Info:
        names = ("dimensions", "kind", "storage", "id_column", "columns", "model", "history")
        shown = {name: getattr(manifest, name) for name in names}
        return Info(index=str(self.place), rows=rows, removed=manifest.removed_rows, segments=segments, **shown, **more)


def _find(path: Name, milvus: str | None, token: str | None) -> tuple[type[Index], Any]:
    """Return the class of an index, and the place where it is kept."""
    if milvus is None:
        return Index, Path(path)
    from twinpass.search.engines.milvus import Address, MilvusIndex

    return MilvusIndex, Address(milvus, str(path), token)
