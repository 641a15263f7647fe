"""Which columns of a table are texts, and which one is the score or the label; several columns joined into one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import NamedTuple

from twinpass.errors import InputError
from twinpass.registry import suggest
from twinpass.text.rows import BadRows, Record, Table

# Two columns that belong together, and how the names of further ones (hard negatives) begin.
GROUPS = (
    ("sent0", "sent1", "hard_neg"),
    ("anchor", "positive", "negative"),
    ("query", "positive", "negative"),
    ("sentence1", "sentence2", ""),
    ("sentence_1", "sentence_2", ""),
    ("sentence_a", "sentence_b", ""),
    ("text1", "text2", ""),
    ("premise", "hypothesis", ""),
    ("question1", "question2", ""),
    ("query", "answer", ""),
    ("query", "passage", ""),
    ("question", "answer", ""),
    ("summary", "description", ""),
)
SINGLES = ("sentence", "text")
SCORES = ("score", "similarity_score", "relatedness_score", "gold_score", "similarity", "label")
_DECIMAL = re.compile(r"\s*[+-]?\d*,\d+\s*")  # a number with a decimal comma
WORD = re.compile(r"[^\W\d_]+")
# Scripts that are written without spaces: Chinese, Japanese and their neighbours; Thai, Lao, Khmer, Burmese.
UNSPACED = re.compile(r"[\u2e80-\ua4cf\uf900-\ufaff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")
KNOWN = frozenset(name for group in GROUPS for name in group if name) | {*SINGLES, *SCORES}


class Choice(NamedTuple):
    """Positions of the text columns, and of the score and the label if there are any."""

    texts: tuple[int, ...]
    score: int | None
    label: int | None = None

    @property
    def wanted(self) -> tuple[int, ...]:
        """Every position to read: the texts, then the score, then the label."""
        return (*self.texts, *(at for at in (self.score, self.label) if at is not None))


def choose(
    table: Table,
    *,
    columns: Sequence[str] | None,
    score: str | None = None,
    label: str | None = None,
    pairs: bool = False,
    doubtful: Sequence[str] = (),
) -> Choice:
    """Choose a table's columns: those that are named, else known names, else the only one that holds sentences.

    Where several columns could be meant, InputError lists them; with `pairs`, two such columns are the pair. `doubtful`
    is a first row that may be the names of several columns: these are then not taken for texts and nothing else.
    """
    named_score = None if score is None else _find(table, score)
    named_label = None if label is None else _find(table, label)
    if columns:
        return Choice(tuple(_find(table, column) for column in columns), named_score, named_label)
    names = [plain(name) for name in table.names]
    known = tuple(at for at in known_texts(names) if at not in (named_score, named_label))
    others = (at for at in range(len(names)) if at not in (named_score, named_label))
    texts = known or tuple(at for at in others if _holds_text(table, at))
    if not texts:
        raise InputError(f"{table.name} has no column of text. Its columns: {', '.join(table.names)}.")
    if len(texts) > 1 and not known:
        texts = _settle(table, texts, pairs=pairs, doubtful=doubtful)
    found_score = _find_score(table, names, texts) if score is None and label is None else None
    _refuse_to_guess(table, names, known if found_score is None else (*known, found_score))
    return Choice(texts, named_score if found_score is None else found_score, named_label)


def plain(name: str) -> str:
    """Return a column name for comparison: lower case, underscores for spaces and dashes."""
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def known_texts(names: list[str]) -> tuple[int, ...]:
    """Return the positions of the text columns of the first group whose names are there, else of a single one."""
    for first, second, more in GROUPS:
        if first in names and second in names:
            rest = [at for at, name in enumerate(names) if more and name.startswith(more)]
            return (names.index(first), names.index(second), *rest)
    return next(((names.index(name),) for name in SINGLES if name in names), ())


def to_number(value: object, *, comma: bool = False) -> float | None:
    """Return a number, or text that reads as one, as a finite float; None for anything else.

    With `comma`, a number may have a decimal comma.
    """
    if comma:
        value = with_point(value)
    if isinstance(value, bool) or not isinstance(value, (str, int, float, Decimal)):
        return None
    if isinstance(value, str) and "_" in value:  # Python reads 4_5 as 45
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def with_point(value: object) -> object:
    """Return a number with a decimal comma as one with a point, any other value as it is."""
    return value.replace(",", ".") if isinstance(value, str) and _DECIMAL.fullmatch(value) else value


def to_label(value: object) -> str | None:
    """Return a label as text; None for a missing one, or for what is no label."""
    text = str(value).strip() if isinstance(value, (str, int, float)) and value == value else ""  # NaN is missing
    return text or None


def _find_score(table: Table, names: list[str], texts: tuple[int, ...]) -> int | None:
    """Find the score of two texts: a column of a known name, or in a table without names a last column of numbers."""
    if len(texts) != 2:
        return None
    named = [names.index(name) for name in SCORES if name in names]
    for at in named:
        if _share_of_numbers(table, at) >= 0.5:
            return at  # a value in it that is not a number makes a bad row
    _refuse_words(table, [at for at in named if names[at] != "label"], texts)
    last = len(names) - 1
    return last if _is_nameless(table) and last not in texts and _share_of_numbers(table, last) == 1 else None


def _refuse_words(table: Table, scores: Sequence[int], texts: Sequence[int]) -> None:
    """Raise InputError for a score that is words: without it, the pairs would be taken for another kind of data."""
    for at in scores:
        word = next((row[at] for row in table.sample if _is_word(row[at])), None)
        if word is not None:
            named = ",".join(table.names[text] for text in texts)
            raise InputError(
                f"{table.name}: expected numbers in column {table.names[at]!r}, got {word!r:.40}. Correct or rename "
                f"that column, or name the texts to ignore it: --columns {named} (in Python: columns={named!r})."
            )


def _is_word(value: object) -> bool:
    return isinstance(value, str) and not _is_missing(value) and to_number(value) is None


def _is_missing(value: object) -> bool:
    return value is None or str(value).strip().lower() in ("", "nan")


def _share_of_numbers(table: Table, at: int) -> float:
    return share_of_numbers([row[at] for row in table.sample])


def share_of_numbers(column: Sequence[object]) -> float:
    """Return the share of numbers among a column's values; 0 if all are empty."""
    values = [value for value in column if not _is_missing(value)]
    return sum(to_number(value) is not None for value in values) / len(values) if values else 0.0


