"""Reading sentences: files of every format, folders, standard input, the hub and the built-in corpus."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, cast

from twinpass.display import counted
from twinpass.errors import ConfigError, InputError
from twinpass.progress import Log, ignore
from twinpass.text.columns import Choice, Joined, choose, passed_over, to_label, to_number
from twinpass.text.formats import READERS, HubTable, JsonTable, SeparatedTable
from twinpass.text.rows import BadRows, Row, Table
from twinpass.text.sources import MAX_LINE_BYTES, find_sources

__all__ = ["Corpus", "Row", "Survey", "open_corpus"]


def open_corpus(
    source: str | os.PathLike[str],
    *,
    columns: str | Sequence[str] | None = None,
    join: str | None = None,
    score: str | None = None,
    label: str | None = None,
    negatives: bool = False,
    pairs: bool = False,
    single: bool = False,
    skip_bad_rows: bool = False,
    header: bool | None = None,
    max_line_bytes: int = MAX_LINE_BYTES,
    log: Log = ignore,
) -> Corpus:
    """Open a file, folder, pattern, `-`, `docs:`, `docs-pairs:` or `hf:owner/name`; it has at least one row.

    Columns are names or positions counted from 0, as a list or comma-separated; by default known names are looked for,
    then the only column of sentences. If several could be meant, InputError lists them, unless `pairs` expects two.
    With `single`, rows are no pairs: several columns under what may be names are not read as texts, but InputError.
    With `join`, the columns are one text, joined by this; empty ones are left out. `log` gets what was decided.
    `label` names the column of each row's class. With `negatives`, the texts from the third column on are hard
    negatives: where there are several such columns, or a column of lists, a row may have any number of them. A
    bad row raises InputError unless `skip_bad_rows`; a line or text of more than `max_line_bytes` is one. `header` says
    whether a table's first row names its columns; by default its content decides.
    """
    if max_line_bytes < 1:
        raise ConfigError(f"max_line_bytes is {max_line_bytes}; expected at least 1.")
    source = os.fspath(source)
    if isinstance(columns, str):
        columns = [name.strip() for name in columns.split(",")]
    named = any(not name.isdecimal() for name in [*(columns or ()), *filter(None, (score, label))])
    bad, header = BadRows(skip=skip_bad_rows), True if header is None and named else header
    tables = _open_tables(source, bad, header, max_line_bytes)
    tables = [table for table in tables if table.names]
    if join is not None:
        if not columns:
            raise ConfigError("join needs the columns to join: add --columns subject,body (in Python: columns=).")
        tables = [Joined(table, columns, join) for table in tables]
    parts = []
    for table in tables:
        own = [table.column] if isinstance(table, Joined) else columns
        doubtful = table.doubtful if isinstance(table, SeparatedTable) else ()
        asking = doubtful if single and len(doubtful) > 1 and not columns else ()
        if asking and _has_one_row(table, BadRows(skip=skip_bad_rows)):
            raise InputError(
                f"{table.name} is empty: expected rows of text, got one row that seems to name the columns "
                f"({', '.join(asking)}). Add rows, or read it as text with --no-header (header=False)."
            )
        as_pairs = pairs or score is not None
        try:
            choice = choose(table, columns=own, score=score, label=label, pairs=as_pairs, doubtful=asking)
        except InputError as error:  # perhaps because of what was guessed before
            guessed = "".join(f" In {table.name}, {guess}." for guess in _guesses(table))
            raise InputError(f"{error}{guessed}") from None
        if doubtful:
            message = f"{table.name}: the first row ({', '.join(doubtful)}) is read as text."
            warnings.warn(f"{message} If it names the columns, pass header=True (--header).", stacklevel=2)
        parts.append(_Part(table, choice, ragged=negatives and _is_ragged(table, choice)))
    _check_alike(parts)
    corpus = Corpus(source, parts, skip_bad_rows=skip_bad_rows, max_line_bytes=max_line_bytes)
    corpus.decisions = _decisions(parts, named=bool(columns))
    for decision in corpus.decisions:
        log(decision)
    if not parts or next(iter(corpus), None) is None:
        raise InputError(f"{source} is empty: it has no row to read{' that is not bad' * skip_bad_rows}.")
    return corpus


def _has_one_row(table: Table, bad: BadRows) -> bool:
    """Tell whether a table has one row and nothing else; a second one that is bad is reported."""
    return len(list(islice(table.rows((), bad), 2))) == 1 and not bad.reasons


def _decisions(parts: Sequence[_Part], *, named: bool) -> list[str]:
    """Say what the files' content decided, each decision once: by the first file's name, and how many more."""
    files: dict[str, list[str]] = {}
    for table, choice, _ in parts:
        for decision in _decisions_of(table, choice, named=named):
            files.setdefault(decision, []).append(table.name)
    more = {decision: f" and {counted(len(rest), 'more file')}" for decision, (_, *rest) in files.items() if rest}
    return [f"{names[0]}{more.get(decision, '')}: {decision}" for decision, names in files.items()]


def _decisions_of(table: Table, choice: Choice, *, named: bool) -> list[str]:
    """Say what separates a table's columns, that its first row names them, and which is the text."""
    found = _guesses(table)
    if not named and (others := passed_over(table, choice)):
        texts = ", ".join(table.names[at] for at in choice.texts)
        found.append(f"the text is in {texts}, not in {', '.join(others)}; --columns chooses others")
    return found


