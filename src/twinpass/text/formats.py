"""One reader per format: sentences by line, comma- and tab-separated values, JSON lines, parquet; and the hub."""

from __future__ import annotations

import contextlib
import csv
import json
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

from twinpass.errors import InputError, MissingExtra
from twinpass.text.columns import to_number, with_point
from twinpass.text.headers import differs_from_rows, has_header, may_be_names
from twinpass.text.rows import SAMPLE, BadRows, Record, Table, without_blanks
from twinpass.text.sources import Line, Source, copy_to_disk, read_lines, reading

# The columns of the STS benchmark's own files, which have no header; some rows have further columns.
STS_BENCHMARK = ("genre", "file", "year", "id", "score", "sentence1", "sentence2")
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab"}
MARKS = {"tsv": "\t", "scsv": ";", "csv": ","}  # csv's is guessed, unless csv: stands before the name
_TOLD = re.compile(r'"?sep=([,;\t])"?\s*', flags=re.IGNORECASE)  # a first line by which Excel knows the separator
# Numbers with a decimal comma between the semicolons of a line.
_DECIMALS = re.compile(r"(?:^|(?<=;))(\s*[+-]?\d*),(\d+)(?=\s*(?:;|$))")
_SEMICOLONS = "its columns are separated by semicolons; csv:NAME reads commas"
LONGEST_FIELD = 1 << 20  # characters; an unclosed quote takes in no more than this
_Rows = Sequence[Sequence[str] | None]  # None is a record that cannot be read
DAMAGED = object()  # stands for a parquet string that is not UTF-8
HOW = "Expected hf:owner/name, hf:owner/name:split or hf:owner/name/config:split"


class TextTable:
    """A file with one sentence per line."""

    names: tuple[str, ...] = ("text",)
    sample: Sequence[Sequence[object]] = (("text",),)  # every line is text: nothing to recognise

    def __init__(self, source: Source) -> None:
        self.source = source
        self.name = source.label

    def rows(self, wanted: Sequence[int], bad: BadRows) -> Iterator[Record]:
        """Yield every line without its line end; `wanted` can only be the one column there is."""
        lines = good_lines(self.source, bad)
        records = ((number, (text.rstrip("\r\n"),) if text.strip() else ()) for number, text in lines)
        return without_blanks(self.name, records, bad)


class JsonTable:
    """A file with one JSON object per line; the keys in the first rows are its columns."""

    def __init__(self, source: Source, bad: BadRows) -> None:
        self.source = source
        self.name = source.label
        first = [values for _, values in islice(self._objects(bad), SAMPLE) if values]
        self.names = tuple(dict.fromkeys(key for document in first for key in document))
        self.sample = [[document.get(name) for name in self.names] for document in first]

    def rows(self, wanted: Sequence[int], bad: BadRows) -> Iterator[Record]:
        """Yield the values of the wanted keys, None for a missing one; beyond the last key is the whole object."""
        keys = [self.names[at] if at < len(self.names) else None for at in wanted]
        records: Iterator[Record] = (
            (number, [document if key is None else document.get(key) for key in keys] if document else ())
            for number, document in self._objects(bad)
        )
        return without_blanks(self.name, records, bad)

    def _objects(self, bad: BadRows) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, text in good_lines(self.source, bad):
            document, reason, message = _parse_object(text) if text.strip() else ({}, "", "")
            if document is None:
                bad.report(f"{self.name}:{number}", reason, message)
            else:
                yield number, document


