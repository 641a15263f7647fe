"""The snapshot: an index as it was at one moment, over all its segments, without the rows that were removed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from twinpass.errors import ConfigError, InputError
from twinpass.search.checksums import damage
from twinpass.search.engines.approximate import EXACT, HNSW_FROM, Approximate
from twinpass.search.engines.exact import Floats, Rows, best, empty, top
from twinpass.search.filters import Filter, check_columns, conditions
from twinpass.search.keywords import Keywords, query_words, saturated, weight
from twinpass.search.manifest import DIGESTS, ENGINE, IDS, KEYS, VECTORS, Manifest, identify, read_manifest
from twinpass.search.matching import Mask, holding
from twinpass.search.results import Hit, Id
from twinpass.search.segment import Digests, Ids, Segment, digest_of

ATTEMPTS = 10  # to read an index that is being changed: each change takes far longer than opening


def read_removed(folder: Path, manifest: Manifest) -> Ids:
    """Return the ids that were removed, after checking the file that lists them."""
    if manifest.removed is None:
        return np.empty(0, np.int64)
    path = folder / manifest.removed
    if manifest.removed_file is not None:
        manifest.removed_file.check(path)
    try:
        removed: Ids = np.load(path, allow_pickle=False)
        if removed.dtype != np.int64 or removed.shape != (manifest.removed_rows,) or (np.diff(removed) <= 0).any():
            raise ValueError(f"it does not hold {manifest.removed_rows:,} ascending ids")
    except FileNotFoundError:
        raise
    except Exception as error:  # numpy parses the header as Python, with any error of its parser
        raise InputError(damage(path, str(error).rstrip("."))) from error
    return removed


class Groups:
    """Rows with equal texts: the first row of each group stands for all of them."""

    def __init__(self, rows: Rows, digests: Digests) -> None:
        self._digests, first, self._counts = np.unique(digests[rows], return_index=True, return_counts=True)
        self.rows = np.sort(rows[first])
        self.trivial = len(first) == len(rows)  # no two texts are equal

    def count(self, digest: Any) -> int:
        """Return how many rows have the text with this digest."""
        return int(self._counts[np.searchsorted(self._digests, digest)])


class Snapshot:
    """An index as it was at one moment; rows are counted through all its segments.

    Segments that an earlier snapshot has open are taken from there, with what they have read.
    """

    def __init__(self, folder: Path, manifest: Manifest, earlier: Sequence[Segment] = ()) -> None:
        self.folder = folder
        self.manifest = manifest
        known = {segment.identity: segment for segment in earlier}
        self.segments = [
            known.get(identify(folder / part.name / VECTORS))
            or Segment(folder / part.name, part, dimensions=manifest.dimensions)
            for part in manifest.parts
        ]
        self.starts: Ids = np.cumsum([0, *(part.rows for part in manifest.parts)])
        self.removed = read_removed(folder, manifest)

    @cached_property
    def ids(self) -> Ids:
        """The number of every row, ascending."""
        for segment in self.segments:
            segment.files[IDS].check()
        return np.concatenate([np.empty(0, np.int64), *(segment.ids for segment in self.segments)])

    @cached_property
    def digests(self) -> Digests:
        """The digest of every row's text."""
        for segment in self.segments:
            segment.files[DIGESTS].check()
        return np.concatenate([np.empty(0, np.uint64), *(segment.digests for segment in self.segments)])

    @cached_property
    def keys(self) -> Digests:
        """The digest of every row's own id, of an index with an id column."""
        for segment in self.segments:
            segment.files[KEYS].check()
        found = [segment.keys for segment in self.segments if segment.keys is not None]
        return np.concatenate([np.empty(0, np.uint64), *found])

    @cached_property
    def alive(self) -> Mask:
        """Which rows are not removed."""
        if not len(self.removed):  # without reading the ids
            return np.ones(self.manifest.rows, bool)
        return ~np.isin(self.ids, self.removed, assume_unique=True)

    @property
    def living_ids(self) -> Ids:
        """The numbers of the rows that are not removed, ascending."""
        return self.ids[self.alive]

    def locate(self, row: int) -> tuple[Segment, int]:
        """Return the segment of a row and its position there."""
        place = int(np.searchsorted(self.starts, row, side="right")) - 1
        return self.segments[place], row - int(self.starts[place])

    def hit(self, row: int, score: float, copies: int = 1) -> Hit:
        """Return a row with its text and metadata."""
        segment, place = self.locate(row)
        segment.files[IDS].check(8 * place, 8 * place + 8)
        metadata, column = segment.metadata(place), self.manifest.id_column
        return Hit(
            int(segment.ids[place]) if column is None else metadata.pop(column, None),
            score,
            segment.text(place),
            metadata,
            copies,
        )

    def rows_of(self, ids: Sequence[Id] | Ids) -> Rows:
        """Return the rows that have these ids, or say which id is missing."""
        column = self.manifest.id_column
        if column is None:
            return self.rows_numbered(ids)
        digests = digest_of(map(str, ids))
        rows = np.flatnonzero(np.isin(self.keys, digests) & self.alive)
        known = dict(zip(self.keys[rows].tolist(), rows.tolist(), strict=True))
        found = [known.get(digest, -1) for digest in digests.tolist()]
        for row, each in zip(found, ids, strict=True):
            if row < 0 or str(self.hit(row, 1.0).id) != str(each):
                raise InputError(f"{self.folder} has no row with the id {each} in the column {column}.")
        return np.array(found, np.int64)

    def rows_numbered(self, numbers: Sequence[Any] | Ids) -> Rows:
        """Return the rows that have these numbers, or say which is missing."""
        try:
            given = np.asarray(numbers, dtype=np.int64).reshape(-1)
        except (OverflowError, ValueError):
            odd = next(each for each in numbers if not isinstance(each, int) or abs(each) >= 2**63)
            raise InputError(f"{self.folder} has no row with the id {odd}.") from None
        rows = np.searchsorted(self.ids, given)
        found = rows < len(self.ids)
        found[found] = (self.ids[rows[found]] == given[found]) & self.alive[rows[found]]
        if not found.all():
            raise InputError(f"{self.folder} has no row with the id {given[~found][0]}.")
        return rows

    def vectors(self, rows: Rows) -> Floats:
        """Return the unit vectors (n, d) of some rows."""
        vectors = np.empty((len(rows), self.manifest.dimensions), np.float32)
        for segment, start in zip(self.segments, self.starts, strict=False):
            here = (rows >= start) & (rows < start + len(segment))
            segment.check_vectors(rows[here] - start)
            vectors[here] = segment.vectors[rows[here] - start]
        return vectors

    def meeting(self, given: Filter) -> Mask:
        """Return which rows meet a filter and are not removed."""
        check_columns(given, self.manifest.columns)
        names = {condition.column for condition in conditions(given)}
        masks = [holding(given, segment.columns(names)) for segment in self.segments]
        mask: Mask = self.alive & np.concatenate([np.empty(0, bool), *masks])
        return mask

    @cached_property
    def groups(self) -> Groups:
        """The groups of equal texts among all rows."""
        return self.groups_of(np.flatnonzero(self.alive))

    def groups_of(self, rows: Rows) -> Groups:
        """Return the groups of equal texts among some rows."""
        return Groups(rows, self.digests)

    @cached_property
    def lengths(self) -> Rows:
        """Number of words of every row."""
        return np.concatenate([np.empty(0, np.int64), *(words.lengths for words in self._keywords)])

    @cached_property
    def average_length(self) -> float:
        """Mean number of words of the rows that are not removed."""
        return float(self.lengths[self.alive].mean()) if self.alive.any() else 0.0

    @property
    def _keywords(self) -> list[Keywords]:
        found = [segment.keywords for segment in self.segments if segment.keywords is not None]
        if len(found) < len(self.segments):
            raise ConfigError(  # clients of a service see it, too: it names no folder
                "this index cannot be searched by keywords: an earlier version wrote it. "
                "To add what is missing: twinpass index compact INDEX"
            )
        return found

    def _postings(self, word: str) -> tuple[Rows, Rows]:
        """Return the rows that have a word and are not removed, and how often each has it."""
        rows, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for words, start in zip(self._keywords, self.starts.tolist(), strict=False):
            found, times = words.postings(word)
            living = self.alive[found + start]
            rows.append(found[living] + start)
            counts.append(times[living])
        return np.concatenate(rows), np.concatenate(counts)

    def best_by_words(self, query: str, k: int, allowed: Mask | None = None) -> tuple[Floats, Rows]:
        """Return scores and rows (at most k) of the texts that have words of a query, best first, by BM25.

        Its statistics are those of all rows that are not removed, whatever is allowed.
        """
        texts, scores = int(self.alive.sum()), np.zeros(self.manifest.rows)
        for word, times in query_words(query).items():
            rows, counts = self._postings(word)
            each = saturated(counts, self.lengths[rows], self.average_length)
            scores[rows] += times * weight(texts, len(rows)) * each
        if allowed is not None:
            scores[~allowed] = 0
        rows = np.flatnonzero(scores)
        if len(rows) > k:  # those of equal scores stay, so that the order below decides
            rows = rows[scores[rows] >= np.partition(scores[rows], -k)[-k]]
        rows = rows[np.argsort(-scores[rows], kind="stable")][:k]
        return scores[rows].astype(np.float32), rows

    def nearest(self, queries: Floats, k: int, allowed: Mask | None = None) -> tuple[Floats, Rows]:
        """Return cosines and rows (n, at most k) of the nearest to unit vectors; a row of -1 means none."""
        if allowed is None and len(self.removed):
            allowed = self.alive
        found = empty(len(queries))
        for place in range(len(self.segments)):
            start, end = self.starts[place : place + 2]
            scores, rows = self._search(place, queries, k, None if allowed is None else allowed[start:end])
            found = best(k, found, (scores, np.where(rows < 0, rows, rows + start)))
        return found

    def _search(self, place: int, queries: Floats, k: int, allowed: Mask | None) -> tuple[Floats, Rows]:
        """Search one segment: exactly if it is small, or if few of its rows are allowed."""
        segment = self.segments[place]
        if allowed is not None and allowed.all():
            allowed = None
        few = allowed is not None and allowed.sum() < min(HNSW_FROM, len(allowed) // 2)
        engine = None if few or self.manifest.parts[place].kind == EXACT else self._engine(place)
        if engine is None:
            chosen = None if allowed is None else np.flatnonzero(allowed)
            segment.check_vectors(chosen)
            return top(queries, segment.vectors, k=k, chosen=chosen)
        scores, rows = engine.top(queries, k=k, allowed=allowed)
        segment.check_vectors(rows[rows >= 0])
        return scores, rows

    def _engine(self, place: int) -> Approximate | None:
        """Read what an approximate search needs; None if a writer deleted it while we hold the vectors open."""
        part, segment = self.manifest.parts[place], self.segments[place]
        if segment.engine is None:
            path = segment.folder / ENGINE
            try:
                if part.files:
                    part.files[ENGINE].check(path)  # faiss may crash on a damaged file
                segment.engine = Approximate.load(path, part.kind, segment.vectors, int(part.quality["effort"]))
            except FileNotFoundError:
                return None
            except (RuntimeError, ValueError, KeyError) as error:  # from faiss, with details about its own source
                if not path.exists():
                    return None
                raise InputError(damage(path, "faiss cannot read it")) from error
        return segment.engine


def open_snapshot(folder: Path, earlier: Sequence[Segment] = ()) -> Snapshot:
    """Open an index as it is now; if a writer replaces its files meanwhile, try again."""
    for _ in range(ATTEMPTS):
        manifest = read_manifest(folder)
        try:
            return Snapshot(folder, manifest, earlier)
        except FileNotFoundError as error:
            missing = error
    raise InputError(damage(Path(missing.filename or folder), "it is missing"))
