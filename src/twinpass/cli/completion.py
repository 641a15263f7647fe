"""What the Tab key offers after an option: the values it can have, found without importing anything heavy."""

from __future__ import annotations

from collections.abc import Callable, Iterable

Complete = Callable[[str], list[str]]  # from what was typed to what it can become

# These live in modules that import torch or numpy; a test compares them.
POOLERS = (
    *("cls_mlp", "cls_mlp_train", "cls", "cls_pretrained", "avg", "avg_top2", "avg_first_last"),
    *("avg_embeddings_last", "max", "mean_sqrt_length", "weighted_mean", "last_token", "mask"),
)
RECIPES = (
    *(f"table-{name}" for name in ("1", "2", "3", "4", "5", "6", "7", "8")),
    *(f"table-{name}" for name in ("a1", "b1", "b2", "b3", "c1", "d1", "d2", "e1")),
    *("figure-2", "figure-3", "figure-f1", "figure-g1", "in-text", "after-simcse", "more-kinds"),
)
SCALES = ("paper", "small", "smoke")
KINDS = ("auto", "exact", "hnsw", "ivf-pq")
LAYERS = ("whitening", "flow", "centring", "top-components")
FORMATS = ("table", "json", "csv", "markdown", "latex")
PRECISIONS = ("fp32", "bf16", "fp16", "int8")
RUNTIMES = ("torch", "openvino", "auto")


def values(names: Iterable[str] | Callable[[], Iterable[str]]) -> Complete:
    """Return a completion of these names."""

    def complete(incomplete: str) -> list[str]:
        known = names() if callable(names) else names
        return [name for name in known if name.startswith(incomplete)]

    return complete


def tasks(incomplete: str) -> list[str]:
    """Complete the last of the comma-separated tasks."""
    from twinpass.evaluation.tasks import GROUPS, TASKS

    before, comma, last = incomplete.rpartition(",")
    known = [*GROUPS, *TASKS, "scored:", "labelled:", "retrieval:", "docs-pairs:", "mteb:"]
    taken = before.split(",")
    return [f"{before}{comma}{name}" for name in known if name.startswith(last) and name not in taken]


def presets() -> Iterable[str]:
    """Return the names of the presets of `train`."""
    from twinpass.config import PRESETS

    return PRESETS
