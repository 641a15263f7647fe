"""Your own data as tasks: `scored:FILE`, `labelled:FILE`, `retrieval:FILE` or FOLDER, and built-in `docs-pairs:`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from twinpass.encoder.any_model import Encode
from twinpass.errors import InputError
from twinpass.evaluation.correlation import cosine_scores
from twinpass.evaluation.results import Items, Labelled, Pairs, Queries
from twinpass.evaluation.retrieval import RetrievalSet, pool_pairs, read_folder
from twinpass.text.corpus import Corpus, open_corpus
from twinpass.text.docs.docstrings import MOST_CANDIDATES, held_out_pairs
from twinpass.text.sources import is_folder

KINDS = ("scored", "labelled", "retrieval", "docs-pairs", "docs")


@dataclass(frozen=True)
class UserTask:
    """Texts to encode, how to score them once that is done, and the files read."""

    kind: str
    texts: list[str]
    score: Callable[[Encode], Items]
    files: Mapping[str, str | None]


def read_user_task(source: str, *, columns: Sequence[str] | None = None, score: str | None = None) -> UserTask:
    """Read `KIND:PLACE`; columns and score choose a file's columns where their names do not say which they are."""
    kind, _, place = source.partition(":")
    if kind in ("docs-pairs", "docs"):
        pairs = held_out_pairs([name for name in place.split(",") if name])
        return _retrieval(pool_pairs(pairs[:MOST_CANDIDATES]), {source: None})
    if kind == "retrieval" and is_folder(place):
        return _retrieval(read_folder(Path(place)), {place: None})
    corpus = open_corpus(place, columns=columns, score=score)
    if corpus.width != 2:
        raise InputError(f"{place}: {kind} expects two text columns, got {corpus.width}. Choose them with --columns.")
    files = {place: corpus.fingerprint()}
    if kind == "retrieval":
        return _retrieval(pool_pairs([(row.texts[0], row.texts[1]) for row in corpus]), files)
    return _scored(kind, corpus, files)


def _retrieval(asked: RetrievalSet, files: Mapping[str, str | None]) -> UserTask:
    def score(encode: Encode) -> Items:
        return Queries(asked.measure(encode), asked.digest())

    return UserTask("retrieval", [*asked.queries, *asked.documents], score, files)


def _scored(kind: str, corpus: Corpus, files: Mapping[str, str | None]) -> UserTask:
    if not corpus.scored:
        raise InputError(f"{corpus.source}: {kind} expects a column of scores. Choose it with --score.")
    rows = list(corpus)
    gold = np.array([row.score for row in rows], dtype=np.float64)
    if kind == "labelled":
        for row in rows:
            if row.score not in (0, 1):
                raise InputError(f"{row.where}: expected a label of 0 or 1, got {row.score:g}.")

    def score(encode: Encode) -> Items:
        first, second = (encode([row.texts[side] for row in rows]) for side in (0, 1))
        scores = cosine_scores(first, second)
        return Labelled(scores, gold.astype(np.int64)) if kind == "labelled" else Pairs({"all": (scores, gold)})

    return UserTask(kind, [text for row in rows for text in row.texts], score, files)