def _holds_text(table: Table, at: int) -> bool:
    if not table.sample:
        return True  # no good row so far: reading the rows reports what is wrong with them
    return _share_of_numbers(table, at) < 1 and any(isinstance(row[at], str) for row in table.sample)


def is_sentence(value: object) -> bool:
    """Tell whether a value reads as words in a row, which an id, a category, a date or an address does not."""
    if not isinstance(value, str):
        return False
    return bool(UNSPACED.search(value)) or (len(value.split()) > 1 and len(WORD.findall(value)) > 1)


def _settle(table: Table, found: tuple[int, ...], *, pairs: bool, doubtful: Sequence[str]) -> tuple[int, ...]:
    """Return which of several columns of text are meant, or raise InputError."""
    sentences = tuple(at for at in found if _holds_sentences(table, at))
    alike = len(sentences) in (0, len(found))
    if (_is_nameless(table) and alike and len(found) <= 3 and not doubtful) or not table.sample:
        return found  # a file of texts and nothing else: sentences, pairs or triplets
    for enough in (found, sentences) if pairs else (sentences,):
        if len(enough) == 1 + pairs:
            return enough
    could = [table.names[at] for at in sentences or found]
    some = ",".join(could[:2])
    width = max(map(len, table.names))
    listed = "".join(f"\n  {name:{width}}  {_example(table, at)}" for at, name in enumerate(table.names))
    one = f"Name the one to read: --columns {could[-1]} (in Python: columns={could[-1]!r}). "
    several = f"Make one text of several: --columns {some} --join ' ' (columns={some!r}, join=' '). "
    two = f"{'Name the two' if pairs else 'Read pairs'}: --columns {some} (columns={some!r})."
    names = f"If the first row ({', '.join(doubtful)}) names the columns: --header (header=True), else --no-header. "
    advice = f"{names if doubtful else ''}{'' if pairs else one + several}{two}"
    raise InputError(f"{table.name} has several columns that could be the text:{listed}\n{advice}")


