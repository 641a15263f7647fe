"""The checkpoints that the paper's authors released: bare transformers, so how they pool is written down here."""

from __future__ import annotations

from twinpass.encoder.settings import Settings

SIZES = ("bert-base-uncased", "bert-large-uncased", "roberta-base", "roberta-large")
# The MLP of the supervised models lies in the checkpoint's own pooler; that of the unsupervised ones was for training.
RELEASED = {f"princeton-nlp/unsup-simcse-{size}": "cls" for size in SIZES} | {
    f"princeton-nlp/sup-simcse-{size}": "cls_pretrained" for size in SIZES
}


def released_settings(name: str) -> Settings | None:
    """Return how a released checkpoint of exactly this name makes vectors, or None for any other."""
    return Settings(pooler=RELEASED[name]) if name in RELEASED else None
