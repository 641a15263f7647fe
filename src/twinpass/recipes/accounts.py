"""What a recipe's numbers rest on: the source files of its text, how many rows they gave, and how many were bad."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from twinpass.recipes.recipe import Recipe
from twinpass.recipes.scales import Scale, runs_at
from twinpass.recipes.subjects import Baseline, Fitted, Pooled, Subject, Trained, Words, encoder_of

if TYPE_CHECKING:
    from twinpass.recipes.corpora import Corpora

Account = dict[str, Any]


def account_for(recipe: Recipe, corpora: Corpora, scale: Scale) -> dict[str, Account]:
    """Return, for each text that the recipe's rows were made of at this scale, its files, rows and bad rows."""
    subjects = [s for row in recipe.rows for s in row.subjects.values() if runs_at(scale, encoder_of(s))]
    found: dict[str, Account] = {}
    for name, rows in dict.fromkeys(use for subject in subjects for use in _corpora_of(subject, scale)):
        account = corpora.sized(rows).account(name)
        if account is not None:  # else its row was left out, and says why
            found[name if rows == scale.rows else f"{name}, at most {rows:,}"] = account
    for kind in dict.fromkeys(kind for subject in subjects for kind in _vectors_of(subject)):
        found |= _unprepared(kind, corpora)
    return found | (_unprepared("flickr", corpora) if recipe.measure == "retrieval" else {})


def say(name: str, account: Account) -> str:
    """Say in a line what a text was made of."""
    rows, left_out = account["rows"], account["left_out"]
    line = f"{name}: " + ("" if rows is None else f"{rows:,} rows of ") + " and ".join(account["sources"])
    reasons = ", ".join(f"{count:,} ({reason})" for reason, count in left_out.items())
    return line + (f"; left out {reasons}" if reasons else "")


def _corpora_of(subject: Subject, scale: Scale) -> Iterator[tuple[str, int | None]]:
    """Yield the corpora that a subject learns from, each with the number of rows it is cut to."""
    if isinstance(subject, Trained):
        limits = [limit for limit in (scale.rows, subject.most) if limit is not None]
        yield subject.corpus, min(limits, default=None)
    if isinstance(subject, Baseline):
        yield subject.corpus, scale.rows
        if subject.start is not None:
            yield from _corpora_of(subject.start, scale)
    if isinstance(subject, (Fitted, Pooled)):
        yield from _corpora_of(subject.of, scale)
    if isinstance(subject, Fitted) and subject.on == "nli":
        yield "nli-sentences", scale.fitting_sentences


def _vectors_of(subject: Subject) -> Iterator[str]:
    """Yield the word vectors that a subject is made of."""
    if isinstance(subject, Words):
        yield subject.vectors
    if isinstance(subject, Baseline) and subject.baseline == "infersent":
        yield "glove"
    if isinstance(subject, (Fitted, Pooled)):
        yield from _vectors_of(subject.of)


def _unprepared(kind: str, corpora: Corpora) -> dict[str, Account]:
    """Return the account of files that are read as they are."""
    from twinpass.recipes.corpora import Missing

    try:
        return {kind: {"sources": corpora.names(corpora.find(kind)), "rows": None, "left_out": {}}}
    except Missing:
        return {}
