"""The language of filters: what is read, what each condition holds for, and what is refused."""

from __future__ import annotations

import contextlib
import operator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from twinpass.errors import ConfigError
from twinpass.search import filters
from twinpass.search.filters import And, Condition, Filter, Not, Or, check_columns, parse, quoted
from twinpass.search.matching import Column, holding
from twinpass.text.columns import to_number


def holds(where: str, **row: Any) -> bool:
    (found,) = holding(parse(where), {name: Column([value]) for name, value in row.items()})
    return bool(found)


@pytest.mark.parametrize(
    ("text", "stored", "expected"),
    [
        ("a=x", "x", True),
        ("a==x", "x", True),
        ("a = x y ", "x y", True),
        ("a='x=y'", "x=y", True),
        ('a="<b>"', "<b>", True),
        ("a='it''s'", "it's", True),
        (r"a='it\'s'", "it's", True),
        (r"a='C:\temp'", r"C:\temp", True),
        (r"a='\\'", "\\", True),
        ("a=don't", "don't", True),
        ("a=hello!", "hello!", True),
        ("a=made in china", "made in china", True),
        ("a=x", "X", False),
        ("a!=x", "y", True),
        ("a!=x", None, True),
        ("a=x", None, False),
        ("a=''", "", True),
        ("a=2020", 2020, True),
        ("a=2020", "2020", True),
        ("a='2020'", 2020, True),
        ("a=2020", "2020.0", False),
        ("a=2020", 2020.0, True),
        ("a=01234", "01234", True),
        ("a=1234", "01234", False),
        ("a=1", True, False),
        ("a=true", True, True),
        ("a=true", "true", True),
        ("a=False", False, True),
        ("a=[1]", [1], False),
        ("a!=[1]", [1], True),
        ("a<3", 2, True),
        ("a<3", "2.5", True),
        ("a<3", "x", False),
        ("a<3", None, False),
        ("a<3", True, False),
        ("a>=3", 3, True),
        ("a<=3", 3.5, False),
        ("a>-1e3", -5, True),
        ("a>=2020-01-01", "2020-01-05", True),
        ("a<2020-01-01", "2020-01-05", False),
        ("a>b", 5, False),
        ("a>b", "é", True),
        ("a = null", None, True),
        ("a != NULL", None, False),
        ("a is null", 0, False),
        ("a is not null", 0, True),
        ("a = 'null'", None, False),
        ("a = 'null'", "null", True),
        ("a in (x, 2, 'y z')", "y z", True),
        ("a in (x, 2)", 2.0, True),
        ("a in (x, null)", None, True),
        ("a in (x)", None, False),
        ("a not in (x)", None, True),
        ("a not in (x, null)", None, False),
        ("a like 'b%'", "bird", True),
        ("a like 'b%'", "Bird", False),
        ("a like b_rd", "bird", True),
        ("a like '%'", "", True),
        ("a like '%'", None, False),
        ("a not like '%'", None, True),
        ("a like '5%'", 50, False),
        (r"a like '50\%'", "50%", True),
        (r"a like '50\%'", "500", False),
        ("a like '_'", "😀", True),
        ("a like '_'", "\n", True),
        ("a like 'x%'", "x\n\ny", True),
        ("a like '.*'", "xx", False),
        ("not a = x", None, True),
        ("not a < 3", None, True),
        ("NOT (a = x OR a = y)", "z", True),
        ("a = x or a = y and a = z", "x", True),  # and binds more than or
        ("(a = x or a = y) and a = z", "x", False),
        ("not a = x and a = y", "z", False),  # not binds more than and
        ("not not a = x", "x", True),
        ("a=OR", "OR", True),
    ],
)
def test_conditions(text: str, stored: object, expected: bool) -> None:
    assert holds(text, a=stored) is expected


def test_columns_with_spaces_quotes_and_keywords() -> None:
    for column in ("odd one", '"odd one"', "`odd one`"):
        assert holds(f"{column} = x", **{"odd one": "x"})
    assert holds('"a""b" = 1 and `or` in (1, 2)', **{'a"b': 1, "or": 2})
    assert holds("in=3 and not=4", **{"in": 3, "not": 4})
    assert holds("a b like 'x%' or c d is null", **{"a b": "y", "c d": None})


