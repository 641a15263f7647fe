"""Filters on metadata: `column=value`, `column!=value`, and for numbers `<`, `<=`, `>`, `>=`.

For Milvus a row keeps keys to be filtered by: for the column at position 3, `is3` is a digest of its value and `n3` its
number, if it reads as one. An expression therefore holds only digests, numbers and positions: nothing that a user
wrote, so there is nothing to escape.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from twinpass.errors import ConfigError
from twinpass.registry import suggest
from twinpass.text.columns import to_number

_CONDITION = re.compile(r"\s*(?P<column>[^=!<>]+?)\s*(?P<operator>!=|<=|>=|=|<|>)\s*(?P<value>.*?)\s*", re.DOTALL)
HOW = "Expected column=value or column!=value, or for numbers one of < <= > >=, such as year>=2020"

Where = str | Sequence[str] | None


class Condition(NamedTuple):
    """A condition on one column."""

    column: str
    operator: str  # = != < <= > >=
    value: str
    number: float | None  # the value, if it reads as a number

    def holds(self, stored: Any) -> bool:
        """Tell whether a stored value meets the condition; a missing value meets only `!=`."""
        if self.operator in ("=", "!="):
            return self._equals(stored) == (self.operator == "=")
        number = to_number(stored)
        if number is None or self.number is None:
            return False
        below, above = number < self.number, number > self.number
        return {"<": below, ">": above, "<=": not above, ">=": not below}[self.operator]

    def _equals(self, stored: Any) -> bool:
        if isinstance(stored, bool):
            return self.value.lower() == str(stored).lower()
        if isinstance(stored, str):
            return stored == self.value
        return stored is not None and self.number is not None and to_number(stored) == self.number


def parse(where: Where) -> list[Condition]:
    """Read conditions, all of which must hold; quotes around a value are removed."""
    given = [where] if isinstance(where, str) else list(where or ())
    return [_parse_one(text) for text in given]


def check_columns(conditions: Iterable[Condition], known: Sequence[str]) -> None:
    """Refuse a condition on a column that no row has."""
    for condition in conditions:
        if condition.column not in known:
            listed = f"Known: {', '.join(known)}." if known else "The index has no metadata."
            raise ConfigError(
                f"no metadata column named {condition.column!r}.{suggest(condition.column, known)} {listed}"
            )


def _parse_one(text: str) -> Condition:
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise ConfigError(f"cannot read the condition {text!r}. {HOW}.")
    column, operator, value = found["column"], found["operator"], found["value"]
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    number = to_number(value)
    if operator not in ("=", "!=") and number is None:
        raise ConfigError(f"the condition {text!r} compares with {value!r}, which is not a number. {HOW}.")
    return Condition(column, operator, value, number)


def keys_of(metadata: Mapping[str, Any], places: dict[str, int]) -> dict[str, Any]:
    """Return the keys of one row for Milvus; a column that is seen for the first time gets the next position."""
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
    """Return a Milvus expression that holds where every condition does; empty without conditions."""
    check_columns(conditions, columns)
    return " and ".join(f"({_expression_of(condition, columns.index(condition.column))})" for condition in conditions)


def _expression_of(condition: Condition, place: int) -> str:
    if condition.operator == "=":
        return _equal(condition, place)
    if condition.operator == "!=":
        # A row without the value differs from it; whether `not` alone says so depends on the server.
        return f'not exists keys["is{place}"] or not ({_equal(condition, place)})'
    return f'keys["n{place}"] {condition.operator} {condition.number!r}'


def _equal(condition: Condition, place: int) -> str:
    """Match every type of stored value that equals the written one: text, number, true and false."""
    values: list[Any] = [condition.value]
    if condition.number is not None:
        values.append(condition.number)
    if condition.value.lower() in ("true", "false"):
        values.append(condition.value.lower() == "true")
    return " or ".join(f'keys["is{place}"] == "{_digest(value)}"' for value in values)


def _digest(value: Any) -> str:
    """Return a digest that equal values share, whether written 1 or 1.0."""
    number = None if isinstance(value, str) else to_number(value)
    plain = json.dumps(value if number is None else number + 0.0, ensure_ascii=False, default=str)
    return hashlib.blake2b(plain.encode(), digest_size=16).hexdigest()
