"""What a training method is: everything in which one differs from another, and nothing of the loop.

A method is one file of `methods/`. It says what it reads (`read`), what it trains (`models`, `heads`), how a batch
becomes a loss (`loss` or `backward`), which optimizer and schedule it uses, and which model may be kept
(`candidates`). Only its default settings are elsewhere, in `config.METHOD_DEFAULTS`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from twinpass.config import METHOD_DEFAULTS, Run
from twinpass.encoder.encoder import Encoder
from twinpass.encoder.lora import add_lora, merged
from twinpass.errors import ConfigError
from twinpass.log import Mixed
from twinpass.registry import Registry
from twinpass.text.rows import Rows
from twinpass.training.batches import Batches, Schedule
from twinpass.training.chunked import Ids, cut_chunks, encode_cached, encode_directly
from twinpass.training.data import Sentences, Tokenize, TrainingData, find_rows
from twinpass.training.matryoshka import sizes_of
from twinpass.training.processes import Processes

Numbers = NDArray[np.int64]
Encode = Callable[[Sequence[str]], NDArray[np.float32]]


class Trainable(Protocol):
    """A sentence encoder as the trainer sees it; an Encoder is one."""

    @property
    def model(self) -> nn.Module:
        """Its weights."""

    @property
    def encode(self) -> Encode:
        """From texts to vectors."""

    @property
    def dimensions(self) -> int:
        """The length of a vector."""

    @property
    def fingerprint(self) -> str:
        """A hash of its content."""

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write it."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """What a method starts from."""

    run: Run
    rows: Rows  # as `read` returned them
    device: torch.device
    processes: Processes
    encoder: Encoder | None = None  # used instead of the run's model
    checkpoint: Path | None = None  # of a run that is resumed


class Outcome(NamedTuple):
    """The numbers of one step."""

    loss: float
    texts: int  # that went through an encoder
    negatives: float = 0.0  # per anchor
    masked: int = 0  # false negatives
    mlm_loss: float | None = None
    vectors: Tensor | None = None  # (passes, examples, d), to find the texts of a loss that is not finite
    part: str = ""  # of a mixture: which part the batch was of


class Method:
    """A method ready to train; a subclass sets `models`, `data` and what else differs in its constructor."""

    title: ClassVar[str]  # for the model card
    objective: str  # what is learned, in one line
    main: ClassVar[str] = "encoder"  # the model that is kept where no dev set decides
    several_processes: ClassVar[bool] = True
    needs_negatives: bool = False  # whether an example alone in a batch teaches nothing
    texts_per_example: ClassVar[int] = 1
    negatives: float = 0.0
    views: tuple[str, ...] = ()  # of SimCSE: the view of each part of its data

    data: TrainingData
    models: Mapping[str, Trainable]  # the sentence encoders that are trained

    def __init__(self, start: Start) -> None:
        self.start, self.run, self.rows = start, start.run, start.rows
        self.processes, self.device = start.processes, start.device
        self.heads: Mapping[str, nn.Module] = {}  # what is trained with the models, and kept in checkpoints only
        self.per_step = start.run.batch_size  # examples in a step
        self.memory: dict[str, float] = {}  # what a resumed run must know besides weights and optimizer states
        self.tensors: dict[str, Tensor] = {}  # the same, as tensors
        self.notes: list[str] = []  # what a user should know of the data before the first step
        self._begun_with: dict[str, str] = {}  # models that help and do not change, by what they are
        self._pending: list[Callable[[], None]] = []

    # What it reads.

    @classmethod
    def read(cls, run: Run, rows: Rows, *, model: str, device: torch.device) -> tuple[Run, Rows]:
        """Return the run with what the rows decide, and the rows as this method sees them; refuse what cannot work."""
        return run, Sentences(rows)

    @property
    def examples(self) -> int:
        """The number of examples in one epoch."""
        return len(self.data)

    @property
    def why(self) -> str:
        """Why the objective is this one."""
        return f"{self.rows.source} is read as: {METHOD_DEFAULTS[self.run.method].reads.partition(';')[0]}"

    def describe(self, examples: Numbers) -> list[str]:
        """Return "file:line: text" for some examples."""
        return find_rows(self.rows, examples.tolist())

    @property
    def overlap(self) -> float | None:
        """The lexical overlap of the data's pairs, where it has any."""
        return self.data.overlap

    def mixed(self) -> list[Mixed]:
        """Return what each part of a mixture is; nothing where there is no mixture."""
        return []

    def batches(self, examples: int) -> Batches:
        """Return the order in which examples are used."""
        return Batches(examples, self.per_step, self.run.seed, needs_negatives=self.needs_negatives)

    def schedule(self) -> Schedule:
        """Return the batches of the run."""
        return self.batches(self.examples)

    # What it trains.

    def load_encoder(
        self, name: str = "encoder", *, pooler: str | None = None, seed: int | None = None, template: str | None = None
    ) -> Encoder:
        """Load an encoder ready to train: from the checkpoint of a resumed run, or else the run's model."""
        run, folder = self.run, self.start.checkpoint
        options: dict[str, Any] = {} if folder else {"pooler": pooler, "fresh_head_seed": seed, "template": template}
        source: str | Path = run.model if folder is None else folder / ("" if name == self.main else name)
        encoder = self.start.encoder if folder is None else None
        if encoder is None:
            encoder = Encoder.load(
                source,
                device=str(self.device),
                dropout=run.dropout,
                keep_adapter=run.lora is not None and folder is not None,
                trust_pickle=run.trust_pickle,
                trust_remote_code=run.trust_remote_code,
                **options,
            )
        sizes = sizes_of(run, encoder.dimensions)  # a model that is trained on without them forgets the earlier ones
        encoder.settings = replace(encoder.settings, matryoshka=sizes)
        if run.lora is not None and self.start.encoder is not None:
            raise ConfigError("lora needs a model by name (model=), which its checkpoints refer to, not an Encoder.")
        if run.lora is not None and folder is None:
            add_lora(encoder, run.lora, run.lora_alpha or 2 * run.lora)
        encoder.model.train()
        if run.grad_checkpointing:
            if run.lora is not None:  # else nothing before a layer needs a gradient, and checkpoints would have none
                encoder.model.transformer.enable_input_require_grads()  # type: ignore[operator]
            encoder.model.transformer.gradient_checkpointing_enable()  # type: ignore[operator]
        return encoder

    def load_plain_encoder(self, name: str = "encoder") -> Encoder:
        """Load an encoder under the run's pooler, without layers that were fitted to its vectors before."""
        encoder = self.load_encoder(name, pooler=self.run.pooler, seed=self.run.seed)
        if self.start.checkpoint is None:
            # A final normalisation, say, would keep a dot product within 1, where CT's sigmoid is almost flat.
            encoder.model.layers = nn.Sequential()
        self.run = self.run.replace(pooler=encoder.pooler)
        return encoder

    @staticmethod
    def load_saved(folder: Path, device: torch.device) -> Trainable:
        """Load a model that this method saved."""
        return Encoder.load(folder, device=str(device))

    def load_best(self, folder: Path) -> Trainable:
        """Load a model that was kept while this run trained."""
        if self.run.lora is not None:
            return Encoder.load(folder, device=str(self.device), keep_adapter=True)
        return self.load_saved(folder, self.device)

    def finish(self, kept: Trainable) -> Trainable:
        """Return the model that a finished run leaves: with LoRA, merged or as an adapter."""
        return merged(kept) if self.run.lora_merge and isinstance(kept, Encoder) else kept

    def token_limit(self, encoder: Encoder) -> int:
        """Return the number of tokens that texts are truncated to: the run's limit, or the model's if it is lower."""
        return min(self.run.max_tokens, encoder.max_tokens or self.run.max_tokens)

    def tokenizer(self, encoder: Encoder) -> Tokenize:
        """Return the function from texts to truncated token ids."""
        return partial(encoder.tokenize, max_tokens=self.token_limit(encoder))

    def parameters(self) -> dict[nn.Parameter, str]:
        """Return every trained parameter once, whatever is tied to what, with its name."""
        names: dict[nn.Parameter, str] = {}
        modules = {name: model.model for name, model in self.models.items()}
        for prefix, module in {**modules, **self.heads}.items():
            for name, parameter in module.named_parameters():
                if parameter.requires_grad:
                    names.setdefault(parameter, f"{prefix}.{name}")
        return names

    def candidates(self) -> Mapping[str, Trainable]:
        """Return the models that may be kept, up to date; the best by dev is."""
        return {self.main: self.models[self.main]}

    # How a batch becomes a loss.

    def loss(self, examples: Numbers, random: np.random.Generator) -> Tensor:
        """Return this process's part of a batch's loss; the parts of all processes add up to it."""
        raise NotImplementedError(f"{type(self).__name__} defines neither loss nor backward")

    def backward(self, step: int, examples: Numbers) -> Outcome:
        """Compute the gradient of a batch; what is random depends on the step's number alone."""
        loss = self.loss(examples, np.random.default_rng([self.run.seed, step, 1]))
        self.propagate(loss)
        value = self.processes.total(float(loss.detach()))
        return Outcome(value, texts=len(examples) * self.texts_per_example, negatives=self.negatives)

    def encode(self, encoder_of: Sequence[Encoder], ids: Ids) -> Tensor:
        """Return the vectors (n, d) of tokenised texts, in order, ready for `propagate`."""
        chunks = cut_chunks(ids, encoder_of, token_budget=self.run.chunk_tokens)
        encode = encode_cached if self.run.chunk_tokens else encode_directly
        dimensions = next(iter(self.models.values())).dimensions
        encoded = encode(chunks, ids, dimensions=dimensions, autocast=self.processes.accelerator.autocast)
        self._pending.append(encoded.propagate)
        return encoded.vectors

    def propagate(self, loss: Tensor) -> None:
        """Send a loss back to the parameters, through the chunks that were encoded for it."""
        pending, self._pending = self._pending, []
        if loss.requires_grad:
            self.processes.accelerator.backward(loss)
            for propagate in pending:
                propagate()

    def mean_over_all(self, loss: Tensor, own: Numbers, examples: Numbers) -> Tensor:
        """Scale the mean over this process's examples so that the processes' parts add up to the batch's mean."""
        return loss * (len(own) / len(examples))

    def begins_with(self, what: str, name: str, content: hashlib._Hash) -> None:
        """Note the content of a model that helps and does not change: a run is resumed only with the same one."""
        self._begun_with[what] = name
        self.tensors[what] = torch.tensor(list(content.digest()), dtype=torch.uint8, device=self.device)

    def restore(self, memory: dict[str, float], tensors: dict[str, Tensor]) -> None:
        """Take back what a checkpoint kept of `memory` and `tensors`; go on only with the models it began with."""
        for what, name in self._begun_with.items():
            if not torch.equal(tensors[what], self.tensors[what]):
                raise ConfigError(
                    f"{name} is not the {what} that this run began with: its weights or settings differ. Resume with "
                    f"the same {what}, or start again in another folder."
                )
        self.memory, self.tensors = memory, tensors

    # Which optimizer and schedule it uses.

    def make_optimizer(self, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
        """Make AdamW; weight decay applies to matrices, not to biases and norms."""
        decay = self.run.weight_decay
        groups = [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": decay},
            {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=self.run.learning_rate, fused=self.device.type in ("cpu", "cuda"))

    def set_rate(self, optimizer: torch.optim.Optimizer, step: int, steps: int) -> None:
        """Set the rate of a step (counted from 0): linear from the peak to 0, after a warm-up if the run has one."""
        warmup = round(self.run.warmup * steps)
        share = (step + 1) / (warmup + 1) if step < warmup else (steps - step) / (steps - warmup)
        for group in optimizer.param_groups:
            group["lr"] = self.run.learning_rate * share

    def note_evaluation(self, *, gain: bool) -> None:
        """Take notice of whether the latest dev score was the best so far."""

    def exhausted(self) -> bool:
        """Return whether to stop before the last step."""
        return False


METHODS: Registry[type[Method]] = Registry("method")
