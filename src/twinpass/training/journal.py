"""The log of a run: one JSON object a line, which a resumed run continues without repeating itself."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from twinpass.errors import MissingExtra
from twinpass.files import explaining
from twinpass.plain import plain
from twinpass.training.events import Evaluated, Event, Stepped, Tracked

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
        line = {"event": type(event).__name__.lower()} | plain(asdict(event))
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
