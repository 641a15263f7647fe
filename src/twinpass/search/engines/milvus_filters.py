"""Filters for Milvus: what a row keeps to be filtered by, and the expression of a filter.

For the column at position 3, `is3` is a digest of the row's value and `n3` its number, if it reads as one. So most
expressions hold only digests, numbers and positions: nothing that a user wrote. `like`, and the order of texts, need
the text itself; it is compared in the row's metadata, and quoted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from twinpass.errors import ConfigError
from twinpass.search.filters import And, Condition, Filter, Not, check_columns
from twinpass.search.matching import pieces
from twinpass.text.columns import to_number

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def keys_of(metadata: Mapping[str, Any], places: dict[str, int]) -> dict[str, Any]:
    """Return the keys of one row; a column that is seen for the first time gets the next position."""
    keys: dict[str, Any] = {}
    for column, value in metadata.items():
        place = places.setdefault(column, len(places))
        if value is not None:
            keys[f"is{place}"] = _digest(value)
        number = to_number(value)
        if number is not None:
            keys[f"n{place}"] = number
    return keys


def expression(given: Filter | None, columns: Sequence[str]) -> str:
    """Return a Milvus expression that holds where a filter does; empty without one."""
    check_columns(given, columns)
    return "" if given is None else f"({_write(given, columns, negated=False)})"


def _write(given: Filter, columns: Sequence[str], *, negated: bool) -> str:
    """Write a filter or its opposite; `not` goes down to the conditions, where it means a missing value too."""
    if isinstance(given, Condition):
        return _write_condition(given, columns.index(given.column), negated=negated)
    if isinstance(given, Not):
        return _write(given.part, columns, negated=not negated)
    word = " and " if isinstance(given, And) != negated else " or "
    return word.join(f"({_write(part, columns, negated=negated)})" for part in given.parts)


def _write_condition(condition: Condition, place: int, *, negated: bool) -> str:
    present, test = _test(condition, place)
    missing_holds = condition.operator == "in" and None in condition.values
    if missing_holds:
        positive = f"not exists {present}" + (f" or {test}" if test else "")
        negative = f"exists {present}" + (f" and not ({test})" if test else "")
    else:
        # A row without the value does not meet the condition; whether `not` alone says so depends on the server.
        positive, negative = test, f"not exists {present} or not ({test})"
    return negative if negated else positive


def _test(condition: Condition, place: int) -> tuple[str, str]:
    """Return the key that a row must have, and what must hold for it; empty if only a missing value is asked for."""
    texts = [value for value in condition.values if value is not None]
    if condition.operator == "in":
        key = f'keys["is{place}"]'
        return key, " or ".join(f'{key} == "{digest}"' for text in texts for digest in _digests(text))
    (value,) = texts
    number = None if condition.operator == "like" else to_number(value)
    if number is not None:
        key = f'keys["n{place}"]'
        return key, f"{key} {condition.operator} {number!r}"
    if condition.operator == "like" and any(len(piece) > 1 for piece in pieces(value)):
        raise ConfigError(f"like {value!r}: Milvus cannot search for %, _ or \\ themselves. Leave out the backslash.")
    key = f"metadata[{_quoted(condition.column)}]"
    return key, f"{key} {condition.operator} {_quoted(value)}"


def _quoted(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(letter, letter) for letter in text) + '"'


def _digests(text: str) -> list[str]:
    """Return the digests of every stored value that equals a written one: text, number, true and false."""
    values: list[Any] = [text]
    number = to_number(text)
    if number is not None:
        values.append(number)
    if text.lower() in ("true", "false"):
        values.append(text.lower() == "true")
    return [_digest(value) for value in values]


def _digest(value: Any) -> str:
    """Return a digest that equal values share, whether written 1 or 1.0."""
    number = None if isinstance(value, str) else to_number(value)
    plain = json.dumps(value if number is None else number + 0.0, ensure_ascii=False, default=str)
    return hashlib.blake2b(plain.encode(), digest_size=16).hexdigest()