def _guesses(table: Table) -> list[str]:
    """Say what separates a table's columns, and that its first row names them, where that was guessed."""
    own = _inner(table)
    if not isinstance(own, SeparatedTable):
        return []
    found = [own.guess] if own.guess else []
    if own is table and own.header_recognised:
        found.append(f"the first row ({', '.join(own.names)}) names the columns; --no-header reads it as text")
    return found


def _inner(table: Table) -> Table:
    """Return the table of a file, of which several columns may have been joined."""
    return table.table if isinstance(table, Joined) else table


class _Part(NamedTuple):
    table: Table
    choice: Choice
    ragged: bool  # a row may have any number of texts from the third column on


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
        self.decisions: Sequence[str] = ()  # what the content decided about header and columns, for the user
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
    def score_column(self) -> str | None:
        """The name of the column of scores in the first file."""
        table, choice, _ = self._parts[0]
        return None if choice.score is None else table.names[choice.score]

    @property
    def ragged(self) -> bool:
        """Whether a row may have any number of texts from the third column on."""
        return any(part.ragged for part in self._parts)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the text columns in the first file, positions if it has no names."""
        table, choice, _ = self._parts[0]
        return tuple(table.names[at] for at in choice.texts)

    @property
    def bad_rows(self) -> int:
        """Number of rows that the last full pass skipped; `bad_reasons` counts them by reason."""
        return sum(self.bad_reasons.values())

    def __iter__(self) -> Iterator[Row]:
        for table, line, texts, score, label, _ in self._pass():
            yield Row(texts, score, f"{table}:{line}", label)

    def texts(self) -> Iterator[str]:
        """Yield every text column of every row, row by row."""
        for _, _, texts, _, _, _ in self._pass():
            yield from texts

    def records(self) -> Iterator[tuple[tuple[str, ...], dict[str, object]]]:
        """Yield every row's texts, and the values of its other columns by name, without missing ones."""
        for _, _, texts, _, _, others in self._pass(others=True):
            yield texts, others

    def fingerprint(self) -> str:
        """Return the SHA-256 of the rows' content; file names, compression and format do not matter."""
        return self.survey().fingerprint

    def survey(self) -> Survey:
        """Count and fingerprint the content in one pass; a bad row is found here, before any work is done."""
        digest = hashlib.sha256()
        rows = count = 0
        for _, _, texts, score, label, _ in self._pass():
            rows += 1
            count += len(texts)
            for text in texts:
                content = text.encode()
                digest.update(b"%d:%b" % (len(content), content))  # lengths keep ("ab", "c") from being ("a", "bc")
            digest.update(f"{score!r}{'' if label is None else repr(label)}\n".encode())
        return Survey(rows, count, digest.hexdigest())

    def _pass(
        self, *, others: bool = False
    ) -> Iterator[tuple[str, int, tuple[str, ...], float | None, str | None, dict[str, object]]]:
        """Yield (table, line, texts, score, label, other values by name) of every good row."""
        bad = BadRows(skip=self._skip_bad_rows)
        for table, choice, ragged in self._parts:
            name, count, scored, labelled = table.name, len(choice.texts), choice.score is not None, choice.label
            names, read = [table.names[at] for at in choice.texts], len(choice.wanted)
            rest = _other_columns(table, choice) if others else []
            comma = getattr(_inner(table), "decimal_comma", False)
            for line, values in table.rows((*choice.wanted, *rest), bad):
                texts = tuple(values[:count])
                columns, texts = _spread(names, texts) if ragged else (names, texts)
                score = to_number(values[count], comma=comma) if scored else None
                label = None if labelled is None else to_label(values[read - 1])
                fault = _fault(texts, columns, self._max_text_bytes)
                if scored and score is None and not fault:
                    column = table.names[cast(int, choice.score)]
                    message = f"expected a finite number in column {column!r}, got {values[count]!r}"
                    fault = ("score is not a number", message)
                if labelled is not None and label is None and not fault:
                    message = f"expected a label in column {table.names[labelled]!r}, got {values[read - 1]!r}"
                    fault = ("no label", message)
                if fault:
                    bad.report(f"{name}:{line}", *fault)
                    continue
                named = _by_name(table, choice, rest, values[read:]) if others else {}
                yield name, line, texts, score, label, named  # type: ignore[misc]
        self.bad_reasons = dict(bad.reasons)


