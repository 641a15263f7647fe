"""What an index returns: hits, results, what was added, and what it holds.

One scheme everywhere. A hit is {id, score, text, metadata, copies}; the hits of a query are {query, hits}; the results
of several queries are {results: [{query, hits}]}. As one row, a hit is id, score, text, copies and then the metadata;
of several queries, query and rank come first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from twinpass.display import Displayed, Grid
from twinpass.files import plain
from twinpass.text.tables import check_table, joined, json_line, write_lines, write_table

Id = int | str  # the number of a row, or the value of its id column


class Hit(NamedTuple):
    """A text of an index."""

    id: Id
    score: float  # cosine with the query; BM25 or fused ranks, as the mode of the search says
    text: str
    metadata: dict[str, Any]
    copies: int = 1  # texts that are equal to this one and meet the filter, itself included

    def to_dict(self) -> dict[str, Any]:
        """Return the hit as JSON can hold it."""
        document: dict[str, Any] = plain({**self._asdict(), "score": round(self.score, 6)})
        return document

    def row(self) -> dict[str, Any]:
        """Return id, score, text and copies, then the metadata; a metadata column with such a name gets a prefix."""
        ours = self.to_dict()
        return joined(ours, ours.pop("metadata"))


@dataclass(frozen=True, repr=False)
class Hits(Displayed):
    """What was found for one query: a sequence of hits, best first."""

    query: str | None  # None for a vector
    hits: Sequence[Hit]

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, place: int) -> Hit:
        return self.hits[place]

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def to_dict(self) -> dict[str, Any]:
        """Return query and hits as JSON can hold them."""
        return {"query": self.query, "hits": [hit.to_dict() for hit in self.hits]}

    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary per hit, with its metadata."""
        return [hit.row() for hit in self.hits]

    def grids(self) -> Sequence[Grid]:
        """Return the table of hits."""
        title = "" if self.query is None else self.query
        if not self.hits:
            return [Grid(title, (), (), notes=("nothing was found",))]
        records = self.records()
        alone = all(hit.copies == 1 for hit in self.hits)
        names = dict.fromkeys(name for record in records for name in record)
        columns = [name for name in names if not (alone and name == "copies")]
        rows = [[_shown(name, record.get(name, "")) for name in columns] for record in records]
        return [Grid(title, columns, rows, words=[name for name in columns[2:] if name != "copies"])]


def _shown(name: str, value: Any) -> str:
    return f"{value:.4f}" if name == "score" else str(value)


