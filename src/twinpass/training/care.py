"""Care for the data: does training text occur in an evaluation, and how alike are the words of a pair?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from twinpass.text.rows import Row, text_key

EXAMPLES = 5


class Leakage(NamedTuple):
    """What an evaluation shares with training text."""

    sentences: int  # distinct sentences of the evaluation that occur in training
    of_sentences: int
    rows: int  # rows of the evaluation all of whose texts occur in training
    of_rows: int
    examples: tuple[str, ...]  # "file:line: text" in the training text


def leakage(training: Iterable[Row], evaluation: Iterable[Row]) -> Leakage:
    """Find evaluation sentences in training text; case, spaces and punctuation do not count."""
    rows = [[text_key(text) for text in row.texts] for row in evaluation]
    wanted = {key for row in rows for key in row if key}
    found: set[bytes] = set()
    examples: list[str] = []
    for row in training:
        for text in row.texts:
            key = text_key(text)
            if key in wanted and key not in found:
                found.add(key)
                if len(examples) < EXAMPLES:
                    examples.append(f"{row.where}: {text}")
    whole = sum(1 for row in rows if all(key in found for key in row))
    return Leakage(len(found), len(wanted), whole, len(rows), tuple(examples))


def lexical_overlap(pairs: Iterable[Sequence[str]]) -> float:
    """Return the mean F1 between the bags of words of each row's first two texts (section 4)."""
    scores = [overlap_f1(texts[0], texts[1]) for texts in pairs]
    return sum(scores) / len(scores) if scores else 0.0


def overlap_f1(left: str, right: str) -> float:
    """Return the F1 between two bags of lowercased words."""
    a, b = Counter(_words(left)), Counter(_words(right))
    shared, total = sum((a & b).values()), sum(a.values()) + sum(b.values())
    return 2 * shared / total if total else 0.0


def _words(text: str) -> list[str]:
    """Split into runs of letters and digits, so that a comma sticking to a word does not matter."""
    return "".join(c if c.isalnum() else " " for c in text.casefold()).split()