def _other_columns(table: Table, choice: Choice) -> list[int]:
    if _is_json(table):
        return [len(table.names)]  # the whole object: a late row may have keys that the first rows lack
    return [at for at in range(len(table.names)) if at not in choice.texts]


def _is_json(table: Table) -> bool:
    return isinstance(_inner(table), JsonTable)


def _by_name(table: Table, choice: Choice, columns: list[int], values: Sequence[object]) -> dict[str, object]:
    """Return a row's values in columns other than the texts, without missing ones."""
    if _is_json(table):
        texts = {table.names[at] for at in choice.texts}
        document = cast("dict[str, object]", values[0])
        return {name: value for name, value in document.items() if value is not None and name not in texts}
    return {table.names[at]: value for at, value in zip(columns, values, strict=True) if value is not None}


def _is_ragged(table: Table, choice: Choice) -> bool:
    """Return whether a table's hard negatives are in several columns, or in a column of lists."""
    listed = any(isinstance(row[at], list) for row in table.sample for at in choice.texts[2:])
    return len(choice.texts) > 3 or listed


def _spread(names: Sequence[str], values: Sequence[object]) -> tuple[list[str], tuple[object, ...]]:
    """Return a row's texts one by one, each with its column: lists are taken apart, empty negatives left out."""
    found = list(zip(names[:2], values[:2], strict=True))
    for name, value in zip(names[2:], values[2:], strict=True):
        every = value if isinstance(value, list) else [value]
        found += [(name, each) for each in every if not (each is None or (isinstance(each, str) and not each.strip()))]
    return [name for name, _ in found], tuple(value for _, value in found)


def _fault(texts: tuple[object, ...], columns: Sequence[str], most: int) -> tuple[str, str] | None:
    """Return the reason and the message if a row's texts are bad."""
    for at, text in enumerate(texts):
        if isinstance(text, str) and text and not text.isspace():
            if 4 * len(text) > most and len(text.encode()) > most:  # of a format without lines, such as parquet
                return "text too long", f"expected a text of at most {most:,} bytes (max_line_bytes), got more"
            continue
        expected = f"expected text in column {columns[at]!r}, got"
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
        f"{counted(len(choice.texts), 'text column')} and {'no' if choice.score is None else 'a'} score"
        for _, choice, _ in parts
    ]
    for part, shape in zip(parts, shapes, strict=True):
        if shape != shapes[0]:
            raise InputError(
                f"{parts[0].table.name} and {part.table.name} do not belong to one corpus: the first has {shapes[0]}, "
                f"the second {shape}. Name the columns to read, or fewer files."
            )
