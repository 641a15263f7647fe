"""The log of a training run: its events, the file they are written to and read from, and the result at the end."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from twinpass.display import Displayed, Grid, counted
from twinpass.errors import InputError, MissingExtra
from twinpass.files import explaining, plain

Scores = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Started:
    """The data is read and the first step is next."""

    method: str
    objective: str  # what is trained, in one line
    view: str  # of SimCSE: dropout, pairs, triplets, classes or scores, joined by + in a mixture; otherwise empty
    why: str  # why this objective was chosen
    pooler: str
    rows: int
    steps: int
    first_step: int  # above 0 when a run is resumed
    epochs: float
    batch_size: int  # examples in a step: rows, or a method's documents
    processes: int
    parameters: int
    lexical_overlap: float | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Mixed:
    """One part of a mixture, before the first step; the loss of its steps is in the events that name it."""

    name: str
    objective: str
    view: str
    why: str
    rows: int
    share: float  # of the steps, 0 to 1
    batch_size: int
    lexical_overlap: float | None


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
    negatives: float  # per anchor, without the false ones
    masked: int  # false negatives masked in this batch
    sentences_per_second: float  # texts through an encoder per second of training
    seconds_left: float
    part: str = ""  # of a mixture: which part the batch was of


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """The model was evaluated; step 0 is before training."""

    step: int
    score: float
    scores: Scores
    best: bool


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """Alignment and uniformity of the dev set's vectors, for Figure 2; step 0 is before training."""

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


Event = Started | Mixed | Stepped | Evaluated | Tracked | Saved | Stopped
OnEvent = Callable[[Event], None]


@dataclass(frozen=True, kw_only=True, repr=False)
class Result(Displayed):
    """The outcome of a run; its table shows the dev scores before, at the best step and at the last."""

    output: Path
    reason: str  # finished, early stop, interrupted
    steps: int
    loss: float | None  # of the last step taken
    kept: str = "encoder"  # which of the method's models is in the output folder
    before: Scores = field(default_factory=dict)
    best: Scores = field(default_factory=dict)
    last: Scores = field(default_factory=dict)
    best_step: int | None = None
    last_step: int | None = None  # the step that was scored last, which may be earlier than the last step taken
    masked: int = 0  # false negatives masked in all
    seconds: float = 0.0
    sentences_per_second: float = 0.0  # texts through an encoder per second of training
    interrupted: bool = False  # a signal asked to stop; in the very last step the model is complete all the same
    protocol: str = ""  # what the score means
    advice: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)  # the kept model, data, run and versions

    @property
    def finished(self) -> bool:
        """Whether the model is in the output folder."""
        return self.reason != "interrupted"

    def grids(self) -> Sequence[Grid]:
        """Return the table of scores; a sentence where nothing was scored."""
        stages = {title: scores for title, scores in self.stages.items() if scores}
        if not stages:
            loss = "" if self.loss is None else f", last loss {self.loss:.4f}"
            length = f"{counted(self.steps, 'step')} in {self.seconds:.0f} s"
            return [Grid(f"{length}{loss}; no dev set, so nothing was scored", (), ())]
        names = list(stages.values())[-1]
        rows = [(name, *(f"{each[name]:.3f}" if name in each else "-" for each in stages.values())) for name in names]
        return [Grid(self.protocol, ("score", *stages), rows)]

    @property
    def stages(self) -> dict[str, Scores]:
        """The scores before, at the best step and at the step scored last, under titles that say which step it was."""
        last = self.steps if self.last_step is None else self.last_step
        return {"before": self.before, f"best (step {self.best_step})": self.best, f"last (step {last})": self.last}


FILE = "log.jsonl"


class LogWriter:
    """Appends events to OUTPUT/log.jsonl and, if asked, to TensorBoard's files."""

    def __init__(self, folder: Path, *, length: int, tensorboard: bool = False) -> None:
        self.path = folder / FILE
        self.note = ""  # what a resumed run should say about a log that is not as it left it
        with explaining(self.path):
            self.stream = self.path.open("ab")
            whole = _whole_length(self.path, length)
            if whole < length:
                kept = f"continues after its last whole line ({whole:,} bytes)" if whole else "starts anew"
                self.note = f"{self.path} was removed, cut or damaged: the log {kept}, the training is not affected"
            # What was logged after the checkpoint will happen, and be logged, again.
            self.stream.truncate(whole)
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
        with contextlib.suppress(OSError):  # what could not be written was reported by `write`
            self.stream.close()
        if self.board is not None:
            self.board.close()


def _whole_length(path: Path, length: int) -> int:
    """Return how many of a log's first bytes, at most `length`, are whole lines of JSON."""
    whole = 0
    with path.open("rb") as stream:
        while whole < length and (line := stream.readline(length - whole)).endswith(b"\n"):
            try:
                json.loads(line)
            except ValueError:
                break
            whole += len(line)
    return whole


def _curves(event: Event) -> dict[str, float]:
    if isinstance(event, Stepped):
        loss = "train/loss" + (f"/{event.part}" if event.part else "")
        return {loss: event.loss, "train/learning_rate": event.learning_rate}
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
    """The log of a run, as curves over steps."""

    name: str
    loss: list[tuple[int, float]] = field(default_factory=list)
    losses: dict[str, list[tuple[int, float]]] = field(default_factory=dict)  # of a mixture: by part
    dev: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    geometry: list[tuple[int, float, float]] = field(default_factory=list)  # step, alignment, uniformity


def has_log(folder: str | Path) -> bool:
    """Return whether this is the output folder of a run."""
    return (Path(folder) / FILE).is_file()


def read_log(folder: str | Path) -> RunLog:
    """Read the log of a run's output folder."""
    log, path = RunLog(name=str(folder)), Path(folder) / FILE
    for number, event in enumerate(_read_events(path), start=1):
        try:
            _add(log, event)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"{path}:{number}: expected an event of a training run: {error}.") from error
    return log


def _add(log: RunLog, event: Mapping[str, Any]) -> None:
    kind, step = event.get("event"), int(event.get("step", 0))
    if kind == _kind(Stepped) and event.get("loss") is not None:
        log.loss.append((step, float(event["loss"])))
        if part := event.get("part"):
            log.losses.setdefault(part, []).append(log.loss[-1])
    elif kind == _kind(Evaluated):
        log.dev.append((step, {name: float(value) for name, value in event["scores"].items() if value is not None}))
    elif kind == _kind(Tracked):
        log.geometry.append((step, float(event["alignment"]), float(event["uniformity"])))


def _kind(event: type[Event]) -> str:
    """Return the name of a class of events in the file."""
    return event.__name__.lower()


def _read_events(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        with path.open(encoding="utf-8") as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    yield json.loads(line)
                except json.JSONDecodeError as error:
                    raise InputError(f"{path}:{number}: expected a line of JSON: {error}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: expected lines of JSON in UTF-8: {error}.") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from error
