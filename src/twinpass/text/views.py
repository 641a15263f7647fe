"""What makes a positive: which sentences of a row go through the encoder, and in which passes.

A view takes the columns of a row and returns one entry per pass through the encoder. It works alike on texts, on
token ids and on whole columns of indices, since it only arranges what it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from twinpass.errors import InputError
from twinpass.registry import Registry

T = TypeVar("T")


class View(NamedTuple):
    """A way of making positives, and the number of text columns it needs."""

    columns: int
    passes: Callable[[Sequence[Any]], tuple[Any, ...]]


def dropout(row: Sequence[T]) -> tuple[T, ...]:
    """Section 3: the positive is the same sentence, encoded a second time under another dropout mask."""
    (x,) = row
    first_pass = x  # becomes h^z
    second_pass = x  # becomes h^z', for dropout is drawn afresh for every row of every pass
    return first_pass, second_pass


def shared_dropout(row: Sequence[T]) -> tuple[T, ...]:
    """Table 3, "fixed 0.1": both views share one mask, so one pass is made and its vector used twice."""
    (x,) = row
    only_pass = x
    return (only_pass,)


def pairs(row: Sequence[T]) -> tuple[T, ...]:
    """Section 4: the positive is another sentence, known to mean the same."""
    x, x_positive = row
    return x, x_positive


def triplets(row: Sequence[T]) -> tuple[T, ...]:
    """Section 4: a pair, and a hard negative known not to mean the same."""
    x, x_positive, x_hard_negative = row
    return x, x_positive, x_hard_negative


VIEWS: Registry[View] = Registry("view")
VIEWS.add("dropout", View(1, dropout))
VIEWS.add("pairs", View(2, pairs))
VIEWS.add("triplets", View(3, triplets))


def choose_view(name: str, *, width: int, source: str) -> str:
    """Return the view for a corpus of `width` text columns; 'auto' goes by the width, a name must fit it."""
    if name != "auto":
        if VIEWS[name].columns != width:
            raise InputError(
                f"the {name} view takes {VIEWS[name].columns} text column(s), and {source} has {width}. "
                "Name the columns to use, or choose another view."
            )
        return name
    for known in VIEWS:
        if VIEWS[known].columns == width:
            return known
    raise InputError(
        f"{source} has {width} text columns; training takes one (sentences), two (pairs) or three "
        "(pairs with a hard negative). Name the columns to use."
    )
