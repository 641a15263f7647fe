"""twinpass: sentence embeddings by contrastive learning (SimCSE), from text to service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public names and their modules; a module is imported when its name is first used.
_PUBLIC = {
    "Encoder": "twinpass.encoder.encoder",
    "Index": "twinpass.search.index",
    "PRESETS": "twinpass.config",
    "Run": "twinpass.config",
    "SimCSE": "twinpass.simcse",
    "TwinpassError": "twinpass.errors",
    "UserError": "twinpass.errors",
    "analyze": "twinpass.analysis.analyze",
    "compare": "twinpass.evaluation.compare",
    "create_app": "twinpass.service.app",
    "demo": "twinpass.workflows.demo",
    "distill": "twinpass.workflows.distill",
    "doctor": "twinpass.workflows.doctor",
    "encode_file": "twinpass.bulk.encode_file",
    "evaluate": "twinpass.evaluation.evaluate",
    "evaluate_models": "twinpass.evaluation.side_by_side",
    "export": "twinpass.workflows.export",
    "fit": "twinpass.workflows.fit",
    "list_recipes": "twinpass.recipes.reproduce",
    "list_tasks": "twinpass.evaluation.tasks",
    "mine": "twinpass.workflows.mine",
    "open_corpus": "twinpass.text.corpus",
    "quantize": "twinpass.workflows.quantize",
    "reproduce": "twinpass.recipes.reproduce",
    "serve": "twinpass.service.server",
    "sweep": "twinpass.workflows.sweep",
    "task_texts": "twinpass.evaluation.evaluate",
    "train": "twinpass.workflows.train",
    "triplets": "twinpass.text.nli",
}

__all__ = [
    "PRESETS",
    "Encoder",
    "Index",
    "Run",
    "SimCSE",
    "TwinpassError",
    "UserError",
    "__version__",
    "analyze",
    "compare",
    "create_app",
    "demo",
    "distill",
    "doctor",
    "encode_file",
    "evaluate",
    "evaluate_models",
    "export",
    "fit",
    "list_recipes",
    "list_tasks",
    "mine",
    "open_corpus",
    "quantize",
    "reproduce",
    "serve",
    "sweep",
    "task_texts",
    "train",
    "triplets",
]

if TYPE_CHECKING:
    from twinpass.analysis.analyze import analyze
    from twinpass.bulk.encode_file import encode_file
    from twinpass.config import PRESETS, Run
    from twinpass.encoder.encoder import Encoder
    from twinpass.errors import TwinpassError, UserError
    from twinpass.evaluation.compare import compare
    from twinpass.evaluation.evaluate import evaluate, task_texts
    from twinpass.evaluation.side_by_side import evaluate_models
    from twinpass.evaluation.tasks import list_tasks
    from twinpass.recipes.reproduce import list_recipes, reproduce
    from twinpass.search.index import Index
    from twinpass.service.app import create_app
    from twinpass.service.server import serve
    from twinpass.simcse import SimCSE
    from twinpass.text.corpus import open_corpus
    from twinpass.text.nli import triplets
    from twinpass.workflows.demo import demo
    from twinpass.workflows.distill import distill
    from twinpass.workflows.doctor import doctor
    from twinpass.workflows.export import export
    from twinpass.workflows.fit import fit
    from twinpass.workflows.mine import mine
    from twinpass.workflows.quantize import quantize
    from twinpass.workflows.sweep import sweep
    from twinpass.workflows.train import train


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'twinpass' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
