"""Filters on metadata: `category = billing and (year >= 2020 or not author like 'A%')`, as a small language.

    filter     = and-filter { "or" and-filter }
    and-filter = part { "and" part }
    part       = "not" part | "(" filter ")" | condition
    condition  = column ("=" | "==" | "!=" | "<" | "<=" | ">" | ">=") value
               | column ["not"] "in" "(" value { "," value } ")"
               | column ["not"] "like" value
               | column "is" ["not"] "null"

A filter is never executed as code. `matching.py` evaluates it on the columns of a segment, and
`engines/milvus_filters.py` translates it for Milvus. docs/search.md says what each condition means.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, NoReturn

from twinpass.errors import ConfigError
from twinpass.registry import suggest

MOST_CHARS = 4_096  # of all filters together
MOST_CONDITIONS = 64
MOST_NESTED = 32  # parentheses and nots
MOST_PATTERN = 256  # characters of a pattern for like
SHOWN = 60  # characters on each side of the position of an error

_TOKEN = re.compile(r"(?P<symbol>==|!=|<=|>=|[=<>(),])|(?P<quote>['\"`])|(?P<word>(?:[^\s()=<>,!]|!(?!=))+)")
_COMPARISONS = {"=": "=", "==": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_OPERATORS = "= == != < <= > >= in like is"

Where = str | Sequence[str] | None


class Condition(NamedTuple):
    """A condition on one column. `in` holds for any of its values, None being a missing value; others have one."""

    column: str
    operator: str  # in < <= > >= like
    values: tuple[str | None, ...]
    source: str = ""
    at: int = 0  # of the column in the source


class Not(NamedTuple):
    """Holds where its part does not."""

    part: Filter


class And(NamedTuple):
    """Holds where all its parts do."""

    parts: tuple[Filter, ...]


class Or(NamedTuple):
    """Holds where one of its parts does."""

    parts: tuple[Filter, ...]


Filter = Condition | Not | And | Or


def parse(where: Where) -> Filter | None:
    """Read a filter, or several that must all hold; None if there is none."""
    several = isinstance(where, Iterable) and not isinstance(where, str)
    given: list[str] = [] if where is None else list(where) if several else [where]  # type: ignore[list-item]
    for each in given:
        if not isinstance(each, str):
            raise ConfigError(f"expected a filter such as 'year >= 2020', or several, got {each!r:.40}.")
    if (length := sum(map(len, given))) > MOST_CHARS:
        raise ConfigError(f"the filter has {length:,} characters; at most {MOST_CHARS:,} are read.")
    if len(given) > MOST_CONDITIONS:
        raise ConfigError(f"got {len(given):,} filters; at most {MOST_CONDITIONS} are read.")
    found = tuple(_Parser(text).parse() for text in given)
    if (count := sum(len(list(conditions(each))) for each in found)) > MOST_CONDITIONS:
        raise ConfigError(
            f"the filter has {count:,} conditions; at most {MOST_CONDITIONS} are read. For many values: in (a, b)."
        )
    return None if not found else found[0] if len(found) == 1 else And(found)


def conditions(given: Filter) -> Iterator[Condition]:
    """Yield the conditions of a filter, in their order."""
    if isinstance(given, Condition):
        yield given
    else:
        for part in (given.part,) if isinstance(given, Not) else given.parts:
            yield from conditions(part)


def check_columns(given: Filter | None, known: Sequence[str]) -> None:
    """Refuse a filter on a column that no row has."""
    for condition in () if given is None else conditions(given):
        if condition.column not in known:
            listed = f"Known: {', '.join(known)}." if known else "The index has no metadata."
            hint = f"no metadata column named {condition.column!r}.{suggest(condition.column, known)} {listed}"
            raise ConfigError(f"{hint}{_pointer(condition.source, condition.at)}")


def quoted(text: str) -> str:
    """Return a text as a filter takes it literally, whatever it holds."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _pointer(source: str, at: int) -> str:
    """Return two lines: the filter, or what is around a position in it, and a caret below that position."""
    start = max(0, at - SHOWN)
    shown = re.sub(r"\s", " ", source[start : at + SHOWN])
    return f"\n  {shown}\n  {' ' * (at - start)}^"


class _Token(NamedTuple):
    kind: str  # symbol, word, one of the quotes, or end
    text: str
    start: int
    end: int

    @property
    def keyword(self) -> str:
        """A word in lower case; nothing for what is quoted."""
        return self.text.lower() if self.kind == "word" else ""

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else repr(self.text)