def test_none_one_or_several() -> None:
    assert parse(None) is None and parse([]) is None
    assert holds("a=1 and b<2", a=1, b=1)
    assert parse(["a=1", "b<2"]) == And((parse("a=1"), parse("b<2")))
    assert isinstance(parse(["a=1 or b=1", "b<2"]), And)  # each is whole in itself


@pytest.mark.parametrize("where", [5, 0, ["a=1", 5], [None]])
def test_what_is_no_text_is_refused(where: Any) -> None:
    with pytest.raises(ConfigError, match=r"expected a filter such as 'year >= 2020', or several, got"):
        parse(where)


@pytest.mark.parametrize(
    ("text", "told", "at"),
    [
        ("", "expected a column, got the end", 0),
        ("a", "expected an operator .* after the column 'a', got the end", 1),
        ("=x", "expected a column, got '='", 0),
        ("a ~ x", "expected an operator .* after the column 'a ~ x'", 5),
        ("a =", "expected a value, got the end. The empty text is written ''", 3),
        ("a > (", "expected a value, got '\\('", 4),
        ("a=x)", "expected 'and', 'or' or the end, got '\\)'", 3),
        ("(a=x", "expected 'and', 'or' or '\\)', got the end", 4),
        ("a=x b=y", "expected 'and', 'or' or the end, got '='", 5),
        ("a=x or", "expected a column, got the end", 6),
        ("a='x", "expected a closing '", 2),
        ("a in x", "expected '\\(' after 'in', got 'x'", 5),
        ("a in ()", "expected a value, got '\\)'", 6),
        ("a in (x y", "expected ',' or '\\)', got the end", 9),
        ("a not = 3", "expected 'in' or 'like' after 'not', got '='", 6),
        ("a is 3", "expected null after 'is', got '3'", 5),
        ("a < null", "null is neither less nor greater", 4),
        ("a like null", "expected a text after 'like', got null", 7),
        ("'a' = 3", "expected a column without these quotes", 0),
        ("category=billing,shipping", r"For several values: category in \(billing,shipping\)", 16),
        ("year>3 and category == billing, new", r"For several values: category in \(billing, new\)", 30),
        ("__import__('os')", "expected an operator", 10),
        ("a = \ud800", "expected text, got half of a surrogate pair", 4),
    ],
)
def test_what_is_refused_says_where(text: str, told: str, at: int) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        parse(text)
    _, shown, caret = str(caught.value).split("\n")
    assert shown == f"  {text}" and caret == f"  {' ' * at}^"


def test_an_unknown_column_says_where() -> None:
    with pytest.raises(ConfigError, match=r"no metadata column named 'categry'\. Did you mean 'category'") as caught:
        check_columns(parse("year > 3 and categry = x"), ["category", "year"])
    assert str(caught.value).endswith(f"\n  year > 3 and categry = x\n  {' ' * 13}^")


def test_the_bounds() -> None:
    assert len(list(filters.conditions(parse(" or ".join(["a=1"] * 64))))) == 64
    assert holds(f"{'(' * 31}a=1{')' * 31}", a=1)
    for where, told in [
        (" or ".join(["a=1"] * 65), "has 65 conditions; at most 64"),
        (["a=1"] * 65, "got 65 filters"),
        (["a=1 and b=2"] * 33, "has 66 conditions"),
        ("a=" + "x" * 4_095, "has 4,097 characters; at most 4,096"),
        ("(" * 40 + "a=1" + ")" * 40, "at most 32 levels"),
        ("not " * 1_000 + "a=1", "at most 32 levels"),
        (f"a like '{'%x' * 129}'", "the pattern has 258 characters; at most 256"),
    ]:
        with pytest.raises(ConfigError, match=told):
            parse(where)
    long = " or ".join(f"column_{n}=1" for n in range(50)) + " x=1"
    with pytest.raises(ConfigError) as caught:
        parse(long)
    assert max(map(len, str(caught.value).split("\n"))) < 130  # only what is around the position is shown


# A filter as it is defined, row by row.