def _example(table: Table, at: int) -> str:
    """Return a column's first value that is not empty, shortened."""
    value = next((row[at] for row in table.sample if row[at] not in (None, "")), None)
    text = " ".join(str(value).split())
    return "(empty)" if value is None else text if len(text) <= 60 else f"{text[:57]}..."


def _holds_sentences(table: Table, at: int) -> bool:
    """Tell whether at least half of a column's first values are sentences."""
    values = [row[at] for row in table.sample if row[at] not in (None, "")]
    return bool(values) and 2 * sum(map(is_sentence, values)) >= len(values)


def _is_nameless(table: Table) -> bool:
    return table.names == tuple(str(at) for at in range(len(table.names)))


def passed_over(table: Table, choice: Choice) -> list[str]:
    """Return the names of the columns of text that were not chosen."""
    rest = (at for at in range(len(table.names)) if at not in choice.wanted)
    return [table.names[at] for at in rest if _holds_text(table, at)]


class Joined:
    """A table with one more column: the texts of several, one after another; empty ones are left out."""

    def __init__(self, table: Table, columns: Sequence[str], join: str) -> None:
        self.table, self.join = table, join
        self.places = [_find(table, column) for column in columns]
        self.name = table.name
        self.column = " + ".join(table.names[at] for at in self.places)
        self.names = (*table.names, self.column)
        self.sample = [[*row, self._text([row[at] for at in self.places])] for row in table.sample]

    def rows(self, wanted: Sequence[int], bad: BadRows) -> Iterator[Record]:
        """Yield the wanted columns; beyond the last is what the table has there, the whole object of JSON lines."""
        last = len(self.table.names)
        own = [min(at, last) for at in wanted if at != last]
        read = list(dict.fromkeys([*own, *self.places]))  # no column twice
        for line, values in self.table.rows(read, bad):
            of = dict(zip(read, values, strict=True))
            text = self._text([of[at] for at in self.places])
            yield line, [text if at == last else of[min(at, last)] for at in wanted]

    def _text(self, values: Sequence[object]) -> object:
        """Return the joined text; a value that is neither text nor number is returned as it is, to be reported."""
        parts = []
        for value in values:
            if isinstance(value, bool) or not (value is None or isinstance(value, (str, int, float, Decimal))):
                return value
            if value is not None and str(value).strip():
                parts.append(str(value))
        return self.join.join(parts)


def _refuse_to_guess(table: Table, names: Sequence[str], by_name: Sequence[int]) -> None:
    """Raise InputError if a column was chosen by its name and another of the same name was not."""
    for chosen in by_name:
        alike = [at for at, name in enumerate(names) if name == names[chosen]]
        if not {*alike} <= {*by_name}:
            raise InputError(
                f"{table.name} has {len(alike)} columns called {table.names[chosen]!r}. "
                f"Name one by position, counted from 0: {', '.join(map(str, alike))}."
            )


def _find(table: Table, column: str) -> int:
    """Return a column's position by its name, or by its position counted from 0."""
    if column in table.names:
        _refuse_to_guess(table, table.names, [table.names.index(column)])
        return table.names.index(column)
    if column.isdecimal() and int(column) < len(table.names):
        return int(column)
    hint = suggest(column, table.names)
    raise InputError(f"{table.name} has no column {column!r}.{hint} Its columns: {', '.join(table.names)}.")
