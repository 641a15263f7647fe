"""What a training run tells whoever watches it, and what it says when it is over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

Scores = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Started:
    """The data is read and the first step is next."""

    view: str
    why: str  # why this view was chosen
    pooler: str
    rows: int
    steps: int
    first_step: int  # above 0 when a run is resumed
    epochs: float
    batch_size: int  # rows a step really sees
    processes: int
    parameters: int
    lexical_overlap: float | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Stepped:
    """A step was taken."""

    step: int
    steps: int
    epoch: float
    loss: float
    mlm_loss: float | None
    learning_rate: float
    gradient_norm: float
    negatives: float  # per anchor, false ones not counted
    masked: int  # false negatives left out in this batch
    sentences_per_second: float
    seconds_left: float


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """The model was scored; step 0 is before training."""

    step: int
    score: float
    scores: Scores
    best: bool


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """Where the dev set's vectors lie, for Figure 2; step 0 is before training."""

    step: int
    alignment: float
    uniformity: float


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A checkpoint was written."""

    step: int
    folder: str


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """The run is over, or was interrupted; `advice` says what to do next."""

    step: int
    reason: str  # finished, early stop, interrupted
    advice: str


Event = Started | Stepped | Evaluated | Tracked | Saved | Stopped
OnEvent = Callable[[Event], None]


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run came to."""

    output: Path
    reason: str  # finished, early stop, interrupted
    steps: int
    loss: float | None  # of the last step taken
    before: Scores = field(default_factory=dict)
    best: Scores = field(default_factory=dict)
    last: Scores = field(default_factory=dict)
    best_step: int | None = None
    masked: int = 0  # false negatives left out in all
    seconds: float = 0.0
    sentences_per_second: float = 0.0
    advice: str = ""

    @property
    def finished(self) -> bool:
        """Tell whether the model stands in the output folder."""
        return self.reason != "interrupted"
