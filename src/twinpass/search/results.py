"""What an index returns: hits, answers, what was added, and what it holds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from twinpass.display import Displayed, Grid
from twinpass.files import plain
from twinpass.text.tables import check_table, joined, json_line, write_lines, write_table


class Hit(NamedTuple):
    """A text of an index."""

    id: int
    text: str
    score: float  # cosine with the query
    metadata: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the hit as JSON can hold it."""
        document: dict[str, Any] = plain({**self._asdict(), "score": round(self.score, 6)})
        return document


@dataclass(frozen=True, repr=False)
class Hits(Displayed):
    """The answer to one query: a sequence of hits, best first."""

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
        found = [hit.to_dict() for hit in self.hits]
        return [{**hit["metadata"], **{name: hit[name] for name in ("id", "score", "text")}} for hit in found]

    def grids(self) -> Sequence[Grid]:
        """Return the table of hits."""
        title = "" if self.query is None else self.query
        if not self.hits:
            return [Grid(title, (), (), notes=("nothing was found",))]
        columns = list(dict.fromkeys(name for hit in self.hits for name in hit.metadata))
        rows = [
            (f"{hit.score:.4f}", str(hit.id), hit.text, *(str(hit.metadata.get(name, "")) for name in columns))
            for hit in self.hits
        ]
        return [Grid(title, ("score", "id", "text", *columns), rows, words=("text", *columns))]


@dataclass(frozen=True, repr=False)
class Answers(Displayed):
    """The answers to several queries, in their order: a sequence of Hits."""

    answers: Sequence[Hits]

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, place: int) -> Hits:
        return self.answers[place]

    def __iter__(self) -> Iterator[Hits]:
        return iter(self.answers)

    def to_dict(self) -> dict[str, Any]:
        """Return all answers as JSON can hold them."""
        return {"answers": [answer.to_dict() for answer in self.answers]}

    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary per hit, with its query."""
        return [{"query": answer.query, **hit} for answer in self.answers for hit in answer.records()]

    def grids(self) -> Sequence[Grid]:
        """Return a table for each query."""
        return [grid for answer in self.answers for grid in answer.grids()]


def write_answers(output: str | os.PathLike[str], answers: Iterable[Hits]) -> int:
    """Write answers as they come; return how many. A .jsonl has a line for each query, other tables a row for each hit.

    The columns of such a row are query, rank (from 1), id, score and text, then the metadata.
    """
    check_table(output)
    if Path(output).suffix == ".jsonl":
        return write_lines(output, (json_line(hits.to_dict()) for hits in answers))
    count = 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal count
        for count, hits in enumerate(answers, start=1):  # noqa: B007 - the last count is the result
            for rank, hit in enumerate(hits, start=1):
                found = hit.to_dict()
                metadata = found.pop("metadata")
                ours = {"query": hits.query, "rank": rank, **{name: found[name] for name in ("id", "score", "text")}}
                yield joined(ours, metadata)

    write_table(output, rows(), columns=("query", "rank", "id", "score", "text"))
    return count


@dataclass(frozen=True, repr=False)
class Added(Displayed):
    """What was added to an index; with `unique`, texts that were there already are skipped."""

    added: int
    skipped: int = 0
    provenance: Mapping[str, Any] = field(default_factory=dict)  # also truncated and bad_rows, if texts were encoded

    def grids(self) -> Sequence[Grid]:
        """Return the counts as one row."""
        columns = ("added", "skipped", "truncated", "bad_rows")
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
            ("kind", self.kind),
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
    return f"{segment['kind']}, recall@10 {segment['recall_at_10']:.3f} on {segment['sample']} of its texts"
