"""Rows to a file that its suffix describes: .csv, .parquet or .jsonl, as a stream, whole or not at all."""

from __future__ import annotations

import csv
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from twinpass.errors import OutputError
from twinpass.files import check_writable, plain, writing

Name = str | os.PathLike[str]
Row = dict[str, Any]

PREFIX = "source_"  # for a column of the user that has the name of one of ours
BATCH = 4_096  # rows in one row group of a parquet file
# Which parquet type holds every one of these kinds of values without loss; all other mixtures become text.
TYPES = (({"bool"}, "bool"), ({"int", "long"}, "int64"), ({"int", "float"}, "float64"))


def check_table(output: Name, *, also: Sequence[str] = ()) -> None:
    """Refuse, before any work is done, a file of another suffix, or that could not be written later."""
    known = [*also, *_WRITERS, ".jsonl"]
    if Path(output).suffix not in known:
        listed = f"{', '.join(known[:-1])} or {known[-1]}"
        raise OutputError(f"cannot write {output}: expected a name that ends in {listed}.")
    check_writable(output)


def write_table(output: Name, rows: Iterable[Mapping[str, Any]], *, columns: Sequence[str]) -> int:
    """Write rows to a .csv, .parquet or .jsonl file; return how many.

    `columns` come first, even if there is no row; further names follow as they appear. The rows are kept in a
    temporary file beside the output until all names and types are known.
    """
    path = Path(output)
    check_table(path)
    if path.suffix == ".jsonl":
        return write_lines(path, map(json_line, rows))
    kinds: dict[str, set[str]] = {name: set() for name in columns}
    count = 0
    with writing(path) as aside, tempfile.TemporaryFile("w+", encoding="utf-8", dir=path.parent) as kept:
        for count, row in enumerate(rows, start=1):  # noqa: B007 - the last count is the result
            values = plain(row)
            for name, value in values.items():
                kinds.setdefault(name, set()).add(kind_of(value))
            kept.write(json.dumps(values, default=str) + "\n")
        kept.seek(0)
        _WRITERS[path.suffix](aside, map(json.loads, kept), {name: type_of(found) for name, found in kinds.items()})
    return count


def joined(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Row:
    """Return one row of our columns and the user's; one of the same name as ours gets a prefix."""
    row = dict(ours)
    for name, value in theirs.items():
        free = name
        while free in ours or (free != name and free in theirs):
            free = PREFIX + free
        row[free] = value
    return row


def json_line(document: Mapping[str, Any]) -> str:
    """Return a document as one line of JSON."""
    return json.dumps(plain(document), ensure_ascii=False, default=_written)


def _written(value: Any) -> str:
    """Return what JSON has no type for as text, such as a date."""
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def write_lines(output: Name, lines: Iterable[str]) -> int:
    """Write lines to a file, whole or not at all; return how many."""
    count = 0
    with writing(output) as aside, aside.open("w", encoding="utf-8") as stream:
        for count, line in enumerate(lines, start=1):  # noqa: B007 - the last count is the result
            stream.write(line + "\n")
    return count


def kind_of(value: object) -> str:
    """Return what a value is, as far as the type of a column depends on it."""
    if type(value) is not int:
        return type(value).__name__
    return "int" if abs(value) <= 2**53 else "long" if -(2**63) <= value < 2**63 else "huge"


def type_of(kinds: set[str], types: Sequence[tuple[set[str], str]] = TYPES) -> str:
    """Return the type of a column with these kinds of values; None is a value of every type."""
    found = kinds - {"NoneType"}
    return next((alias for fitting, alias in types if found and found <= fitting), "string")


def _text(value: Any) -> str | None:
    """Return a value as text: what is not text as JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _write_csv(path: Path, rows: Iterator[Row], types: Mapping[str, str]) -> None:
    """Write comma-separated values with a header; a missing value is empty."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(types)
        for row in rows:
            writer.writerow([_text(row.get(name)) for name in types])


def _write_parquet(path: Path, rows: Iterator[Row], types: Mapping[str, str]) -> None:
    """Write columns of the type that holds all their values."""
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in types.items()])
    convert: dict[str, Callable[[Any], Any]] = {"string": _text, "float64": lambda value: value and float(value)}
    # The file is opened here, so that a full disk raises the system's own error.
    with path.open("wb") as stream, parquet.ParquetWriter(stream, schema) as writer:
        while batch := list(islice(rows, BATCH)):
            values = {
                name: [convert.get(kind, lambda value: value)(row.get(name)) for row in batch]
                for name, kind in types.items()
            }
            writer.write_table(pa.Table.from_pydict(values, schema=schema))


_WRITERS: dict[str, Callable[[Path, Iterator[Row], Mapping[str, str]], None]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}
