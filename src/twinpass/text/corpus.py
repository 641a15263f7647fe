"""Reading sentences: files of every format, folders, standard input, the hub and the built-in corpus."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from twinpass.errors import ConfigError, InputError
from twinpass.text.columns import Choice, choose, to_number
from twinpass.text.formats import READERS, HubTable, JsonTable
from twinpass.text.rows import BadRows, Row, Table
from twinpass.text.sources import MAX_LINE_BYTES, find_sources

__all__ = ["Corpus", "Row", "Survey", "open_corpus"]


def open_corpus(
    source: str | os.PathLike[str],
    *,
    columns: str | Sequence[str] | None = None,
    score: str | None = None,
    skip_bad_rows: bool = False,
    header: bool | None = None,
    max_line_bytes: int = MAX_LINE_BYTES,
) -> Corpus:
    """Open a file, folder, pattern, `-`, `docs:`, `docs-pairs:` or `hf:owner/name`; it has at least one row.

    Columns are names or positions counted from 0, as a list or comma-separated; by default known names are looked for.
    A bad row raises InputError unless `skip_bad_rows`; a line or text of more than `max_line_bytes` is one. `header`
    says whether a table's first row names its columns; by default its content decides.
    """
    if max_line_bytes < 1:
        raise ConfigError(f"max_line_bytes is {max_line_bytes}; expected at least 1.")
    source = os.fspath(source)
    if isinstance(columns, str):
        columns = [name.strip() for name in columns.split(",")]
    named = any(not name.isdecimal() for name in [*(columns or ()), *([] if score is None else [score])])
    bad, header = BadRows(skip=skip_bad_rows), True if header is None and named else header
    tables = _open_tables(source, bad, header, max_line_bytes)
    parts = [_Part(table, choose(table, columns=columns, score=score)) for table in tables if table.names]
    _check_alike(parts)
    corpus = Corpus(source, parts, skip_bad_rows=skip_bad_rows, max_line_bytes=max_line_bytes)
    if not parts or next(iter(corpus), None) is None:
        raise InputError(f"{source} is empty: it has no row to read{' that is not bad' * skip_bad_rows}.")
    return corpus


class _Part(NamedTuple):
    table: Table
    choice: Choice


class Survey(NamedTuple):
    """What one pass over a corpus finds: its rows, its texts, and the SHA-256 of their content."""

    rows: int
    texts: int
    fingerprint: str


class Corpus:
    """Rows of text that can be read again and again, each time as a stream in constant memory."""

    def __init__(
        self, source: str, parts: Sequence[_Part], *, skip_bad_rows: bool = False, max_line_bytes: int = MAX_LINE_BYTES
    ) -> None:
        self.source = source
        self.bad_reasons: Mapping[str, int] = {}
        self._parts = parts
        self._skip_bad_rows = skip_bad_rows
        self._max_text_bytes = max_line_bytes

    def __repr__(self) -> str:
        return f"Corpus({self.source!r}, columns={self.columns}, scored={self.scored})"

    @property
    def width(self) -> int:
        """Number of text columns."""
        return len(self._parts[0].choice.texts)

    @property
    def scored(self) -> bool:
        """Whether every row has a score."""
        return self._parts[0].choice.score is not None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the text columns in the first file, positions if it has no names."""
        table, choice = self._parts[0]
        return tuple(table.names[at] for at in choice.texts)

    @property
    def bad_rows(self) -> int:
        """Number of rows that the last full pass skipped; `bad_reasons` counts them by reason."""
        return sum(self.bad_reasons.values())

    def __iter__(self) -> Iterator[Row]:
        for table, line, texts, score, _ in self._pass():
            yield Row(texts, score, f"{table}:{line}")

    def texts(self) -> Iterator[str]:
        """Yield every text column of every row, row by row."""
        for _, _, texts, _, _ in self._pass():
            yield from texts

    def records(self) -> Iterator[tuple[tuple[str, ...], dict[str, object]]]:
        """Yield every row's texts, and the values of its other columns by name, without missing ones."""
        for _, _, texts, _, others in self._pass(others=True):
            yield texts, others

    def fingerprint(self) -> str:
        """Return the SHA-256 of the rows' content; file names, compression and format do not matter."""
        return self.survey().fingerprint

    def survey(self) -> Survey:
        """Count and fingerprint the content in one pass; a bad row is found here, before any work is done."""
        digest = hashlib.sha256()
        rows = 0
        for _, _, texts, score, _ in self._pass():
            rows += 1
            for text in texts:
                content = text.encode()
                digest.update(b"%d:%b" % (len(content), content))  # lengths keep ("ab", "c") from being ("a", "bc")
            digest.update(f"{score!r}\n".encode())
        return Survey(rows, rows * self.width, digest.hexdigest())

    def _pass(
        self, *, others: bool = False
    ) -> Iterator[tuple[str, int, tuple[str, ...], float | None, dict[str, object]]]:
        """Yield (table, line, texts, score, other values by name) of every good row."""
        bad = BadRows(skip=self._skip_bad_rows)
        for table, choice in self._parts:
            name, count, scored = table.name, len(choice.texts), choice.score is not None
            rest = _other_columns(table, choice) if others else []
            for line, values in table.rows((*choice.wanted, *rest), bad):
                texts = tuple(values[:count])
                score = to_number(values[count]) if scored else None
                fault = _fault(texts, table, choice, self._max_text_bytes)
                if scored and score is None and not fault:
                    column = table.names[cast(int, choice.score)]
                    message = f"expected a finite number in column {column!r}, got {values[count]!r}"
                    fault = ("score is not a number", message)
                if fault:
                    bad.report(f"{name}:{line}", *fault)
                    continue
                named = _by_name(table, choice, rest, values[count + scored :]) if others else {}
                yield name, line, texts, score, named  # type: ignore[misc]
        self.bad_reasons = dict(bad.reasons)


