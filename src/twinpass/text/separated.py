"""Reading comma and tab separated files: which separator, is there a header, where do records begin."""

from __future__ import annotations

import csv
import re
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice

from twinpass.text.columns import KNOWN, known_texts, plain, to_number
from twinpass.text.rows import SAMPLE, BadRows, Record, without_blanks
from twinpass.text.streams import Line, Source, read_lines

# The STS benchmark's own files have these columns, no header, and in some rows further columns.
STS_BENCHMARK = ("genre", "file", "year", "id", "score", "sentence1", "sentence2")
# What a column of no interest may be called; pandas leaves its index nameless, or reads it back as Unnamed: 0.
_NAME = re.compile(r"([^\W\d][\w.-]{0,39}|Unnamed: \d+)?")
LONGEST_FIELD = 1 << 20  # characters; a quote that is never closed swallows no more than this


class SeparatedTable:
    """A comma separated file with quotes, or a tab separated file in which a quote is just a quote."""

    def __init__(self, source: Source, bad: BadRows, header: bool | None = None) -> None:
        self.source = source
        self.name = source.label
        self.tabs = source.format == "tsv" or _looks_tab_separated(source)
        first = [values for _, values in islice(self._records(bad), SAMPLE + 1) if values]
        self.sts_benchmark = self.tabs and bool(first) and _is_sts_benchmark(first[0])
        self.header = not self.sts_benchmark and _has_header(first, header)
        if first and header is None and not (self.header or self.sts_benchmark):
            _warn_of_names(self.name, first[0])
        self.names = self._name_columns(first)
        width = len(self.names)
        self.sample = [values[:width] for values in first[self.header :] if len(values) >= width]

    def rows(self, wanted: Sequence[int], bad: BadRows) -> Iterator[Record]:
        """Yield the wanted columns of every row that has as many columns as the first."""
        width = len(self.names)
        records = without_blanks(self.name, self._records(bad), bad)
        for number, values in islice(records, int(self.header), None):
            if len(values) == width or (self.sts_benchmark and len(values) > width):
                yield number, [values[at] for at in wanted]
            else:
                detail = f"wanted {width}, found {len(values)}"
                bad.report(f"{self.name}:{number}", "wrong number of columns", detail)

    def _records(self, bad: BadRows) -> Iterator[Record]:
        lines = read_lines(self.source)
        return _split_at_tabs(self.name, lines, bad) if self.tabs else _parse_csv(self.name, lines, bad)

    def _name_columns(self, first: Sequence[Sequence[object]]) -> tuple[str, ...]:
        if self.sts_benchmark:
            return STS_BENCHMARK
        if self.header:
            return tuple(str(value).strip() for value in first[0])
        return tuple(str(at) for at in range(len(first[0]))) if first else ()


def _looks_tab_separated(source: Source) -> bool:
    """Say whether the first line and most of those that follow hold a tab."""
    tabs = ["\t" in text for _, text, _, _ in islice(read_lines(source), SAMPLE)]
    return bool(tabs) and tabs[0] and sum(tabs) * 2 > len(tabs)


def _is_sts_benchmark(row: Sequence[object]) -> bool:
    numbers = [to_number(value) is not None for value in row[4:7]]
    return len(row) >= len(STS_BENCHMARK) and numbers == [True, False, False]


def _has_header(first: Sequence[Sequence[object]], told: bool | None) -> bool:
    """Say whether the first row names the columns; only names we know are evidence, or data would be lost."""
    if told is not None or not first:
        return bool(told) and bool(first)
    names = [str(value).strip() for value in first[0]]
    if len(known_texts([plain(name) for name in names])) > 1:
        return True
    others = [name for name in names if plain(name) not in KNOWN]
    return len(others) < len(names) and all(_NAME.fullmatch(name) for name in others)


def _warn_of_names(file: str, row: Sequence[object]) -> None:
    """Say so where a first row that is read as text looks like the names of columns."""
    names = [str(value).strip() for value in row]
    if len(names) > 1 and all(name and _NAME.fullmatch(name) for name in names):
        warnings.warn(
            f"{file}: the first row ({', '.join(names)}) is read as text. If it names the columns, say so: header=True "
            "(--header).",
            stacklevel=2,
        )


def _split_at_tabs(name: str, lines: Iterator[Line], bad: BadRows) -> Iterator[Record]:
    for number, text, fault, detail in lines:
        if fault:
            bad.report(f"{name}:{number}", fault, detail)
        else:
            yield number, text.rstrip("\r\n").split("\t") if text.strip(" \r\n") else ()


def _parse_csv(name: str, lines: Iterator[Line], bad: BadRows) -> Iterator[Record]:
    feed = _Feed(lines)
    csv.field_size_limit(max(LONGEST_FIELD, csv.field_size_limit()))  # the module's own is 131,072
    reader = csv.reader(feed, strict=True)
    while True:
        feed.taken.clear()
        values, problem = None, ("", "")
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem = _explain(error)
        number, _, fault, detail = next((line for line in feed.taken if line[2]), feed.taken[0])
        if fault or values is None:
            bad.report(f"{name}:{number}", *((fault, detail) if fault else problem))
        else:
            yield number, values if len(values) > 1 or "".join(values).strip() else ()
        if values is None:
            feed.rewind()


def _explain(error: csv.Error) -> tuple[str, str]:
    """Return what is wrong with a record, and the detail."""
    if "field limit" in str(error):
        limit = f"more than {csv.field_size_limit():,} characters"
        return "a field that is too long", f"{limit}; perhaps a quote that opens here is never closed"
    return "broken quoting", f"a quoted field that begins here is not closed as it should be: {error}"


class _Feed:
    """Hands lines to the csv module, and takes them back when a quote swallowed too many."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self.lines = lines
        self.taken: list[Line] = []
        self.returned: deque[Line] = deque()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self.returned.popleft() if self.returned else next(self.lines)
        self.taken.append(line)
        return line[1]

    def rewind(self) -> None:
        """Give back every line of the broken record except its first."""
        self.returned.extendleft(reversed(self.taken[1:]))