class SeparatedTable:
    """A file separated by commas or semicolons, with quotes, or by tabs, where a quote is an ordinary character."""

    def __init__(self, source: Source, bad: BadRows, header: bool | None = None) -> None:
        self.source = source
        self.name = source.label
        self.mark, self.guess = MARKS[source.format], ""  # the separator, and what to say of it to the user
        self.told = _told_mark(source)
        if source.format == "csv" and not source.is_stated:
            self.mark, self.guess = (self.told, "") if self.told else _guess_mark(source)
        elif self.told not in ("", self.mark):
            raise _contradiction(source, self.told)
        elif self.mark != "\t" and _looks_tab_separated(source):
            self.guess = "its first lines hold tabs and are not split at them; tsv:NAME splits them"
        first = [values for _, values in islice(self._records(bad), SAMPLE + 1) if values]
        if self.decimal_comma:  # only to recognise columns of numbers: what is read stays as it is
            first = [[with_point(value) for value in values] for values in first]
        self.sts_benchmark = self.mark == "\t" and bool(first) and _is_sts_benchmark(first[0])
        self.header = not self.sts_benchmark and has_header(first, header)
        self.header_recognised = False  # by what is below it, not by names that are known
        self.doubtful: tuple[str, ...] = ()  # the first row, if it is read as text and looks like names
        if first and header is None and not (self.header or self.sts_benchmark):
            differs = differs_from_rows(first)
            self.header = self.header_recognised = differs and len(first[0]) > 1
            if not self.header and may_be_names(first, differs=differs):
                self.doubtful = tuple(str(value).strip() for value in first[0])
        given = first[0] if first and self.header else range(len(first[0])) if first else ()
        self.names = STS_BENCHMARK if self.sts_benchmark else tuple(str(name).strip() for name in given)
        width = len(self.names)
        self.sample = [values[:width] for values in first[self.header :] if len(values) >= width]

    @property
    def decimal_comma(self) -> bool:
        """Whether numbers may have a decimal comma: semicolons separate columns where the comma cannot."""
        return self.mark == ";"

    def rows(self, wanted: Sequence[int], bad: BadRows) -> Iterator[Record]:
        """Yield the wanted columns of every row that has as many columns as the first."""
        width = len(self.names)
        records = without_blanks(self.name, self._records(bad), bad)
        for number, values in islice(records, int(self.header), None):
            if len(values) == width or (self.sts_benchmark and len(values) > width):
                yield number, [values[at] for at in wanted]
            else:
                hint = f"; {self.guess}" if self.guess not in ("", _SEMICOLONS) else ""
                report_width(bad, f"{self.name}:{number}", width, len(values), SEPARATORS[self.mark], hint)

    def _records(self, bad: BadRows) -> Iterator[Record]:
        records = split_at_tabs(self.source, bad) if self.mark == "\t" else _parse_csv(self.source, bad, self.mark)
        return islice(records, int(bool(self.told)), None)


class ParquetTable:
    """A parquet file, read in batches of rows; its columns are those of text and numbers."""

    def __init__(self, source: Source) -> None:
        self.name = source.label
        self.source = copy_to_disk(source) if source.packing else source  # parquet is read from its end
        self._fields = self._find_fields()
        self.names = tuple(name for name, _ in self._fields)
        everything = range(len(self.names))
        self.sample = [values for _, values in islice(self.rows(everything, BadRows(skip=True)), SAMPLE)]
        if not self.sample:
            self.names = ()

    def rows(self, wanted: Sequence[int], bad: BadRows) -> Iterator[Record]:
        """Yield the values of the wanted columns, reading no others; a line is a row counted from 1."""
        fields = [self._fields[at] for at in wanted]
        number = 0
        with self._open() as file:
            for batch in file.iter_batches(batch_size=1024, columns=[name for name, _ in fields]):
                places = [batch.schema.get_all_field_indices(name)[nth] for name, nth in fields]
                for values in zip(*(_values(batch.column(place)) for place in places), strict=True):
                    number += 1
                    if DAMAGED in values:
                        message = "expected UTF-8, got a string with other bytes"
                        bad.report(f"{self.name}:{number}", "not UTF-8", message)
                    else:
                        yield number, values

    def _find_fields(self) -> list[tuple[str, int]]:
        """Return (name, how many columns before it have that name) of each column that can be read.

        Skipped are those that can be neither text, score nor metadata, such as stored vectors.
        """
        seen: Counter[str] = Counter()
        found = []
        with self._open() as file:
            for column in file.schema_arrow:
                if _can_be_read(column.type):
                    found.append((column.name, seen[column.name]))
                seen[column.name] += 1
        return found

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with reading(self.source), pq.ParquetFile(self.source.path, pre_buffer=False) as file:
                yield file
        except pa.ArrowException as error:
            raise InputError(f"{self.name} is not a parquet file that can be read: {error}") from error


class HubTable:
    """One split of a data set on the hub, downloaded once and then memory-mapped from the local cache."""

    def __init__(self, address: str) -> None:
        self.name = f"hf:{address}"
        self._data = _load_from_hub(address)
        self.names: tuple[str, ...] = tuple(self._data.column_names) if len(self._data) else ()
        self.sample = [[row[name] for name in self.names] for row in islice(self._data, SAMPLE)]

    def rows(self, wanted: Sequence[int], bad: BadRows) -> Iterator[Record]:
        """Yield the wanted columns of every row, decoding no other column."""
        names = [self.names[at] for at in wanted]
        chosen = self._data.select_columns(names)
        return ((number, [row[name] for name in names]) for number, row in enumerate(chosen, 1))