def like(text: str, pattern: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(like(text[at:], pattern[1:]) for at in range(len(text) + 1))
    if pattern[0] == "\\" and pattern[1:2] in ("%", "_", "\\"):
        return text[:1] == pattern[1] and like(text[1:], pattern[2:])
    return bool(text) and pattern[0] in ("_", text[0]) and like(text[1:], pattern[1:])


def equals(stored: Any, value: str | None) -> bool:
    if stored is None or value is None:
        return stored is value
    if isinstance(stored, bool):
        return value.lower() == str(stored).lower()
    if isinstance(stored, str):
        return stored == value
    return isinstance(stored, (int, float)) and to_number(value) is not None and to_number(stored) == to_number(value)


def naive(rule: Filter, row: dict[str, Any]) -> bool:
    if isinstance(rule, Not):
        return not naive(rule.part, row)
    if isinstance(rule, (And, Or)):
        return (all if isinstance(rule, And) else any)(naive(part, row) for part in rule.parts)
    stored = row.get(rule.column)
    if rule.operator == "in":
        return any(equals(stored, value) for value in rule.values)
    value = str(rule.values[0])
    if rule.operator == "like":
        return isinstance(stored, str) and like(stored, value)
    compare = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}[rule.operator]
    if (number := to_number(value)) is not None:
        return to_number(stored) is not None and compare(to_number(stored), number)
    return isinstance(stored, str) and compare(stored, value)


NAMES = ("a", "b c", 'or"')
texts = st.one_of(
    st.text(st.sampled_from("ab%_\\' \n.é😀"), max_size=5),
    st.sampled_from(["true", "FALSE", "null", "and", "1", "1.0", "-2", "1e400", "nan", "01", ""]),
)
stored = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(-3, 3), st.just(float("nan")), texts, st.just([1]),
    st.just({"x": 1}), st.just(10**400),
)  # fmt: skip
SOME = ["a", "=", "(", ")", "not", "or", "in", ",", "'", "null", "like"]
PLACE = (st.just(""), st.just(0))
conditions = st.one_of(
    st.builds(
        Condition, st.sampled_from(NAMES), st.just("in"), st.lists(st.none() | texts, min_size=1).map(tuple), *PLACE
    ),
    st.builds(
        Condition, st.sampled_from(NAMES), st.sampled_from(["<", "<=", ">", ">=", "like"]), st.tuples(texts), *PLACE
    ),
)
rules = st.recursive(
    conditions,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        *(st.builds(kind, st.lists(inner, min_size=2, max_size=3).map(tuple)) for kind in (And, Or)),
    ),
    max_leaves=6,
)
rows = st.lists(st.dictionaries(st.sampled_from(NAMES), stored), min_size=1, max_size=6)


def written(rule: Filter) -> str:
    """Return a filter as a user writes it, in parentheses."""
    if isinstance(rule, Not):
        return f"not ({written(rule.part)})"
    if isinstance(rule, (And, Or)):
        word = " AND " if isinstance(rule, And) else " or "
        return word.join(f"({written(part)})" for part in rule.parts)
    column = '"' + rule.column.replace('"', '""') + '"'
    values = ["null" if value is None else quoted(value) for value in rule.values]
    return f"{column} in ({', '.join(values)})" if rule.operator == "in" else f"{column} {rule.operator} {values[0]}"


def bare(rule: Filter) -> Filter:
    """Return a filter without the positions of its conditions."""
    if isinstance(rule, Condition):
        return rule._replace(source="", at=0)
    return Not(bare(rule.part)) if isinstance(rule, Not) else type(rule)(tuple(map(bare, rule.parts)))


@settings(max_examples=150)
@given(rules, rows)
@example(Condition("a", "like", ("\\",)), [{"a": "\\"}])
@example(Condition("a", "<", ("1",)), [{"a": float("nan")}, {"a": "nan"}])
def test_what_is_written_means_what_it_says_row_by_row(rule: Filter, table: list[dict[str, Any]]) -> None:
    read = parse(written(rule))
    assert bare(read) == rule
    columns = {name: Column([row.get(name) for row in table]) for name in NAMES}
    assert holding(read, columns).tolist() == [naive(rule, row) for row in table]


@settings(max_examples=150)
@given(st.text(max_size=40) | st.lists(st.sampled_from(SOME)).map(" ".join))
def test_whatever_is_written_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        parse(text)