class _Parser:
    """Reads one filter by recursive descent."""

    def __init__(self, source: str) -> None:
        self._source = source
        try:
            source.encode()
        except UnicodeEncodeError as error:
            self._refuse("expected text, got half of a surrogate pair", error.start)
        self._tokens = list(self._split())
        self._place = 0
        self._depth = 0
        self._equal = ("", 0)  # of the latest = or !=: what to write for several values, and where its value begins

    def parse(self) -> Filter:
        found = self._any()
        if self._next.kind != "end":
            self._refuse(f"expected 'and', 'or' or the end, got {self._next}.{self._advice()}")
        return found

    @property
    def _next(self) -> _Token:
        return self._tokens[self._place]

    def _take(self) -> _Token:
        token = self._next
        self._place += token.kind != "end"
        return token

    def _takes(self, *words: str) -> bool:
        """Take the next token if it is one of these symbols or keywords."""
        found = self._next.text if self._next.kind == "symbol" else self._next.keyword
        self._place += (taken := found in words)
        return taken

    def _split(self) -> Iterator[_Token]:
        at = 0
        while at < len(self._source):
            if self._source[at].isspace():
                at += 1
                continue
            found = _TOKEN.match(self._source, at)
            if found is None:
                self._refuse(f"expected a column, operator or value, got {self._source[at]!r}", at)
            if found.lastgroup == "quote":
                token = self._split_quoted(at)
            else:
                token = _Token(str(found.lastgroup), found.group(), at, found.end())
            yield token
            at = token.end
        yield _Token("end", "", at, at)

    def _split_quoted(self, start: int) -> _Token:
        """Read up to the closing quote; a quote inside is doubled or has a backslash before it."""
        quote, letters, at = self._source[start], [], start + 1
        while pair := self._source[at : at + 2]:
            if pair in (quote * 2, f"\\{quote}", "\\\\"):
                letters.append(pair[1])
                at += 2
            elif pair[0] != quote:
                letters.append(pair[0])
                at += 1
            else:
                break
        else:
            self._refuse(f"expected a closing {quote}", start)
        return _Token(quote, "".join(letters), start, at + 1)

    def _any(self) -> Filter:
        parts = [self._all()]
        while self._takes("or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _all(self) -> Filter:
        parts = [self._part()]
        while self._takes("and"):
            parts.append(self._part())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _part(self) -> Filter:
        self._depth += 1
        if self._depth > MOST_NESTED:
            self._refuse(f"expected at most {MOST_NESTED} levels of parentheses and nots")
        found: Filter
        if self._is_column():
            found = self._condition()
        elif self._takes("not"):
            found = Not(self._part())
        elif self._takes("("):
            found = self._any()
            if not self._takes(")"):
                self._refuse(f"expected 'and', 'or' or ')', got {self._next}.{self._advice()}")
        else:
            found = self._condition()
        self._depth -= 1
        return found

    def _is_column(self) -> bool:
        """Tell whether a word is a column although it is a keyword: an operator follows."""
        following = self._tokens[min(self._place + 1, len(self._tokens) - 1)]
        return self._next.kind == "word" and following.kind == "symbol" and following.text in _COMPARISONS

    def _condition(self) -> Filter:
        start = self._next.start
        column = self._column()
        negated = self._takes("not")
        if self._takes("in"):
            found = Condition(column, "in", self._list(), self._source, start)
        elif self._takes("like"):
            found = Condition(column, "like", (self._pattern(),), self._source, start)
        elif not negated and self._takes("is"):
            negated = self._takes("not")
            if not self._takes("null"):
                self._refuse(f"expected null after 'is', got {self._next}")
            found = Condition(column, "in", (None,), self._source, start)
        elif negated:
            self._refuse(f"expected 'in' or 'like' after 'not', got {self._next}")
        elif self._next.kind == "symbol" and self._next.text in _COMPARISONS:
            before, operator = self._next.start, _COMPARISONS[self._take().text]
            negated = operator == "!="
            at, value = self._next.start, self._value()
            if operator in ("=", "!="):
                self._equal = f"{self._source[start:before].strip()} {'not in' if negated else 'in'}", at
                found = Condition(column, "in", (value,), self._source, start)
            elif value is None:
                self._refuse("null is neither less nor greater than a value. Use: is null, is not null", at)
            else:
                found = Condition(column, operator, (value,), self._source, start)
        else:
            self._refuse(f"expected an operator ({_OPERATORS}) after the column {column!r}, got {self._next}")
        return Not(found) if negated else found

    def _column(self) -> str:
        first = self._take()
        if first.kind in ('"', "`"):
            return first.text
        if first.kind != "word":
            kind = "a column without these quotes, or in double quotes" if first.kind == "'" else "a column"
            self._refuse(f"expected {kind}, got {first}", first.start)
        last = first
        while self._next.kind == "word" and self._next.keyword not in ("and", "or", "not", "in", "like", "is"):
            last = self._take()
        return self._source[first.start : last.end]

    def _value(self) -> str | None:
        """Read a quoted text, null, or words up to `and`, `or`, an operator, a comma or a parenthesis."""
        first = self._take()
        if first.kind in ("'", '"'):
            return first.text
        if first.kind != "word":
            advice = " The empty text is written ''." if first.kind == "end" else ""
            self._refuse(f"expected a value, got {first}.{advice}", first.start)
        last = first
        while self._next.kind == "word" and self._next.keyword not in ("and", "or"):
            last = self._take()
        return None if first is last and first.keyword == "null" else self._source[first.start : last.end]

    def _list(self) -> tuple[str | None, ...]:
        if not self._takes("("):
            self._refuse(f"expected '(' after 'in', got {self._next}. Write: in (a, b)")
        values = [self._value()]
        while self._takes(","):
            values.append(self._value())
        if not self._takes(")"):
            self._refuse(f"expected ',' or ')', got {self._next}.{self._advice()}")
        return tuple(values)

    def _pattern(self) -> str:
        at, pattern = self._next.start, self._value()
        if pattern is None:
            self._refuse("expected a text after 'like', got null. Use: is null", at)
        if len(pattern) > MOST_PATTERN:
            self._refuse(f"the pattern has {len(pattern):,} characters; at most {MOST_PATTERN} are read", at)
        return pattern

    def _advice(self) -> str:
        """Say how to write what was probably meant: several values, or a text with special characters."""
        if self._next.text == "," and self._equal[0]:
            rest = [token.end for token in self._tokens[self._place :] if token.kind == "word"]
            how, at = self._equal
            return f" For several values: {how} ({self._source[at : max(rest, default=None)].strip(' ,')})"
        return " Put a text with such characters into quotes." if self._next.kind == "symbol" else ""

    def _refuse(self, problem: str, at: int | None = None) -> NoReturn:
        where = self._next.start if at is None else at
        end = "" if problem.endswith((".", ")")) else "."
        raise ConfigError(f"cannot read the filter: {problem}{end}{_pointer(self._source, where)}")
