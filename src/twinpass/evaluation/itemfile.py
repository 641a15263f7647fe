"""Items as they stand in a result file, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from twinpass.errors import InputError
from twinpass.evaluation.items import Items, Labelled, Pairs, Predictions, Queries


def to_json(items: Items) -> dict[str, Any]:
    """Return items as plain lists and numbers; scores keep seven digits, more than any rank needs."""
    if isinstance(items, Pairs):
        return {
            "pairs": {
                name: {"scores": [float(f"{s:.7g}") for s in scores], "gold": gold.tolist()}
                for name, (scores, gold) in items.subsets.items()
            }
        }
    if isinstance(items, Predictions):
        return {"gold": _digits(items.gold), "predicted": _digits(items.predicted)}
    if isinstance(items, Labelled):
        return {"labels": _digits(items.gold), "scores": [float(f"{s:.7g}") for s in items.scores]}
    return {"queries": [[float(f"{v:.7g}") for v in row] for row in items.measures]}


def from_json(document: dict[str, Any]) -> Items:
    """Rebuild items from what to_json returned."""
    try:
        for key, build in _BUILDERS.items():
            if key in document:
                return build(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"the items of a result cannot be read: {error!r}. Evaluate again.") from error
    raise InputError(f"the items of a result are of no kind known here: {', '.join(document) or 'none'}.")


def _digits(classes: npt.NDArray[np.int64]) -> str:
    return "".join(map(str, classes.tolist()))


def _classes(digits: str) -> npt.NDArray[np.int64]:
    return np.array([int(digit) for digit in digits], dtype=np.int64)


_BUILDERS: dict[str, Callable[[dict[str, Any]], Items]] = {
    "pairs": lambda d: Pairs(
        {name: (np.array(s["scores"], float), np.array(s["gold"], float)) for name, s in d["pairs"].items()}
    ),
    "predicted": lambda d: Predictions(_classes(d["gold"]), _classes(d["predicted"])),
    "labels": lambda d: Labelled(np.array(d["scores"], float), _classes(d["labels"])),
    "queries": lambda d: Queries(np.array(d["queries"], float)),
}
