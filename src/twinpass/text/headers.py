"""Whether the first row of a table names its columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

from twinpass.text.columns import KNOWN, is_sentence, known_texts, plain, to_number

# What pandas calls its index: nothing, Unnamed: 0 once it was read back, and then Unnamed: 0.1.
_UNNAMED = re.compile(r"(Unnamed: [\d.]+)?")
_NAME = re.compile(rf"[^\W\d][\w.-]{{0,39}}|{_UNNAMED.pattern}")  # a column name in a header
# A name of several words, such as Ticket ID; what stands for a missing number is none.
_TITLE = re.compile(r"(?!(?:nan|na|n/a|none|null)$)[^\W\d][\w.-]*(?: [\w.#/()-]+){0,3}", flags=re.IGNORECASE)


def has_header(first: Sequence[Sequence[object]], header: bool | None) -> bool:
    """Tell whether the first row names the columns; only known names are evidence, or data would be lost."""
    if header is not None or not first:
        return bool(header) and bool(first)
    names = [str(value).strip() for value in first[0]]
    if len(known_texts([plain(name) for name in names])) > 1:
        return True
    others = [name for name in names if plain(name) not in KNOWN]
    return len(others) < len(names) and all(_NAME.fullmatch(name) for name in others)


def differs_from_rows(first: Sequence[Sequence[object]]) -> bool:
    """Tell whether the first row seems to be one of unknown names: short and distinct, above numbers or sentences.

    If a name has several words, it might be a sentence too: then sentences below are evidence only beside ids, dates
    or categories, which are in lower case below capitalised names: Paris below New York is none. An index without a
    name is evidence if the names beside it are single words.
    """
    names, rows = _names_and_rows(first)
    if len(rows) < 2 or not names or len({*names}) < len(names) or not _are_titles(names):
        return False
    if len(names) < len(first[0]) and _are_single(names):
        return True
    columns = [[value for value in column if value] for column in zip(*rows, strict=True)]
    if any(len(column) > 1 and all(to_number(value) is not None for value in column) for column in columns):
        return True
    if not any(len(column) > 1 and all(map(is_sentence, column)) for column in columns):
        return False
    return _are_single(names) or any(
        _are_codes(name, column) or (_are_capitalised(names) and _are_lower(column) and _are_words(name, column))
        for name, column in zip(names, columns, strict=True)
        if len(column) > 1
    )


def may_be_names(first: Sequence[Sequence[object]], *, differs: bool) -> bool:
    """Tell whether a first row that is read as text looks like column names, so that a user should know."""
    names, rows = _names_and_rows(first)
    alone = len(first[0]) == 1
    if _are_single(names):
        return differs or not alone
    if not _are_titles(names):
        return False
    if _are_capitalised(names) and (rows or not alone) and not any(map(_are_capitalised, rows)):
        return True
    if alone or not rows:  # many a first row is a short sentence
        return False
    columns = zip(names, zip(*rows, strict=True), strict=True)
    return not any(map(_are_titles, rows)) or any(_are_codes(*column) or _are_words(*column) for column in columns)


def _names_and_rows(first: Sequence[Sequence[object]]) -> tuple[list[str], list[list[str]]]:
    """Return the first row, and those below it that have as many columns; without an index that has no name."""
    names, *rows = [[str(value).strip() for value in row] for row in first]
    rows = [row for row in rows if len(row) == len(names)]
    kept = [at for at, name in enumerate(names) if not _is_index(name, [row[at] for row in rows])]
    names, *rows = [[row[at] for at in kept] for row in (names, *rows)]
    return names, rows


def _is_index(name: str, column: Sequence[str]) -> bool:
    """Tell whether a column is numbered rows, as pandas writes: different whole numbers below no name."""
    numbered = all(map(str.isdecimal, column)) and len({*column}) == len(column) > 0
    return numbered and bool(_UNNAMED.fullmatch(name))


def _are_single(names: Sequence[str]) -> bool:
    return all(name and _NAME.fullmatch(name) for name in names)


def _are_titles(values: Sequence[str]) -> bool:
    return all(_TITLE.fullmatch(value) for value in values)


def _are_capitalised(values: Sequence[str]) -> bool:
    """Tell whether every word begins with a capital letter, or with no letter, as in Ticket ID and Order (EUR)."""
    return all(word[0].isupper() or not word[0].isalpha() for value in values for word in value.split())


def _are_lower(column: Sequence[str]) -> bool:
    return len(column) > 2 and all(value[0].islower() for value in column)


def _are_codes(name: str, column: Sequence[str]) -> bool:
    """Tell whether a name without a digit stands above ids or dates: values with digits that are no sentences."""
    digits = all(any(letter.isdigit() for letter in value) and not is_sentence(value) for value in column)
    return digits and not any(letter.isdigit() for letter in name)


def _are_words(name: str, column: Sequence[str]) -> bool:
    """Tell whether a name of several words stands above single words, such as categories."""
    return len(name.split()) > 1 and all(len(value.split()) == 1 and not is_sentence(value) for value in column)
