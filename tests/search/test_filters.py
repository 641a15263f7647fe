"""The grammar of filters, and what each condition holds for."""

from __future__ import annotations

import pytest

from twinpass.errors import ConfigError
from twinpass.search.filters import parse


@pytest.mark.parametrize(
    ("text", "stored", "holds"),
    [
        ("a=x", "x", True),
        ("a = x y ", "x y", True),
        ("a='x=y'", "x=y", True),
        ('a="<b>"', "<b>", True),
        ("a=x", "X", False),
        ("a!=x", "y", True),
        ("a!=x", None, True),
        ("a=x", None, False),
        ("a=2020", 2020, True),
        ("a=2020", "2020", True),
        ("a=2020", "2020.0", False),
        ("a=2020", 2020.0, True),
        ("a=1", True, False),
        ("a=true", True, True),
        ("a=False", False, True),
        ("a<3", 2, True),
        ("a<3", "2.5", True),
        ("a<3", "x", False),
        ("a<3", None, False),
        ("a>=3", 3, True),
        ("a<=3", 3.5, False),
        ("a>-1e3", -5, True),
        ("a b=c", "c", True),
        ("a=[1]", [1], False),
        ("a=", "", True),
    ],
)
def test_conditions(text: str, stored: object, holds: bool) -> None:
    (condition,) = parse(text)
    assert condition.holds(stored) is holds


@pytest.mark.parametrize("text", ["", "a", "=x", "a ~ x", "a<x", "a>", "a>=nan", "__import__('os')"])
def test_what_is_no_condition(text: str) -> None:
    with pytest.raises(ConfigError, match="Expected column=value"):
        parse(text)


def test_none_one_or_several() -> None:
    assert parse(None) == [] and parse([]) == []
    assert [condition.column for condition in parse(["a=1", "b<2"])] == ["a", "b"]
