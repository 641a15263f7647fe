"""Telling a plain English sentence from code, fragments and formulas."""

from __future__ import annotations

import re

FEWEST_WORDS, MOST_WORDS = 4, 60
LONGEST_TITLE = 25  # words; what is longer and has no full stop is several things run together

_COMMON = frozenset(
    """
    a about after all also an and any are as at be because been before being between both but by can could do
    does each either else every few first for from given has have how if in into is it its least like make may
    more most must no not of on once one only or other our over same should since so some such than that the
    their them then there these they this those to two under until up use used using was we were what when
    where whether which while who whose will with within without would you your
    """.split()  # noqa: SIM905 -- a list would be a hundred lines
)
_PLAIN_WORD = re.compile(r"[\"'(\[]*[A-Za-z][a-z]*(?:['’-][A-Za-z]?[a-z]+)*[\"')\],.;:!?]*")
_NEVER = re.compile(r"[\\{}<>|=^~@#$%*`_\x00-\x1f]{2}|[\\{}<>|=`@$^~]|::|https?:|www\.|\.\.\.|--|\*\*|\(\)\(|__")
_HANGING = re.compile(r"\b(?:a|an|and|are|as|at|by|e\.g|for|from|i\.e|in|is|of|or|see|the|to|with)[.,:;?!)\s]*$", re.I)
_BEGINNING = re.compile(r"(?!TODO|FIXME|XXX|NOTE\b)[\"'(]?[A-Z0-9]")


def is_sentence(text: str, *, needs_end: bool = True) -> bool:
    """Say whether a text is one plain English sentence; titles and summaries may lack the full stop."""
    if not _BEGINNING.match(text) or _NEVER.search(text) or not text.isascii():
        return False
    if not text.endswith((".", "!", "?", '."', ".)", ".'")) and (needs_end or not _is_title(text)):
        return False
    if text.endswith((":", ",", ";", "-", "(")) or _HANGING.search(text) or not _is_balanced(text):
        return False
    words = text.split()
    return FEWEST_WORDS <= len(words) <= MOST_WORDS and _reads_as_english(words)


def _is_title(text: str) -> bool:
    """Say whether a text without a full stop is short and of one piece, as a summary line is."""
    return len(text.split()) <= LONGEST_TITLE and ". " not in text


def _reads_as_english(words: list[str]) -> bool:
    plain = sum(1 for word in words if _PLAIN_WORD.fullmatch(word))
    common = sum(1 for word in words if word.strip("\"'().,;:!?").lower() in _COMMON)
    return plain >= 0.8 * len(words) and common >= max(1, len(words) // 8)


def _is_balanced(text: str) -> bool:
    return text.count("(") == text.count(")") and text.count("[") == text.count("]") and text.count('"') % 2 == 0
