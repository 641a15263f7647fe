"""One reader per file format; each turns a source into a Table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from twinpass.registry import Registry
from twinpass.text.parquet import ParquetTable
from twinpass.text.rows import SAMPLE, BadRows, Record, Table, without_blanks
from twinpass.text.separated import SeparatedTable
from twinpass.text.streams import Source, read_lines

Reader = Callable[[Source, BadRows, "bool | None"], Table]
READERS: Registry[Reader] = Registry("file format")


class TextTable:
    """A file with one sentence a line."""

    names: tuple[str, ...] = ("text",)
    sample: Sequence[Sequence[object]] = (("text",),)  # every line is text: nothing to recognise

    def __init__(self, source: Source) -> None:
        self.source = source
        self.name = source.label

    def rows(self, wanted: Sequence[int], bad: BadRows) -> Iterator[Record]:
        """Yield every line without its line end; `wanted` can only be the one column there is."""
        return without_blanks(self.name, self._records(bad), bad)

    def _records(self, bad: BadRows) -> Iterator[Record]:
        for number, text, fault, detail in read_lines(self.source):
            if fault:
                bad.report(f"{self.name}:{number}", fault, detail)
            else:
                yield number, (text.rstrip("\r\n"),) if text and not text.isspace() else ()


class JsonTable:
    """A file with one JSON object a line; the first rows' keys are its columns."""

    def __init__(self, source: Source, bad: BadRows) -> None:
        self.source = source
        self.name = source.label
        first = [values for _, values in islice(self._objects(bad), SAMPLE) if values]
        self.names = tuple(dict.fromkeys(key for document in first for key in document))
        self.sample = [[document.get(name) for name in self.names] for document in first]

    def rows(self, wanted: Sequence[int], bad: BadRows) -> Iterator[Record]:
        """Yield the wanted keys' values; a key that an object lacks gives None."""
        keys = [self.names[at] for at in wanted]
        records: Iterator[Record] = (
            (number, [document.get(key) for key in keys] if document else ()) for number, document in self._objects(bad)
        )
        return without_blanks(self.name, records, bad)

    def rows_with_others(self, wanted: Sequence[int], bad: BadRows) -> Iterator[Record]:
        """Yield the wanted keys' values and, as the last value, the whole object: its keys may be in no other."""
        keys = [self.names[at] for at in wanted]
        records: Iterator[Record] = (
            (number, [*(document.get(key) for key in keys), document] if document else ())
            for number, document in self._objects(bad)
        )
        return without_blanks(self.name, records, bad)

    def _objects(self, bad: BadRows) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, text, fault, detail in read_lines(self.source):
            if not fault and not text.strip():
                yield number, {}
                continue
            document, reason = (None, fault) if fault else _parse_object(text)
            if document is None:
                bad.report(f"{self.name}:{number}", reason, detail)
            else:
                yield number, document


def _parse_object(text: str) -> tuple[dict[str, Any] | None, str]:
    """Return a line's JSON object, or None and what is wrong."""
    try:
        document = json.loads(text)
        if "\\u" in text:
            json.dumps(document, ensure_ascii=False).encode()  # refuses half a surrogate pair
    except (ValueError, RecursionError):
        return None, "not a JSON document"
    if not isinstance(document, dict) or not document:
        return None, "not a JSON object with columns as keys"
    return document, ""


def _text(source: Source, bad: BadRows, header: bool | None) -> Table:
    return TextTable(source)


def _json(source: Source, bad: BadRows, header: bool | None) -> Table:
    return JsonTable(source, bad)


def _parquet(source: Source, bad: BadRows, header: bool | None) -> Table:
    return ParquetTable(source)


READERS.add("txt", _text)
READERS.add("csv", SeparatedTable)
READERS.add("tsv", SeparatedTable)
READERS.add("jsonl", _json)
READERS.add("parquet", _parquet)
