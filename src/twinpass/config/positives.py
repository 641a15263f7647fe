"""How `positive` is spelt: the ways of making positives from single sentences."""

from __future__ import annotations

import re
from typing import NamedTuple

from twinpass.errors import ConfigError
from twinpass.registry import suggest


class Positive(NamedTuple):
    """A way of making positives: its kind, and how much of it (0 where there is no amount)."""

    kind: str
    amount: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.amount}" if self.amount else self.kind


_PERCENT, _COUNT = range(1, 100), range(1, 1000)
# How `positive` is spelt: the kinds, each with the amounts that may follow the colon (None: no colon either).
POSITIVES: dict[str, range | None] = {
    "crop": _PERCENT,
    "delete": _PERCENT,
    "delete-one": None,
    "synonym": None,
    "mlm": _PERCENT,
    "next": _COUNT,
}


def read_positive(text: str) -> Positive:
    """Read `crop:10`, `delete-one` and so on, or raise ConfigError with a suggestion."""
    kind, colon, amount = text.partition(":")
    if kind not in POSITIVES:
        known = ", ".join(f"{name}:N" if amounts else name for name, amounts in POSITIVES.items())
        raise ConfigError(f"no positive named {text!r}.{suggest(kind, POSITIVES)} Known: {known}.")
    amounts = POSITIVES[kind]
    if amounts is None:
        if colon:
            raise ConfigError(f"positive {kind!r} takes no amount; got {text!r}. Write {kind}.")
        return Positive(kind, 0)
    if not re.fullmatch("[0-9]{1,3}", amount) or int(amount) not in amounts:
        what, example = ("sentences", 3) if kind == "next" else ("per cent", 10)
        raise ConfigError(
            f"positive {kind!r} expects a whole number of {what} from {amounts[0]} to {amounts[-1]} after a colon, "
            f"as in {kind}:{example}; got {text!r}."
        )
    return Positive(kind, int(amount))