def _parse_object(text: str) -> tuple[dict[str, Any] | None, str, str]:
    """Return a line's JSON object; or None, the reason and the message."""
    try:
        document = json.loads(text)
        if "\\u" in text:
            json.dumps(document, ensure_ascii=False).encode()  # refuses half a surrogate pair
    except (ValueError, RecursionError) as error:
        return None, "not a JSON document", f"expected a JSON object, got text that is not JSON: {error}"
    if isinstance(document, dict) and document:
        return document, "", ""
    got = "an empty one" if document == {} else f"a {type(document).__name__}"
    return None, "not a JSON object", f"expected a JSON object with columns as keys, got {got}"


def _looks_tab_separated(source: Source) -> bool:
    """Tell whether the first line and most of the next ones hold a tab."""
    tabs = ["\t" in text for _, text, _, _ in islice(read_lines(source), SAMPLE)]
    return bool(tabs) and tabs[0] and sum(tabs) * 2 > len(tabs)


def _told_mark(source: Source) -> str:
    """Return the separator that a first line such as sep=; states; without one, an empty string."""
    told = next((_TOLD.fullmatch(text) for _, text, _, _ in read_lines(source)), None)
    return told[1] if told else ""


def _contradiction(source: Source, told: str) -> InputError:
    """Explain that the format that the user named reads another separator than the first line states."""
    expected = SEPARATORS[MARKS[source.format]]
    right = next(format for format, mark in MARKS.items() if mark == told)
    return InputError(
        f"expected columns separated by {expected}s ({source.format}), got a first line that states "
        f"{SEPARATORS[told]}s ({source.label}:1). Write {right}:{source.given}, or delete that line."
    )


def _guess_mark(source: Source) -> tuple[str, str]:
    """Return the separator that the first rows suggest, and what to say of it to the user.

    Semicolons separate, as in spreadsheets where the comma is decimal, if most rows have as many as the first, and it
    has names, or a column nothing but numbers where commas do not separate as evenly. Where all rows have as many and
    nothing else tells, InputError asks.
    """
    if _looks_tab_separated(source):
        return "\t", ""
    rows, by_comma = (_first_rows(source, mark) for mark in ";,")
    good = [row for row in rows if row is not None]
    width = len(good[0]) if good else 0
    alike = [row for row in good if len(row) == width]
    used = width - all(not row[-1].strip() for row in alike)  # lines of code end in a semicolon
    if used < 2 or 2 * len(alike) <= len(rows):
        return ",", ""
    if has_header(good, None) or differs_from_rows(alike):
        return ";", _SEMICOLONS
    widths = {0 if row is None else len(row) for row in by_comma}
    if len(widths) == 1 and widths != {0} and not _are_spaced(by_comma):
        return ",", ""  # commas separate as evenly
    if any(None not in map(partial(to_number, comma=True), column) for column in zip(*alike[1:], strict=True)):
        return ";", _SEMICOLONS
    if len(rows) == 1 or _are_spaced([row[:used] for row in alike]):  # prose
        return ",", ""
    if len(alike) == len(rows):
        raise InputError(
            f"{source.label}: commas or semicolons could separate its columns, and nothing tells which. Write "
            f"csv:{source.given} to read commas, scsv:{source.given} to read semicolons, or txt:{source.given} to read "
            "every line as one text."
        )
    return ",", "most lines have equally many semicolons and are not split at them; scsv:NAME splits them"


def _first_rows(source: Source, mark: str) -> _Rows:
    """Return the first records, None for a bad one, without blank lines; commas inside numbers are points."""
    lines = ((at, _DECIMALS.sub(r"\1.\2", text), fault, message) for at, text, fault, message in read_lines(source))
    records = islice(_csv_records(lines, source.max_line_bytes, mark), SAMPLE)
    return [values for _, values, _, _ in records if values is None or "".join(values).strip() or len(values) > 1]


def _are_spaced(rows: _Rows) -> bool:
    """Tell whether a space follows every mark, as in sentences."""
    return all(value.startswith(" ") for row in rows if row is not None for value in row[1:])


def _is_sts_benchmark(row: Sequence[object]) -> bool:
    numbers = [to_number(value) is not None for value in row[4:7]]
    return len(row) >= len(STS_BENCHMARK) and numbers == [True, False, False]


def good_lines(source: Source, bad: BadRows) -> Iterator[tuple[int, str]]:
    """Yield number and text of every line that can be read; report the others."""
    for number, text, fault, message in read_lines(source):
        if fault:
            bad.report(f"{source.label}:{number}", fault, message)
        else:
            yield number, text


def split_at_tabs(source: Source, bad: BadRows) -> Iterator[Record]:
    """Yield the tab-separated values of each line, none for a blank line."""
    for number, text in good_lines(source, bad):
        yield number, text.rstrip("\r\n").split("\t") if text.strip(" \r\n") else ()


