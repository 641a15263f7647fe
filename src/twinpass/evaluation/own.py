"""People's own data as tasks: `scored:FILE`, `labelled:FILE`, `retrieval:FILE`, and the built-in `docs-pairs:`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from twinpass.encoder.any_model import Encode, Model
from twinpass.errors import InputError
from twinpass.evaluation.correlation import cosine_scores
from twinpass.evaluation.items import Items, Labelled, Pairs, Queries
from twinpass.evaluation.jobs import Job, Settings, make_scores, resample
from twinpass.evaluation.questions import Question, pool_pairs, read_folder
from twinpass.evaluation.results import TaskResult
from twinpass.evaluation.retrieval import query_values
from twinpass.text.corpus import Corpus, open_corpus
from twinpass.text.docs.docstrings import MOST_CANDIDATES, held_out_pairs
from twinpass.text.sources import is_folder


def own_job(source: str, settings: Settings, *, columns: Sequence[str] | None = None, score: str | None = None) -> Job:
    """Open `KIND:PLACE`; columns and score choose a file's columns where their names do not say."""
    kind, _, place = source.partition(":")
    if kind in ("docs-pairs", "docs"):
        packages = [name for name in place.split(",") if name]
        pairs = held_out_pairs(packages)[:MOST_CANDIDATES]
        return _retrieval_job(source, pool_pairs(pairs), settings, files={source: None})
    if kind == "retrieval" and is_folder(place):
        return _retrieval_job(source, read_folder(Path(place)), settings, files={place: None})
    corpus = open_corpus(place, columns=columns, score=score)
    if corpus.width != 2:
        raise InputError(f"{place}: {kind} pairs want two text columns, got {corpus.width}. Choose with --columns.")
    files = {place: corpus.fingerprint()}
    if kind == "retrieval":
        pairs = [(row.texts[0], row.texts[1]) for row in corpus]
        return _retrieval_job(source, pool_pairs(pairs), settings, files=files)
    return _scored_job(source, corpus, settings, kind=kind, files=files)


def _scored_job(source: str, corpus: Corpus, settings: Settings, *, kind: str, files: Mapping[str, str | None]) -> Job:
    if not corpus.scored:
        raise InputError(f"{corpus.source}: {kind} pairs want a column of scores. Choose it with --score.")
    rows = list(corpus)
    gold = np.array([row.score for row in rows], dtype=np.float64)
    if kind == "labelled":
        for row in rows:
            if row.score not in (0, 1):
                raise InputError(f"{row.where}: a label of 0 or 1 is wanted, got {row.score:g}.")

    def score(encode: Encode) -> Items:
        first, second = (encode([row.texts[side] for row in rows]) for side in (0, 1))
        scores = cosine_scores(first, second)
        return Labelled(scores, gold.astype(np.int64)) if kind == "labelled" else Pairs({"all": (scores, gold)})

    texts = [text for row in rows for text in row.texts]
    return Job(source, texts, _run(source, kind, score, len(rows), settings, files))


def _retrieval_job(source: str, question: Question, settings: Settings, *, files: Mapping[str, str | None]) -> Job:
    queries, documents, relevant = question
    asked = hashlib.sha256(json.dumps(question).encode()).hexdigest()

    def score(encode: Encode) -> Items:
        return Queries(query_values(encode(queries), encode(documents), relevant), asked)

    run = _run(source, "retrieval", score, len(queries), settings, files)
    return Job(source, [*queries, *documents], run)


def _run(
    source: str,
    kind: str,
    score: Callable[[Encode], Items],
    n: int,
    settings: Settings,
    files: Mapping[str, str | None],
) -> Callable[[Encode, Model], TaskResult]:
    def run(encode: Encode, model: Model) -> TaskResult:
        items = score(encode)
        samples = resample({"items": items}, source, settings)
        over = "queries" if kind == "retrieval" else "all"
        scores = make_scores(items, samples["items"], protocol=kind, over=over, n=n)
        # One set of pairs: its mean over subsets is itself, and says nothing.
        scores = [s for s in scores if s.over not in ("mean", "wmean")]
        scores.sort(key=lambda s: s.metric != items.headline.split()[-1])
        notes = []
        if isinstance(items, Labelled):
            notes.append(f"best threshold, chosen on these pairs: cosine >= {items.threshold():.4f}")
        return TaskResult(
            task=source,
            kind=kind,
            split="all",
            scores=scores,
            items={"items": items},
            samples=samples,
            files=files,
            notes=notes,
        )

    return run
