"""Reading parquet files in constant memory."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from twinpass.errors import InputError
from twinpass.text.rows import SAMPLE, BadRows, Record
from twinpass.text.streams import Source, open_bytes, reading, spool

DAMAGED = object()  # stands for bytes that parquet calls a string and that are not UTF-8


class ParquetTable:
    """A parquet file, read by record batches; its columns are those of text and numbers."""

    def __init__(self, source: Source) -> None:
        self.name = source.label
        if source.packing:  # parquet is read from its end, which a packed stream cannot do well
            with reading(source), open_bytes(source) as stream:
                source = spool(stream, source)
        self.source = source
        self._fields = self._find_fields()
        self.names = tuple(name for name, _ in self._fields)
        everything = range(len(self.names))
        self.sample = [values for _, values in islice(self.rows(everything, BadRows(skip=True)), SAMPLE)]
        if not self.sample:
            self.names = ()

    def rows(self, wanted: Sequence[int], bad: BadRows) -> Iterator[Record]:
        """Yield the wanted columns' values, reading no other column; a line is a row counted from 1."""
        fields = [self._fields[at] for at in wanted]
        number = 0
        with self._open() as file:
            for batch in file.iter_batches(batch_size=1024, columns=[name for name, _ in fields]):
                places = [batch.schema.get_all_field_indices(name)[nth] for name, nth in fields]
                for values in zip(*(_values(batch.column(place)) for place in places), strict=True):
                    number += 1
                    if DAMAGED in values:
                        bad.report(f"{self.name}:{number}", "not UTF-8")
                    else:
                        yield number, values

    def _find_fields(self) -> list[tuple[str, int]]:
        """Return (name, how many columns of that name stand before it) of each column that can be read.

        Left out is what can be neither text, score nor metadata, such as stored vectors.
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
            raise InputError(f"{self.name} is not a parquet file we can read: {error}") from error


def _can_be_read(kind: Any) -> bool:
    import pyarrow.types as types

    if types.is_dictionary(kind):
        kind = kind.value_type
    tests = (
        types.is_string,
        types.is_large_string,
        types.is_string_view,
        types.is_integer,
        types.is_floating,
        types.is_boolean,
        types.is_decimal,
        types.is_date,
        types.is_timestamp,
    )
    return any(test(kind) for test in tests)


def _values(column: Any) -> list[Any]:
    """Return a column's values, with DAMAGED for each that cannot be decoded."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):  # Python has no nanoseconds, and may not know the zone: UTC then
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
