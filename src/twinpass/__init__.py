"""twinpass: sentence embeddings by contrastive learning (SimCSE), from text to service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public names and the modules that hold them; nothing heavy is imported until one is asked for.
_PUBLIC = {
    "Encoder": "twinpass.encoder.encoder",
    "Index": "twinpass.search.index",
    "Run": "twinpass.config",
    "SimCSE": "twinpass.simcse",
    "open_corpus": "twinpass.text.corpus",
    "train": "twinpass.workflows.train",
    "TwinpassError": "twinpass.errors",
    "UserError": "twinpass.errors",
}

__all__ = ["Encoder", "Index", "Run", "SimCSE", "TwinpassError", "UserError", "__version__", "open_corpus", "train"]

if TYPE_CHECKING:
    from twinpass.config import Run
    from twinpass.encoder.encoder import Encoder
    from twinpass.errors import TwinpassError, UserError
    from twinpass.search.index import Index
    from twinpass.simcse import SimCSE
    from twinpass.text.corpus import open_corpus
    from twinpass.workflows.train import train


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'twinpass' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
