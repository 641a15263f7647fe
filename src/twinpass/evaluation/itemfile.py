"""Items as they stand in a result file, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from twinpass.errors import InputError
from twinpass.evaluation.correlation import Array
from twinpass.evaluation.items import Items, Labelled, Pairs, Predictions, Queries


def to_json(items: Items) -> dict[str, Any]:
    """Return items as text: rows of numbers are one string each, or a file of them would have no end of lines."""
    if isinstance(items, Pairs):
        return {
            "pairs": {
                name: {"scores": _row(scores), "gold": _row(gold)} for name, (scores, gold) in items.subsets.items()
            }
        }
    if isinstance(items, Predictions):
        return {"gold": _digits(items.gold), "predicted": _digits(items.predicted)}
    if isinstance(items, Labelled):
        return {"labels": _digits(items.gold), "scores": _row(items.scores)}
    return {"queries": [_row(column) for column in items.measures.T], "asked": items.asked}


def from_json(document: dict[str, Any]) -> Items:
    """Rebuild items from what to_json returned."""
    try:
        for key, build in _BUILDERS.items():
            if key in document:
                return build(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"the items of a result cannot be read: {error!r}. Evaluate again.") from error
    raise InputError(f"the items of a result are of no kind known here: {', '.join(document) or 'none'}.")


def _row(numbers: Array) -> str:
    """Every digit: a rank can hang on the last one."""
    return " ".join(f"{number!r}" for number in numbers.tolist())


def _numbers(row: str) -> Array:
    return np.array(row.split(), dtype=np.float64)


def _digits(classes: npt.NDArray[np.int64]) -> str:
    return "".join(map(str, classes.tolist()))


def _classes(digits: str) -> npt.NDArray[np.int64]:
    return np.array([int(digit) for digit in digits], dtype=np.int64)


_BUILDERS: dict[str, Callable[[dict[str, Any]], Items]] = {
    "pairs": lambda d: Pairs(
        {name: (_numbers(part["scores"]), _numbers(part["gold"])) for name, part in d["pairs"].items()}
    ),
    "predicted": lambda d: Predictions(_classes(d["gold"]), _classes(d["predicted"])),
    "labels": lambda d: Labelled(_numbers(d["scores"]), _classes(d["labels"])),
    "queries": lambda d: Queries(np.stack([_numbers(row) for row in d["queries"]], axis=1), d["asked"]),
}
