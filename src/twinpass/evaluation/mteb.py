"""Our models inside mteb, and mteb's tasks as tasks of ours (extra [hub])."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from twinpass.encoder.any_model import Encode, Model, open_model
from twinpass.encoder.vector_cache import checked_vectors
from twinpass.errors import ConfigError, InputError, MissingExtra
from twinpass.evaluation.results import SCALE, Score, TaskResult
from twinpass.vectors import unit

Vectors = npt.NDArray[np.float32]


class MtebEncoder:
    """A model as `mteb.evaluate` takes one: `mteb.evaluate(MtebEncoder("minilm"), tasks)`."""

    def __init__(self, model: Model | str | Encode) -> None:
        self.model = model if isinstance(model, Model) else open_model(model)

    def encode(self, inputs: Iterable[dict[str, Any]], **options: Any) -> Vectors:
        """Return one vector per text of the batches (n, d); prompts and mteb's options are ignored."""
        return checked_vectors(self.model, [text for batch in inputs for text in batch["text"]])

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Vectors:
        """Return the cosine of each vector of one side with each of the other."""
        return _rows(embeddings1) @ _rows(embeddings2).T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Vectors:
        """Return the cosine of the vectors at the same place."""
        cosines: Vectors = (_rows(embeddings1) * _rows(embeddings2)).sum(axis=1)
        return cosines

    @property
    def mteb_model_meta(self) -> Any:
        """The model's name and revision as mteb writes them into its results."""
        from mteb.models.model_meta import ModelMeta

        name = re.sub(r"[^\w.-]+", "-", self.model.name).strip("-") or "model"
        revision = self.model.fingerprint or "unknown"
        return ModelMeta.create_empty(overwrites={"name": f"twinpass/{name}", "revision": revision})


def run_mteb(model: Model, name: str) -> TaskResult:
    """Run one task of mteb, by its own protocol, and take its main score for every split."""
    try:
        import mteb
    except ImportError as error:
        raise MissingExtra(f"mteb:{name}", "hub") from error
    try:
        task = mteb.get_task(name)
    except KeyError as error:
        raise ConfigError(f"no task of mteb named {name!r}: {error.args[0]}") from error
    return run_task(model, task)


def run_task(model: Model, task: Any) -> TaskResult:
    """Run a task object of mteb."""
    import mteb

    name = task.metadata.name
    try:
        task.load_data()
    except Exception as error:  # its data comes through many libraries, each with its own errors
        raise InputError(f"the data of mteb:{name} cannot be loaded: {error}") from error
    found = mteb.evaluate(MtebEncoder(model), task, cache=None, co2_tracker=False, show_progress_bar=False)
    scores = [
        Score(
            metric=task.metadata.main_score,
            over=f"{split} {entry['hf_subset']}",
            protocol="mteb",
            value=SCALE * float(entry["main_score"]),
        )
        for split, entries in found.task_results[0].scores.items()
        for entry in entries
    ]
    return TaskResult(
        task=f"mteb:{name}",
        kind="mteb",
        split=", ".join(found.task_results[0].scores),
        scores=scores,
        items={},
        samples={},
        notes=[f"mteb {mteb.__version__} computed this score by its own protocol, without an interval"],
    )


def _rows(vectors: Any) -> Vectors:
    """Return one vector or many as unit rows."""
    return unit(np.atleast_2d(np.asarray(vectors, dtype=np.float32)))