def report_width(bad: BadRows, where: str, expected: int, got: int, separator: str, hint: str = "") -> None:
    """Report a row with the wrong number of columns."""
    message = f"expected {expected} {separator}-separated columns, got {got}{hint}"
    bad.report(where, "wrong number of columns", message)


def _parse_csv(source: Source, bad: BadRows, mark: str) -> Iterator[Record]:
    for number, values, reason, message in _csv_records(read_lines(source), source.max_line_bytes, mark):
        if values is None:
            bad.report(f"{source.label}:{number}", reason, message)
        else:
            yield number, values if len(values) > 1 or "".join(values).strip() else ()


def _csv_records(lines: Iterator[Line], limit: int, mark: str) -> Iterator[tuple[int, list[str] | None, str, str]]:
    """Yield number and values of every record; of a bad one None, the reason and the message."""
    feed = _Feed(lines, limit)
    csv.field_size_limit(max(LONGEST_FIELD, csv.field_size_limit()))  # the module's default is 131,072
    reader = csv.reader(feed, delimiter=mark, strict=True)
    while True:
        feed.clear()
        values, problem = None, ("", "")
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem = _explain(error)
        number, _, fault, message = next((line for line in feed.taken if line[2]), feed.taken[0])
        yield (number, None, fault, message) if fault else (number, values, *problem)
        if values is None:
            feed.rewind()


def _explain(error: csv.Error) -> tuple[str, str]:
    """Return what is wrong with a record: the reason and the message."""
    if "field limit" in str(error):
        limit = f"{csv.field_size_limit():,} characters"
        return "field too long", f"expected at most {limit} in a field, got more: is a quote here never closed?"
    if isinstance(error, _TooLong):
        return "record too long", f"expected {error}: is a quote here never closed?"
    return "broken quoting", f"expected a correctly quoted record, got one that cannot be parsed: {error}"


class _TooLong(csv.Error):
    """A record of more characters than a line may have bytes."""


class _Feed:
    """Hands lines to the csv module, and takes them back when an unclosed quote took in too many."""

    def __init__(self, lines: Iterator[Line], limit: int) -> None:
        self.lines = lines
        self.limit = limit
        self.size = 0  # characters of the lines taken
        self.taken: list[Line] = []
        self.returned: deque[Line] = deque()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self.returned.popleft() if self.returned else next(self.lines)
        self.taken.append(line)
        self.size += len(line[1])
        if self.size > self.limit + 2 and len(self.taken) > 1:  # one line alone is within the limit
            raise _TooLong(f"at most {self.limit:,} characters in a record (max_line_bytes), got more")
        return line[1]

    def clear(self) -> None:
        """Forget the lines of a record that was read."""
        self.taken.clear()
        self.size = 0

    def rewind(self) -> None:
        """Give back every line of the broken record except its first."""
        self.returned.extendleft(reversed(self.taken[1:]))


def _can_be_read(kind: Any) -> bool:
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    kinds = "string large_string string_view integer floating boolean decimal date timestamp".split()  # noqa: SIM905
    return any(getattr(types, f"is_{name}")(kind) for name in kinds)


def _values(column: Any) -> list[Any]:
    """Return a column's values, with DAMAGED for each that cannot be decoded."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):  # Python has no nanoseconds and may not know the zone: use UTC
        column = column.cast(pa.timestamp("us"), safe=False)
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return [_value(item) for item in column]


def _value(item: Any) -> Any:
    try:
        return item.as_py()
    except UnicodeDecodeError:
        return DAMAGED


def _load_from_hub(address: str) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise MissingExtra(f"reading hf:{address}", "hub") from error
    path, _, named = address.partition(":")
    owner, _, rest = path.partition("/")
    name, _, config = rest.partition("/")
    if not owner or not name:
        raise InputError(f"hf:{address} does not name a data set. {HOW}.")
    try:
        splits = datasets.load_dataset(f"{owner}/{name}", config or None)
    except Exception as error:  # the library raises dozens of kinds, also those of its transports
        raise InputError(f"cannot get hf:{address}: {error}. {HOW}. Check the network connection.") from error
    split = named or ("train" if "train" in splits or len(splits) != 1 else next(iter(splits)))
    if split not in splits:
        found = f"no split {split!r}" if named else "several splits and none called 'train'"
        raise InputError(f"hf:{address} has {found}. Known: {', '.join(splits)}. Name one after a colon.")
    return splits[split]


READERS: dict[str, Callable[[Source, BadRows, bool | None], Table]] = {
    "txt": lambda source, bad, header: TextTable(source),
    "csv": SeparatedTable,
    "tsv": SeparatedTable,
    "scsv": SeparatedTable,
    "jsonl": lambda source, bad, header: JsonTable(source, bad),
    "parquet": lambda source, bad, header: ParquetTable(source),
}
