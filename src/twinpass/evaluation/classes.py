"""Texts with classes of your own: how often the nearest other text has the same class, and a logistic regression.

Nearest neighbour, leave one out: each text gets the class of the other text with the highest cosine. Rows of the same
text are no neighbours of each other; of equally near ones the first counts. Nothing is trained and nothing is drawn.
The logistic regression is that of the transfer tasks, on one pool of rows (nested folds).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from twinpass.encoder.any_model import Encode
from twinpass.errors import InputError
from twinpass.evaluation.answers import Predictions
from twinpass.evaluation.protocols import TransferProtocol
from twinpass.evaluation.reading import Data, Rows
from twinpass.evaluation.tasks import Part, Task
from twinpass.evaluation.transfer import TransferScores, score_transfer
from twinpass.text.corpus import open_corpus
from twinpass.vectors import unit

NEAREST, LOGISTIC = "nearest neighbour, leave one out", "logistic regression"
NAMES = ("label", "category", "class", "intent", "topic")  # of a column of classes, where none is chosen
FEWEST = 100  # texts: fewer leave folds of folds with nothing in them
_BLOCK = 1 << 24  # cosines held at a time


class ClassSet(NamedTuple):
    """Texts, the number of each one's class, the names of the classes, and the fingerprint of the file."""

    source: str
    texts: list[str]
    classes: npt.NDArray[np.int64]
    names: list[str]
    fingerprint: str

    def notes(self) -> list[str]:
        """Return what a reader of the scores should know."""
        sizes = Counter(self.classes.tolist())
        largest = 100 * max(sizes.values()) / len(self.texts)
        notes = [f"{len(self.names)} classes; always choosing the largest one is right for {largest:.2f} %"]
        if alone := sum(size == 1 for size in sizes.values()):
            notes.append(f"{alone} of them have one text only, which has no neighbour of its class")
        if len(self.texts) < FEWEST:
            notes.append(f"fewer than {FEWEST} texts: no {LOGISTIC}")
        return notes


def read_classes(place: str, columns: str | Sequence[str] | None, label: str | None) -> ClassSet | None:
    """Read a file of one text and one class per row; None if it holds pairs of texts.

    Classes are texts or numbers, in the column `label`, or without one in a column of a known name.
    """
    corpus = open_corpus(place, columns=columns, label=label, pairs=True)
    if corpus.width != 1:
        return None
    if label is None:
        others = next(iter(corpus.records()))[1]
        label = next((name for known in NAMES for name in others if name.strip().lower() == known), None)
        if label is None:
            listed = f" Its other columns: {', '.join(others)}." if others else ""
            raise InputError(f"{corpus.source}: labelled expects a column of labels. Choose it with --score.{listed}")
        corpus = open_corpus(place, columns=corpus.columns, label=label)
    rows = list(corpus)
    numbers: dict[str, int] = {}
    classes = np.array([numbers.setdefault(str(row.label), len(numbers)) for row in rows], dtype=np.int64)
    if len(numbers) < 2:
        raise InputError(f"{corpus.source}: column {label!r} has one class only ({next(iter(numbers))!r}).")
    texts = [row.texts[0] for row in rows]
    if len({*texts}) < 2:
        raise InputError(f"{corpus.source}: all rows have the same text, so none has a neighbour.")
    return ClassSet(corpus.source, texts, classes, list(numbers), corpus.fingerprint())


def nearest_neighbours(encode: Encode, asked: ClassSet) -> Predictions:
    """Give each text the class of its nearest other text."""
    vectors = unit(np.asarray(encode(asked.texts), dtype=np.float32))
    _, same = np.unique(np.asarray(asked.texts, dtype=object), return_inverse=True)
    found = np.empty(len(vectors), dtype=np.int64)
    rows = max(1, _BLOCK // len(vectors))
    for start in range(0, len(vectors), rows):
        cosines = vectors[start : start + rows] @ vectors.T
        cosines[same[start : start + rows, None] == same[None, :]] = -np.inf
        found[start : start + rows] = cosines.argmax(axis=1)
    return Predictions(asked.classes, asked.classes[found])


def regression(encode: Encode, asked: ClassSet, protocol: TransferProtocol) -> TransferScores | None:
    """Score by the transfer protocol on one pool of rows; None if there are too few of them."""
    if len(asked.texts) < FEWEST:
        return None
    task = Task(
        name=asked.source,
        kind="transfer",
        protocol="folds",
        layout="table",
        parts=(Part(name="all", files=(), rows=len(asked.texts)),),
        classes=len(asked.names),
        licence="",
        citation="",
    )
    rows = Rows([(text,) for text in asked.texts], [float(number) for number in asked.classes])
    return score_transfer(encode, Data(task, {"all": rows}, {}), protocol=protocol)
