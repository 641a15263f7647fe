"""Distillation into fewer layers of the same encoder: the student learns the teacher's cosines, or its vectors.

The run's model is the teacher. The student starts as a copy of it with some of its layers, evenly spaced from the
first to the last, and everything else: word table, pooler, head and layers after the pooler. With the teacher's
vectors t and the student's s of a batch of N texts, what is minimised is, by `match`,

    cosines   1 / (N (N - 1)) * sum over i != j of (cos(s_i, s_j) - cos(t_i, t_j))^2
    vectors   1 / N           * sum over i      of |s_i - t_i|^2

Cosines are all that search and similarity use (Tung and Mori, 2019, match them for images); with vectors, the student
can also answer queries of an index that the teacher built. Dropout is off: the teacher has none to be matched.
"""

from __future__ import annotations

import copy
import hashlib
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError, ModelError
from twinpass.progress import Advance, bar, silent
from twinpass.training.data import TrainingData, count_rows, read_data
from twinpass.training.method import METHODS, Method, Numbers, Outcome, Start
from twinpass.training.processes import Processes

Vectors = NDArray[np.float32]
REUSED = 1.1  # a text is used at least this often, on average: then the teacher's vectors are kept


@METHODS.register("distill")
class Distillation(Method):
    """Both models read the same tokens; the teacher does not change."""

    title = "distillation into fewer layers"

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        teacher = self._load_teacher()
        student = self.load_encoder() if start.checkpoint is not None else with_layers(teacher, self.run.layers or 0)
        student.model.eval()  # dropout is off; gradients flow all the same
        self.run = run = self.run.replace(pooler=teacher.pooler)
        self.objective = f"distillation into {run.layers} layers: the {run.match} of {teacher.name} are the target"
        self.needs_negatives = run.match == "cosines"  # a text alone has no cosine to another
        self.begins_with("teacher", teacher.name, hashlib.sha256(teacher.fingerprint.encode()))
        self.student = student
        self.models = {"encoder": student}
        total = count_rows(self.rows) if run.steps is not None else None
        held = self.batches(total).visited(run.steps) if run.steps is not None and total else None
        self.data = read_data(self.rows, self.tokenizer(student), total=total, held=held)
        steps = run.steps or self.batches(self.examples).steps_in(run.epochs)
        looks = steps * min(self.per_step, self.examples)
        self.targets = Targets(teacher, self.data, self.processes, looks=looks)

    def backward(self, step: int, examples: Numbers) -> Outcome:
        """Encode this process's texts, look up the teacher's vectors, and compare the whole batch."""
        own = self.processes.share(examples)
        (texts,) = self.data.columns(own)
        vectors = self.encode([self.student] * len(own), [self.data.ids(text) for text in texts.tolist()])
        targets = torch.from_numpy(self.targets.of(texts)).to(vectors.device)
        vectors, targets = (self.processes.gather(each[None], len(examples))[0] for each in (vectors, targets))
        loss = (match_cosines if self.run.match == "cosines" else match_vectors)(vectors, targets)
        value = loss.item()
        self.propagate(loss)
        return Outcome(value, texts=len(examples), vectors=vectors.detach()[None])

    def _load_teacher(self) -> Encoder:
        run = self.run
        teacher = self.start.encoder or Encoder.load(
            run.model,
            pooler=run.pooler,
            device=str(self.device),
            trust_pickle=run.trust_pickle,
            trust_remote_code=run.trust_remote_code,
        )
        teacher.model.eval()
        return teacher


def match_cosines(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the mean squared difference of the cosines of all pairs of different texts; both are (N, d)."""
    s, t = F.normalize(student, dim=-1), F.normalize(teacher, dim=-1)
    apart = (s @ s.T - t @ t.T).square()
    pairs = len(s) * (len(s) - 1)
    return (apart.sum() - apart.diagonal().sum()) / max(pairs, 1)


def match_vectors(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the mean squared distance of the vectors; both are (N, d)."""
    return (student - teacher).square().sum() / max(len(student), 1)


class Targets:
    """The teacher's vectors of training texts, by their number.

    A run that looks at its texts more than once encodes each distinct one once, before the first step, and keeps all
    vectors in memory. Otherwise they are encoded with the batch, which costs the same and no memory. Either way a
    vector depends on the text, the data and the step only, so a resumed run sees the same.
    """

    def __init__(self, teacher: Encoder, data: TrainingData, processes: Processes, *, looks: int) -> None:
        self.teacher, self.data = teacher, data
        self._table: Vectors | None = None
        _, first, self._row_of = np.unique(data.keys, return_index=True, return_inverse=True)
        self._row_of = self._row_of.ravel()
        if looks > REUSED * len(first):
            own = processes.share(first)
            show = bar if processes.is_main and sys.stderr.isatty() else silent
            with show("encoding with the teacher", total=len(own)) as advance:
                part = self._encode(own, advance)
            self._table = np.concatenate(processes.everyones(part))

    def of(self, texts: Numbers) -> Vectors:
        """Return the vectors (n, d) of some texts."""
        if self._table is not None:
            return self._table[self._row_of[texts]]
        return self._encode(texts)

    def _encode(self, texts: Numbers, advance: Advance = lambda count: None) -> Vectors:
        ids: Any = [self.data.ids(text) for text in texts.tolist()]
        return self.teacher.encode_ids(ids, advance=advance)


def with_layers(teacher: Encoder, count: int) -> Encoder:
    """Return a copy of an encoder with fewer layers: as `choose_layers` says, each with its weights."""
    transformer: Any = teacher.model.transformer
    depth = int(transformer.config.num_hidden_layers)
    if not 1 <= count < depth:
        raise ConfigError(
            f"{teacher.name} has {depth} layers, so a student has 1 to {depth - 1}; got layers = {count}. Use fewer."
        )
    student = copy.deepcopy(teacher)
    _keep(student.model.transformer, choose_layers(depth, count))
    return student


def choose_layers(depth: int, count: int) -> list[int]:
    """Return which layers of the teacher the student starts from: the first, the last, and evenly spaced between.

    The first reads the word table and the last writes what is pooled; a student of one layer starts from the first.
    """
    return [place * (depth - 1) // max(count - 1, 1) for place in range(count)]


def _keep(transformer: Any, chosen: Sequence[int]) -> None:
    """Keep the chosen layers of a transformer, and what its config says of them."""
    config, depth = transformer.config, transformer.config.num_hidden_layers
    stacks = [
        (owner, name, child)
        for owner in transformer.modules()
        for name, child in owner.named_children()
        if isinstance(child, nn.ModuleList) and len(child) == depth
    ]
    if len(stacks) != 1:  # ALBERT, for one, uses a single layer many times
        raise ModelError(
            f"a {config.model_type} model has no list of {depth} layers to choose from. Distil another encoder, or "
            "make a static student."
        )
    ((owner, name, layers),) = stacks
    setattr(owner, name, nn.ModuleList(layers[place] for place in chosen))
    for place, layer in enumerate(getattr(owner, name)):
        for module in layer.modules():
            if isinstance(getattr(module, "layer_idx", None), int):
                module.layer_idx = place
    for field, value in vars(config).items():
        if field.startswith("layer") and isinstance(value, list) and len(value) == depth:
            setattr(config, field, [value[place] for place in chosen])
    config.num_hidden_layers = len(chosen)