def _other_columns(table: Table, choice: Choice) -> list[int]:
    if isinstance(table, JsonTable):
        return [len(table.names)]  # the whole object: a late row may have keys that the first rows lack
    return [at for at in range(len(table.names)) if at not in choice.texts]


def _by_name(table: Table, choice: Choice, columns: list[int], values: Sequence[object]) -> dict[str, object]:
    """Return a row's values in columns other than the texts, without missing ones."""
    if isinstance(table, JsonTable):
        texts = {table.names[at] for at in choice.texts}
        document = cast("dict[str, object]", values[0])
        return {name: value for name, value in document.items() if value is not None and name not in texts}
    return {table.names[at]: value for at, value in zip(columns, values, strict=True) if value is not None}


def _fault(texts: tuple[object, ...], table: Table, choice: Choice, most: int) -> tuple[str, str] | None:
    """Return the reason and the message if a row's texts are bad."""
    for at, text in enumerate(texts):
        if isinstance(text, str) and text and not text.isspace():
            if 4 * len(text) > most and len(text.encode()) > most:  # of a format without lines, such as parquet
                return "text too long", f"expected a text of at most {most:,} bytes (max_line_bytes), got more"
            continue
        expected = f"expected text in column {table.names[choice.texts[at]]!r}, got"
        if text is None or isinstance(text, str):
            return "empty field", f"{expected} {'no value' if text is None else 'an empty field'}"
        return "not a text", f"{expected} {text!r:.40} of type {type(text).__name__}"
    return None


def _open_tables(source: str, bad: BadRows, header: bool | None, max_line_bytes: int) -> list[Table]:
    if source.startswith(("docs:", "docs-pairs:")):
        from twinpass.text.docs.docstrings import DocsTable

        return [DocsTable(source)]
    if source.startswith("hf:"):
        return [HubTable(source.removeprefix("hf:"))]
    found = find_sources(source, max_line_bytes=max_line_bytes)
    return [READERS[file.format](file, bad, header) for file in found]


def _check_alike(parts: Sequence[_Part]) -> None:
    """Raise InputError if two files of one corpus differ in their number of texts, or in having a score."""
    shapes = [
        f"{len(choice.texts)} text column(s) and {'no' if choice.score is None else 'a'} score" for _, choice in parts
    ]
    for part, shape in zip(parts, shapes, strict=True):
        if shape != shapes[0]:
            raise InputError(
                f"{parts[0].table.name} and {part.table.name} do not belong to one corpus: the first has {shapes[0]}, "
                f"the second {shape}. Name the columns to read, or fewer files."
            )
