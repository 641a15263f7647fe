"""Which rows a filter holds for: metadata columns as arrays by type, and conditions on whole columns.

A condition is evaluated once for each distinct text of a column, so that a category costs nearly nothing.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinpass.search.filters import And, Condition, Filter, Not
from twinpass.text.columns import to_number

Mask = NDArray[np.bool_]

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARROW = {"<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
_PIECE = re.compile(r"\\[\\%_]|.", re.DOTALL)


class Column:
    """The values of one metadata column; what a row lacks is None."""

    def __init__(self, values: Sequence[Any]) -> None:
        import pyarrow as pa

        texts = pa.array([value if isinstance(value, str) else None for value in values], pa.large_string())
        encoded = texts.dictionary_encode()
        self._texts = encoded.dictionary  # each distinct text once
        self._codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)  # -1: not a text
        numbers = (to_number(value) for value in values)
        self._numbers = np.array([np.nan if number is None else number for number in numbers], np.float64)
        self._missing = np.array([value is None for value in values], bool)
        self._true = np.array([value is True for value in values], bool)
        self._false = np.array([value is False for value in values], bool)

    def holds(self, condition: Condition) -> Mask:
        """Return for which rows a condition holds."""
        import pyarrow as pa
        import pyarrow.compute as pc

        values = [value for value in condition.values if value is not None]
        if condition.operator == "in":
            mask = self._where_text(pc.is_in(self._texts, value_set=pa.array(values, pa.large_string())))
            numbers = [number for number in map(to_number, values) if number is not None]
            if numbers:
                mask |= (self._codes < 0) & np.isin(self._numbers, numbers)
            lowered = {value.lower() for value in values}
            for word, kept in (("true", self._true), ("false", self._false)):
                if word in lowered:
                    mask |= kept
            return mask | self._missing if None in condition.values else mask
        (value,) = values
        if condition.operator == "like":
            return self._where_text(pc.match_substring_regex(self._texts, _expression(value)))
        number = to_number(value)
        if number is not None:
            found: Mask = _COMPARE[condition.operator](self._numbers, number)  # not a number: never
            return found
        return self._where_text(
            pc.call_function(_ARROW[condition.operator], [self._texts, pa.scalar(value, pa.large_string())])
        )

    def _where_text(self, held: Any) -> Mask:
        """Return the rows whose text is one of those that are marked."""
        marks = np.append(held.to_numpy(zero_copy_only=False).astype(bool), False)  # the last is for codes of -1
        mask: Mask = marks[self._codes]
        return mask


def holding(given: Filter, columns: Mapping[str, Column]) -> Mask:
    """Return for which rows a filter holds."""
    if isinstance(given, Condition):
        return columns[given.column].holds(given)
    if isinstance(given, Not):
        return ~holding(given.part, columns)
    masks = (holding(part, columns) for part in given.parts)
    return reduce(operator.and_ if isinstance(given, And) else operator.or_, masks)


def pieces(pattern: str) -> list[str]:
    """Cut a pattern of `like` into characters: % and _ are wildcards, and with a backslash before them themselves."""
    return _PIECE.findall(pattern)


def _expression(pattern: str) -> str:
    """Return a pattern of `like` as a regular expression of RE2, which takes linear time whatever the pattern."""
    wild = {"%": ".*", "_": "."}
    body = "".join(wild.get(piece) or f"\\x{{{ord(piece[-1]):x}}}" for piece in pieces(pattern))
    return rf"(?s)\A{body}\z"
