"""The columns beside the texts (id, category ...): found in one pass over the input, carried into parquet."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

OURS = ("text", "vector")  # columns of every parquet file that we write
PREFIX = "source_"  # for a column of the input that has the name of one of ours
Row = tuple[str, Mapping[str, object]]  # a text, and by name the values of the other columns

# Which parquet type holds every one of these kinds of values without loss; all other mixtures become text.
_TYPES = (
    ({"bool"}, "bool"),
    ({"int", "long"}, "int64"),
    ({"int", "float"}, "float64"),
    ({"date"}, "date32"),
    ({"datetime"}, "timestamp[us]"),
)


@dataclass(frozen=True)
class Columns:
    """Names and parquet types of the columns to carry along, and a fingerprint of their content."""

    types: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)  # name in the input -> name in the output
    fingerprint: str | None = None

    def named(self, values: Mapping[str, object]) -> Mapping[str, object]:
        """Return a row's values under the names of the output."""
        if not self.renamed:
            return values
        return {self.renamed.get(name, name): value for name, value in values.items()}

    def fields(self) -> list[tuple[str, Any]]:
        """Return names and types as a parquet schema takes them."""
        import pyarrow as pa

        return [(name, pa.type_for_alias(kind)) for name, kind in self.types.items()]

    def arrays(self, rows: Sequence[Mapping[str, object]]) -> list[Any]:
        """Return one parquet column for each name; a value that a row lacks is null."""
        import pyarrow as pa

        return [pa.array([_convert(row.get(name), kind) for row in rows], kind) for name, kind in self.fields()]


def find_columns(records: Iterable[Mapping[str, object]]) -> Columns:
    """Return the columns that at least one row has a value for."""
    kinds: dict[str, set[str]] = {}
    digest = hashlib.sha256()
    for values in records:
        for name, value in values.items():
            kinds.setdefault(name, set()).add(_kind(value))
        digest.update(f"{values!r}\n".encode())
    renamed: dict[str, str] = {}
    for name in kinds.keys() & {*OURS}:
        free = PREFIX + name
        while free in kinds:
            free = PREFIX + free
        renamed[name] = free
    types = {renamed.get(name, name): _type(found) for name, found in kinds.items()}
    return Columns(types, renamed, digest.hexdigest() if kinds else None)


def _kind(value: object) -> str:
    if type(value) is not int:
        return type(value).__name__
    return "int" if abs(value) <= 2**53 else "long" if -(2**63) <= value < 2**63 else "huge"


def _type(kinds: set[str]) -> str:
    return next((name for fitting, name in _TYPES if kinds <= fitting), "string")


def _convert(value: Any, kind: Any) -> object:
    """Return a value as a column of this type takes it; what has no type of its own is written as text or JSON."""
    if value is None or str(kind) not in ("string", "double"):
        return value
    if str(kind) == "double":
        return float(value)
    if isinstance(value, (bool, int, float, list, dict)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value.isoformat() if isinstance(value, datetime.date) else str(value)
