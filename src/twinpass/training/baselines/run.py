"""BaselineRun: one frozen description of a baseline's training, and what the training came to."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from twinpass.errors import ConfigError
from twinpass.log import Scores


@dataclass(frozen=True, kw_only=True)
class BaselineRun:
    """Everything that decides what is computed; None stands for the baseline's own value, from its paper."""

    baseline: str  # ct, sbert, isbert, declutr or infersent
    data: str = ""  # any corpus; sbert and infersent want the columns premise, hypothesis, label
    columns: tuple[str, ...] | None = None  # the columns to read, by name or position
    skip_bad_rows: bool = False  # leave unreadable rows and blank lines out instead of stopping at the first
    model: str = "minilm"  # for infersent: a file of word vectors in GloVe's format
    output: str = ""
    steps: int | None = None  # instead of counting epochs
    epochs: int = 1
    batch_size: int | None = None  # ct: pairs, 8 to an anchor; declutr: documents; else sentences or pairs
    learning_rate: float | None = None
    max_tokens: int | None = None  # declutr: of a span
    pooler: str | None = None
    width: int | None = None  # infersent: units of the LSTM in each direction
    save_every: int = 250  # steps between saves, from which a stopped run goes on
    eval_every: int | None = None  # steps between evaluations; infersent: by default once an epoch
    seed: int = 42
    device: str = "auto"

    def check(self) -> BaselineRun:
        """Return the run itself, or raise ConfigError for a value that makes no sense."""
        for name in ("steps", "epochs", "batch_size", "width", "eval_every", "save_every"):
            value = getattr(self, name)
            _require(value is None or value >= 1, f"{name} must be 1 or more; got {value}.")
        rate, tokens = self.learning_rate, self.max_tokens
        _require(rate is None or rate > 0, f"learning_rate must be above 0; got {rate}.")
        _require(tokens is None or tokens >= 3, f"max_tokens must be 3 or more; got {tokens}.")
        _require(0 <= self.seed < 2**31, f"seed must lie in [0, 2^31); got {self.seed}.")
        _require(bool(self.output), "a run needs an output folder. Name one: BaselineRun(output=...).")
        # The folder appears whole, under its own name, in its parent; these two are no names.
        named = Path(self.output).name not in ("", "..")
        _require(named, f"the output {self.output!r} has no name of its own. Name the folder that is to be made.")
        return self

    def filled(self) -> FilledRun:
        """Return the run with its baseline's own values wherever it says nothing."""
        from twinpass.training.baselines.base import BASELINES  # which is built on this module

        defaults = asdict(BASELINES[self.baseline].defaults)
        own = {name: value for name, value in asdict(self).items() if value is not None}
        return FilledRun(**(defaults | own))

    def to_json(self) -> str:
        """Return the run as a JSON object, one field a line."""
        return json.dumps(asdict(self), indent=2) + "\n"


@dataclass(frozen=True, kw_only=True)
class FilledRun(BaselineRun):
    """A run that leaves nothing open."""

    batch_size: int
    learning_rate: float
    max_tokens: int


@dataclass(frozen=True, kw_only=True)
class BaselineResult:
    """What a run came to; the model stands in `output`."""

    output: Path
    reason: str  # finished, early stop, or interrupted
    steps: int
    loss: float  # of the last step taken
    kept: str  # which of the baseline's models is in the folder
    before: Scores = field(default_factory=dict)
    best: Scores = field(default_factory=dict)
    last: Scores = field(default_factory=dict)
    best_step: int | None = None
    seconds: float = 0.0

    @property
    def finished(self) -> bool:
        """Whether the model stands in the output folder; an interrupted run is to be resumed."""
        return self.reason != "interrupted"


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)
