"""The text that baselines learn from: single sentences, or pairs with an NLI label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from twinpass.errors import InputError
from twinpass.text.nli import LABEL_OF, LABELS
from twinpass.text.rows import Row, Rows

CLASSES = LABELS
CLASS_OF = {spelling: CLASSES.index(label) for spelling, label in LABEL_OF.items()}


class Sentences:
    """Every text of every row as a row of its own."""

    width = 1

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.source = rows.source

    def __iter__(self) -> Iterator[Row]:
        return (Row((text,), None, row.where) for row in self.rows for text in row.texts)

    def fingerprint(self) -> str:
        """Return a SHA-256 of the content."""
        return self.rows.fingerprint()


class LabelledPairs:
    """Rows of premise, hypothesis and label as rows of two texts; `classes` holds the labels in order."""

    width = 2

    def __init__(self, rows: Rows) -> None:
        if rows.width != 3:
            raise InputError(
                f"{rows.source} gives {rows.width} text column(s), and premise, hypothesis and label are wanted. "
                "Name the three with columns=(...)."
            )
        self.rows = rows
        self.source = rows.source
        self.classes = np.fromiter(map(_class_of, rows), np.int64)
        if len(found := Counter(self.classes.tolist())) < 2:
            only = CLASSES[next(iter(found))]
            raise InputError(f"every pair of {rows.source} is labelled {only}: there is nothing to tell apart.")

    def __iter__(self) -> Iterator[Row]:
        return (Row(row.texts[:2], None, row.where) for row in self.rows)

    def fingerprint(self) -> str:
        """Return a SHA-256 of the content."""
        return self.rows.fingerprint()


def _class_of(row: Row) -> int:
    label = row.texts[2].strip().lower()
    if label not in CLASS_OF:
        raise InputError(
            f"{row.where}: the label is one of {', '.join(CLASS_OF)}, not {row.texts[2]!r}. Leave such rows out."
        )
    return CLASS_OF[label]
