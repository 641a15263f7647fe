"""SimCSE (Gao, Yao and Chen, 2021): two passes of one sentence, a pair, or a triplet; Eqs. 1, 4, 5 and 8.

The same encoder learns from classes and graded pairs, and from several files in turn: see `training/objectives.py`.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from twinpass.config import Run
from twinpass.display import counted
from twinpass.encoder.encoder import Encoder
from twinpass.encoder.folder import read_settings
from twinpass.encoder.load import find_folder, released_settings
from twinpass.encoder.lora import find_base
from twinpass.errors import ConfigError
from twinpass.log import Mixed
from twinpass.text.rows import Rows
from twinpass.text.views import add_positives, choose_view
from twinpass.training.batches import MixedBatches, Schedule, whose_turn
from twinpass.training.chunked import Ids
from twinpass.training.data import Sentences, Tokenize, TrainingData, read_data
from twinpass.training.matryoshka import over_prefixes
from twinpass.training.method import METHODS, Method, Numbers, Outcome, Start
from twinpass.training.methods.mlm import load_mlm, masked_words, trust_of, weights_of
from twinpass.training.mixture import Mixture, parts_in
from twinpass.training.objectives import Contrastive, Lesson, contrastive_loss, make_objective

__all__ = ["OfSentences", "SimCSE", "contrastive_loss"]


@METHODS.register("simcse")
class SimCSE(Method):
    """Each row's positive is pulled close, the other rows of the batch are pushed away."""

    title = "SimCSE (Gao et al., 2021)"

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        run, parts = self.run, parts_in(self.rows, self.run)
        self.parts = [make_objective(part.run, part.rows, name=part.name) for part in parts]
        self.shares = [part.share for part in parts]
        self.part = self.parts[0]  # whose turn it is
        self.views = tuple(part.view_name for part in self.parts) if run.method == "simcse" else ()
        self.notes += [note for part in self.parts for note in part.notes]
        about = self.part.about if len(parts) == 1 else f"a mixture of {len(parts)} parts, one at a step"
        self.objective = getattr(type(self), "objective", about)
        self.encoders = self._load_encoders()
        self.models = dict(zip(("encoder", "second"), self.encoders, strict=False))
        self.run = run = run.replace(pooler=self.encoders[0].pooler)
        self.read_used(self.tokenizer(self.encoders[0]))
        self.data = self.part.data
        self.offsets = np.r_[0, np.cumsum([len(part.data) for part in self.parts])]
        if run.lora is not None:  # checkpoints hold its matrices only
            base = self.encoders[0].settings.base
            folder = str(find_base(base, folder=Path(run.output)))
            self.begins_with("model", base, hashlib.sha256(weights_of(folder, **trust_of(run)).encode()))
        self.mlm = None
        if run.mlm_weight:
            self.mlm = load_mlm(self.encoders[0], run, rate=run.mlm_rate, resumed=start.checkpoint is not None)
            self.heads = {"mlm": self.mlm.head}

    @classmethod
    def read(cls, run: Run, rows: Rows, *, model: str, device: torch.device) -> tuple[Run, Rows]:
        """Make positives where the run says how, and choose the view by the number of columns, label and score."""
        parts = []
        for part in parts_in(rows, run):
            own, text, view = part.run, part.rows, part.run.view
            if own.positive is not None:
                view = "auto"
                text = add_positives(text, own, masked_words=partial(masked_words, run=own, model=model, device=device))
            view = "classes" if own.label is not None else "scores" if own.score is not None else view
            view = choose_view(view, width=text.width, source=text.source)
            parts.append(part._replace(run=own.replace(view=view).check(), rows=text))
        if isinstance(rows, Mixture):
            return (run.replace(view=parts[0].run.view) if run.data else run), Mixture(parts)
        return parts[0].run, parts[0].rows

    @property
    def why(self) -> str:
        """The columns, or how positives are made."""
        return self.parts[0].why if len(self.parts) == 1 else f"it was given {len(self.parts)} files"

    @property
    def examples(self) -> int:
        """The number of rows of all parts."""
        return int(self.offsets[-1])

    @property
    def overlap(self) -> float | None:
        """The lexical overlap of the pairs of a run with one part."""
        return self.data.overlap if len(self.parts) == 1 else None

    def mixed(self) -> list[Mixed]:
        """Return what each part of a mixture is."""
        if len(self.parts) == 1:
            return []
        return [
            Mixed(
                name=part.name,
                objective=part.about,
                view=part.view_name,
                why=part.why,
                rows=len(part.data),
                share=float(share / sum(self.shares)),
                batch_size=min(part.run.batch_size, len(part.data)),
                lexical_overlap=part.data.overlap,
            )
            for part, share in zip(self.parts, self.shares, strict=True)
        ]

    def read_used(self, tokenize: Tokenize) -> None:
        """Tokenise the rows; where few steps are asked for, only those that they use."""
        steps = self.run.steps
        if steps is not None:
            turns = self._turns(steps)
            for part, own in zip(self.parts, turns, strict=True):
                part.read(tokenize, steps=own)
            return
        for part in self.parts:
            part.read(tokenize, steps=None)
        if len(self.parts) > 1:
            self._turns(self.schedule().steps_in(self.run.epochs))

    def _turns(self, steps: int) -> list[int]:
        """Return how many of the steps each part has; a part without one is refused."""
        turns: list[int] = np.bincount(whose_turn(self.shares, steps), minlength=len(self.parts)).tolist()
        if 0 in turns:
            raise ConfigError(
                f"{self.parts[turns.index(0)].name} has no turn in {counted(steps, 'step')}. Train for longer, "
                "give it a larger share, or leave it out."
            )
        return turns

    def schedule(self) -> Schedule:
        """Return the batches of the run; the parts of a mixture take turns."""
        every = [part.batches(len(part.data)) for part in self.parts]
        return every[0] if len(every) == 1 else MixedBatches(every, self.shares)

    def describe(self, examples: Numbers) -> list[str]:
        """Return "file:line: text" for some rows of one part."""
        place = self._place_of(examples)
        return self.parts[place].describe(examples - self.offsets[place])

    # What the methods that build on SimCSE replace.

    def passes(self, step: int, own: Numbers) -> list[Ids]:
        """Return the token ids of every pass over this process's rows of the part whose turn it is."""
        # The view says which sentences make which passes; for unsupervised SimCSE every sentence makes two.
        return [[self.part.data.ids(text) for text in texts] for texts in self.part.passes(own)]

    def project(self, vectors: Tensor, passes: Sequence[Ids]) -> Tensor:
        """Return what is compared, from the vectors (passes, rows, d) of this process's rows."""
        return vectors

    def learn(self, vectors: Tensor, more: Tensor | None, step: int, rows: Numbers) -> Lesson:
        """Return the loss of the vectors (passes, rows, d) of the whole batch, and of further hard negatives (M, d)."""
        passes = [*vectors] if more is None else [*vectors, more]
        return over_prefixes(lambda part: self.part.lesson(part, rows), passes, self.encoders[0].settings.matryoshka)

    def backward(self, step: int, examples: Numbers) -> Outcome:
        """Encode a batch's passes, compute the loss over all of them, and send it back to the parameters."""
        run, place = self.run, self._place_of(examples)
        self.part, rows = self.parts[place], examples - self.offsets[place]
        own = self.processes.share(rows)
        passes = self.passes(step, own)
        ids = [text for one_pass in passes for text in one_pass]
        last = len(self.encoders) - 1
        encoder_of = [self.encoders[min(at, last)] for at, one_pass in enumerate(passes) for _ in one_pass]
        encoded, more = self.encode(encoder_of, ids), None
        if self.part.ragged:  # the last pass holds any number of hard negatives of each row
            counts = [len(self.part.passes(share)[-1]) for share in self.processes.shares(rows)]
            encoded, more = torch.split(encoded, [len(ids) - len(passes[-1]), len(passes[-1])])
            more, passes = self.processes.gather(more[None], counts)[0], passes[:-1]
        vectors = encoded.view(len(passes), len(own), self.encoders[0].dimensions)
        vectors = self.processes.gather(self.project(vectors, passes), len(rows))
        lesson = self.learn(vectors, more, step, rows)
        value = lesson.loss.item()
        self.propagate(lesson.loss)

        mlm_loss = None
        if self.mlm is not None:
            random = np.random.default_rng([run.seed, step, self.processes.rank])
            corrupted = [self.mlm.corrupt(each, random) for each in ids]
            mlm_loss = self.mlm.propagate(corrupted, weight=run.mlm_weight, processes=self.processes)
        return Outcome(
            value + (mlm_loss or 0.0),
            texts=len(passes) * len(rows) + (0 if more is None else len(more)),
            negatives=lesson.negatives,
            masked=lesson.masked,
            mlm_loss=mlm_loss,
            vectors=vectors.detach(),
            part=self.part.name if len(self.parts) > 1 else "",
        )

    def make_optimizer(self, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
        """Make AdamW over all parameters alike, as the authors do."""
        run, fused = self.run, self.device.type in ("cpu", "cuda")
        return torch.optim.AdamW(parameters, lr=run.learning_rate, weight_decay=run.weight_decay, fused=fused)

    def _place_of(self, examples: Numbers) -> int:
        """Return which part a batch is of; the rows of a part are numbered after those of the parts before it."""
        return int(np.searchsorted(self.offsets, examples[0], side="right")) - 1

    def _load_encoders(self) -> list[Encoder]:
        """Load one encoder, or two for a dual encoder; both start from one model, each with its own new MLP."""
        pooler = None if self.start.encoder or self.start.checkpoint else _pooler(self.part.run)
        template = self.run.template if self.run.pooler == "mask" else None
        first = self.load_encoder("encoder", pooler=pooler, seed=self.run.seed, template=template)
        if not self.run.dual_encoder:
            return [first]
        if self.start.encoder is not None and self.start.checkpoint is None:
            return [first, copy.deepcopy(first)]
        return [first, self.load_encoder("second", pooler=pooler, seed=self.run.seed + 1)]


class OfSentences(SimCSE):
    """What the methods share that add something to unsupervised SimCSE: they read every text as a sentence."""

    part: Contrastive

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        self.more_negatives = 0.0  # per anchor, besides those of the batch

    @classmethod
    def read(cls, run: Run, rows: Rows, *, model: str, device: torch.device) -> tuple[Run, Rows]:
        """Read every text as a sentence."""
        return run, Sentences(rows)

    def read_again(self, tokenize: Tokenize) -> TrainingData:
        """Tokenise the same sentences in another way."""
        return read_data(self.rows, tokenize, total=len(self.data), held=self.data.held)

    @property
    def why(self) -> str:
        """What is read."""
        return f"{self.rows.source} is read as: sentences"

    def learn(self, vectors: Tensor, more: Tensor | None, step: int, rows: Numbers) -> Lesson:
        """Return the loss of the vectors (passes, rows, d), of which exact duplicates are masked."""
        hidden, negatives, masked = self.part.mask(rows, vectors.device)
        loss = self.compare(vectors, hidden, step, rows)
        return Lesson(loss, negatives + self.more_negatives, masked)

    def compare(self, vectors: Tensor, mask: Tensor | None, step: int, examples: Numbers) -> Tensor:
        """Return Eq. 4 of the first two passes."""
        return contrastive_loss("dropout", vectors[:2].unbind(), self.run, mask)


def _pooler(run: Run) -> str | None:
    """Return the pooler to load with: the run's, None for the model's own, or the paper's for a bare model."""
    if run.pooler is not None:
        return run.pooler
    folder = find_folder(run.model, trust_pickle=run.trust_pickle, trust_remote_code=run.trust_remote_code)
    if read_settings(folder) or released_settings(run.model):
        return None
    supervised = run.view in ("pairs", "triplets", "classes", "scores") and run.positive is None
    return "cls_mlp" if supervised else "cls_mlp_train"