@dataclass(frozen=True, repr=False)
class Results(Displayed):
    """What was found for several queries, in their order: a sequence of Hits."""

    results: Sequence[Hits]

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, place: int) -> Hits:
        return self.results[place]

    def __iter__(self) -> Iterator[Hits]:
        return iter(self.results)

    def to_dict(self) -> dict[str, Any]:
        """Return all results as JSON can hold them."""
        return {"results": [hits.to_dict() for hits in self.results]}

    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary per hit, with its query and its rank from 1."""
        return [row for hits in self.results for row in _ranked(hits)]

    def grids(self) -> Sequence[Grid]:
        """Return a table for each query."""
        return [grid for hits in self.results for grid in hits.grids()]


def _ranked(hits: Hits) -> Iterator[dict[str, Any]]:
    """Yield a row for each hit: query, rank, id, score, text and copies, then the metadata."""
    for rank, hit in enumerate(hits, start=1):
        ours = {"query": hits.query, "rank": rank, **hit.to_dict()}
        yield joined(ours, ours.pop("metadata"))


def write_results(output: str | os.PathLike[str], results: Iterable[Hits]) -> int:
    """Write results as they come; return how many. A .jsonl has a line for each query, other tables a row for each hit.

    The columns of such a row are query, rank (from 1), id, score, text and copies, then the metadata.
    """
    check_table(output)
    if Path(output).suffix == ".jsonl":
        return write_lines(output, (json_line(hits.to_dict()) for hits in results))
    count = 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal count
        for count, hits in enumerate(results, start=1):  # noqa: B007 - the last count is the result
            yield from _ranked(hits)

    write_table(output, rows(), columns=("query", "rank", "id", "score", "text", "copies"))
    return count


@dataclass(frozen=True, repr=False)
class Added(Displayed):
    """What was added to an index; with `unique`, texts that were there already are skipped.

    With an id column, rows whose ids were there already are replaced.
    """

    added: int
    skipped: int = 0
    replaced: int = 0
    provenance: Mapping[str, Any] = field(default_factory=dict)  # also truncated and bad_rows, if texts were encoded

    def grids(self) -> Sequence[Grid]:
        """Return the counts as one row."""
        columns = ("added", "skipped", "replaced", "truncated", "bad_rows")
        found = self.to_dict()
        return [Grid("", columns, [[f"{found.get(name, 0):,}" for name in columns]])]


@dataclass(frozen=True, repr=False, kw_only=True)
class Info(Displayed):
    """What an index holds and what made it; `info["rows"]` works like `info.rows`."""

    index: str
    rows: int
    distinct: int | None = None  # texts; not counted on Milvus
    removed: int  # rows that are removed and still take space
    dimensions: int
    kind: str
    storage: str = "float32"  # of vectors in memory
    id_column: str | None = None
    columns: Sequence[str]
    model: Mapping[str, Any]
    segments: Sequence[Mapping[str, Any]]
    history: Sequence[Mapping[str, Any]]
    bytes: int | None = None  # of a folder
    server: str | None = None  # the version of Milvus
    unfinished_addition: bool | None = None  # on Milvus: rows of a stopped addition wait to be replaced

    def __getitem__(self, name: str) -> Any:
        return self.to_dict()[name]

    def to_dict(self) -> dict[str, Any]:
        """Return all that applies to this index as JSON can hold it."""
        return {name: value for name, value in super().to_dict().items() if value is not None}

    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary."""
        return [self.to_dict()]

    def grids(self) -> Sequence[Grid]:
        """Return names and values, a row each."""
        latest = self.history[-1]
        counted = f"{self.rows:,}" + ("" if self.distinct is None else f" ({self.distinct:,} distinct)")
        size = ("on disk", f"{(self.bytes or 0) / 1e6:,.1f} MB") if self.server is None else ("Milvus", self.server)
        rows = [
            ("texts", f"{counted}, {self.removed:,} removed"),
            ("model", f"{self.model['name']} ({self.model['fingerprint'][:12]}), {self.dimensions} dimensions"),
            ("columns", ", ".join(self.columns) or "none"),
            ("ids", "row numbers" if self.id_column is None else f"the column {self.id_column}"),
            ("kind", self.kind if self.storage == "float32" else f"{self.kind}, vectors in {self.storage}"),
            size,
            ("last change", f"{latest['what']} of {latest['rows']:,} texts, {latest['when']}"),
        ]
        for number, segment in enumerate(self.segments, start=1):
            rows.append((f"segment {number}", f"{segment['rows']:,} texts, {describe_search(segment)}"))
        return [Grid("", ("index", self.index), rows, words=(self.index,))]


def describe_search(segment: Mapping[str, Any]) -> str:
    """Say how a segment is searched."""
    if segment["kind"] == "exact":
        return "searched exactly"
    if "recall_at_10" not in segment:  # Milvus built it, and keeps nothing exact to compare with
        return f"{segment['kind']}, recall not measured"
    found = f"{segment['kind']}, recall@10 {segment['recall_at_10']:.3f} on {segment['sample']} of its texts"
    if "memory" not in segment:  # an earlier version wrote it
        return found
    sizes = (f"{segment[name] / 1e6:,.1f} MB" for name in ("memory", "memory_float32"))
    return f"{found}, {next(sizes)} in memory (float32: {next(sizes)})"
