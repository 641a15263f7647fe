"""Filters on metadata: `column=value`, `column!=value`, and for numbers `<`, `<=`, `>`, `>=`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from twinpass.errors import ConfigError
from twinpass.registry import suggest
from twinpass.text.columns import to_number

_CONDITION = re.compile(r"\s*(?P<column>[^=!<>]+?)\s*(?P<operator>!=|<=|>=|=|<|>)\s*(?P<value>.*?)\s*", re.DOTALL)
HOW = "Wanted column=value or column!=value, or for numbers one of < <= > >=, such as year>=2020"

Where = str | Sequence[str] | None


class Condition(NamedTuple):
    """What one column must be like."""

    column: str
    operator: str  # = != < <= > >=
    value: str
    number: float | None  # the value, if it reads as a number

    def holds(self, stored: Any) -> bool:
        """Tell whether a stored value meets the condition; one that is missing meets only `!=`."""
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


def check_one_choice(*choices: object) -> None:
    """Refuse to remove anything unless exactly one of ids, texts and where says what."""
    given = [each for each in choices if each is not None]
    if len(given) != 1:
        raise ConfigError(f"wanted one of ids, texts and where to say what to remove, got {len(given)}.")


def parse(where: Where) -> list[Condition]:
    """Read conditions, all of which must hold; quotes around a value are taken off."""
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
        raise ConfigError(f"the condition {text!r} compares with {value!r}, which is no number. {HOW}.")
    return Condition(column, operator, value, number)
