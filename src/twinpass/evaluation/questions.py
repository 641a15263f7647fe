"""Retrieval questions: queries, documents, and which documents answer which query."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from twinpass.errors import InputError


class Question(NamedTuple):
    """Queries, documents, and for each query the rows of its relevant documents."""

    queries: list[str]
    documents: list[str]
    relevant: list[list[int]]


def pool_pairs(pairs: Sequence[tuple[str, str]]) -> Question:
    """All distinct second texts are the documents; a query that comes twice has two relevant ones."""
    documents = {text: row for row, text in enumerate(dict.fromkeys(text for _, text in pairs))}
    relevant: dict[str, list[int]] = {}
    for query, document in pairs:
        relevant.setdefault(query, []).append(documents[document])
    return Question(list(relevant), list(documents), list(relevant.values()))


def read_folder(folder: Path) -> Question:
    """Read queries.jsonl and corpus.jsonl (_id, text, perhaps title) and qrels/test.tsv (query, document, score)."""
    documents = {entry["_id"]: _titled(entry) for entry in _entries(folder / "corpus.jsonl")}
    queries = {entry["_id"]: str(entry["text"]) for entry in _entries(folder / "queries.jsonl")}
    rows = {name: row for row, name in enumerate(documents)}
    relevant: dict[str, list[int]] = {}
    for place, fields in _judgements(folder / "qrels" / "test.tsv"):
        query, document, score = fields
        if query not in queries or document not in rows:
            raise InputError(f"{place}: no query {query!r} or no document {document!r} in {folder}.")
        if float(score) > 0:
            relevant.setdefault(query, []).append(rows[document])
    return Question([queries[name] for name in relevant], list(documents.values()), list(relevant.values()))


def _titled(entry: Mapping[str, Any]) -> str:
    return f"{entry.get('title') or ''} {entry['text']}".strip()


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in _numbered(path):
        try:
            entry = json.loads(line)
            entry["_id"], entry["text"]
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{path}:{number}: a JSON object with _id and text is wanted.") from None
        yield entry


def _judgements(path: Path) -> Iterator[tuple[str, list[str]]]:
    for number, line in _numbered(path):
        fields = line.rstrip("\n").split("\t")
        if number == 1 and fields[-1].strip() == "score":
            continue
        if len(fields) != 3 or not fields[2].strip().lstrip("-").isdigit():
            raise InputError(f"{path}:{number}: query, document and a whole number, parted by tabs, are wanted.")
        yield f"{path}:{number}", fields


def _numbered(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8") as stream:
            yield from enumerate(stream, start=1)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}.") from error
