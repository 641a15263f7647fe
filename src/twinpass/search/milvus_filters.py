"""Conditions on metadata as Milvus evaluates them, with nothing in an expression that a user wrote.

Beside the metadata itself a row keeps keys to find it by: for the column that stands at place 3, `is3` is a digest of
its value and `n3` its number, if it reads as one. An expression therefore holds digests, numbers and places alone:
there is nothing to escape.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from twinpass.search.where import Condition, check_columns
from twinpass.text.columns import to_number


def keys_of(metadata: Mapping[str, Any], places: dict[str, int]) -> dict[str, Any]:
    """Return the keys of one row; a column that is met for the first time gets the next place."""
    keys: dict[str, Any] = {}
    for column, value in metadata.items():
        place = places.setdefault(column, len(places))
        if value is not None:
            keys[f"is{place}"] = _digest(value)
        number = to_number(value)
        if number is not None:
            keys[f"n{place}"] = number
    return keys


def expression(conditions: Sequence[Condition], columns: Sequence[str]) -> str:
    """Return a Milvus expression that holds where every condition does; empty if there is none."""
    check_columns(conditions, columns)
    return " and ".join(f"({_one(condition, columns.index(condition.column))})" for condition in conditions)


def _one(condition: Condition, place: int) -> str:
    if condition.operator == "=":
        return _equal(condition, place)
    if condition.operator == "!=":
        # A row without the value differs from it; whether `not` alone says so depends on the server.
        return f'not exists keys["is{place}"] or not ({_equal(condition, place)})'
    return f'keys["n{place}"] {condition.operator} {condition.number!r}'


def _equal(condition: Condition, place: int) -> str:
    """Whatever a stored value may be that equals what was written: a text, a number, or true and false."""
    values: list[Any] = [condition.value]
    if condition.number is not None:
        values.append(condition.number)
    if condition.value.lower() in ("true", "false"):
        values.append(condition.value.lower() == "true")
    return " or ".join(f'keys["is{place}"] == "{_digest(value)}"' for value in values)


def _digest(value: Any) -> str:
    """Return a digest that equal values share, be they written 1 or 1.0."""
    number = None if isinstance(value, str) else to_number(value)
    plain = json.dumps(value if number is None else number + 0.0, ensure_ascii=False, default=str)
    return hashlib.blake2b(plain.encode(), digest_size=16).hexdigest()
