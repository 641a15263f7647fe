"""From Run.positive to rows (x, g(x)): what makes the positives, loaded when they are wanted."""

from __future__ import annotations

from collections.abc import Callable

import torch

from twinpass.config import Run
from twinpass.positive import read_positive
from twinpass.text import augment
from twinpass.text.positives import Method, WithPositives, one_by_one, take_following
from twinpass.text.rows import Rows

_OPERATORS: dict[str, Callable[[int], augment.Operator]] = {
    "crop": augment.crop,
    "delete": augment.delete,
    "delete-one": lambda _: augment.delete_one,
}


def add_positives(rows: Rows, run: Run, *, model: str, device: torch.device) -> WithPositives:
    """Return the rows with a positive each, as run.positive says; `model` is where a masked LM comes from."""
    return WithPositives(rows, _choose_method(run, model=model, device=device), seed=run.seed)


def _choose_method(run: Run, *, model: str, device: torch.device) -> Method:
    kind, amount = positive = read_positive(run.positive or "")
    name = str(positive)
    if kind == "next":
        return Method(name, lambda: take_following, ahead=amount)
    if kind == "synonym":
        from twinpass.text.wordnet import find_wordnet

        wordnet = find_wordnet(run.wordnet)
        return Method(
            name, lambda: one_by_one(augment.replace_by_synonym(wordnet.synonyms)), fingerprint=wordnet.fingerprint
        )
    if kind == "mlm":
        from twinpass.training.replacing import masked_words

        return masked_words(run, name=name, percent=amount, model=model, device=device)
    return Method(name, lambda: one_by_one(_OPERATORS[kind](amount)))
