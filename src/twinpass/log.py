"""The log of a training run: its events, the file they are written to, and how it is read back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from twinpass.errors import InputError, MissingExtra
from twinpass.files import explaining, plain

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


FILE = "log.jsonl"


class Journal:
    """Appends events to OUTPUT/log.jsonl and, if asked, to TensorBoard's files."""

    def __init__(self, folder: Path, *, length: int, tensorboard: bool = False) -> None:
        self.path = folder / FILE
        with explaining(self.path):
            self.stream = self.path.open("ab")
            # What was logged after the checkpoint will happen, and be logged, again.
            self.stream.truncate(length)
        self.board = _open_board(folder) if tensorboard else None

    def write(self, event: Event) -> None:
        """Append one event."""
        line = {"event": _kind(type(event))} | plain(asdict(event))
        with explaining(self.path):
            self.stream.write(json.dumps(line).encode() + b"\n")
            self.stream.flush()
        if self.board is not None:
            for name, value in _curves(event).items():
                self.board.add_scalar(name, value, event.step)  # type: ignore[union-attr]

    def length(self) -> int:
        """Return the log's length in bytes so far."""
        return self.stream.seek(0, 2)

    def close(self) -> None:
        """Close the files."""
        self.stream.close()
        if self.board is not None:
            self.board.close()


def _curves(event: Event) -> dict[str, float]:
    if isinstance(event, Stepped):
        return {"train/loss": event.loss, "train/learning_rate": event.learning_rate}
    if isinstance(event, Evaluated):
        return {f"dev/{name}": value for name, value in event.scores.items()}
    if isinstance(event, Tracked):
        return {"geometry/alignment": event.alignment, "geometry/uniformity": event.uniformity}
    return {}


def _open_board(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtra("writing TensorBoard files", "tensorboard") from error
    return SummaryWriter(str(folder / "tensorboard"))


@dataclass(frozen=True, kw_only=True)
class RunLog:
    """The log of a run as curves over steps."""

    name: str
    loss: list[tuple[int, float]] = field(default_factory=list)
    dev: list[tuple[int, Scores]] = field(default_factory=list)
    geometry: list[tuple[int, float, float]] = field(default_factory=list)  # step, alignment, uniformity


def has_log(folder: str | Path) -> bool:
    """Tell whether this is the output folder of a run."""
    return (Path(folder) / FILE).is_file()


def read_log(folder: str | Path) -> RunLog:
    """Read the log of a run's output folder."""
    log = RunLog(name=str(folder))
    for event in _events(Path(folder) / FILE):
        kind, step = event.get("event"), int(event.get("step", 0))
        if kind == _kind(Stepped) and event.get("loss") is not None:
            log.loss.append((step, float(event["loss"])))
        elif kind == _kind(Evaluated):
            scores = {name: float(value) for name, value in event["scores"].items() if value is not None}
            log.dev.append((step, scores))
        elif kind == _kind(Tracked):
            log.geometry.append((step, float(event["alignment"]), float(event["uniformity"])))
    return log


def _kind(event: type[Event]) -> str:
    """Return the name of a class of events in the file."""
    return event.__name__.lower()


def _events(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        with path.open(encoding="utf-8") as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    yield json.loads(line)
                except json.JSONDecodeError as error:
                    raise InputError(f"{path}:{number}: expected a line of JSON: {error}.") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from error
