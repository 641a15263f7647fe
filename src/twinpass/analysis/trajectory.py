"""Logs of training runs read back: where the space was at every step (Figure 2), loss and dev scores."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinpass.errors import InputError

LOG = "log.jsonl"


@dataclass(frozen=True, kw_only=True)
class RunLog:
    """What a run's log tells, as curves over steps."""

    name: str
    loss: list[tuple[int, float]] = field(default_factory=list)
    dev: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    geometry: list[tuple[int, float, float]] = field(default_factory=list)  # step, alignment, uniformity


def read_log(folder: str | Path) -> RunLog:
    """Read the log of a run's output folder."""
    path = Path(folder) / LOG
    log = RunLog(name=str(folder))
    for event in _events(path):
        kind, step = event.get("event"), int(event.get("step", 0))
        if kind == "stepped" and event.get("loss") is not None:
            log.loss.append((step, float(event["loss"])))
        elif kind == "evaluated":
            scores = {name: float(value) for name, value in event["scores"].items() if value is not None}
            log.dev.append((step, scores))
        elif kind == "tracked":
            log.geometry.append((step, float(event["alignment"]), float(event["uniformity"])))
    return log


def has_log(folder: str | Path) -> bool:
    """Tell whether this is the output folder of a run."""
    return (Path(folder) / LOG).is_file()


def read_trajectory(folder: str | Path) -> RunLog:
    """Read the log of a run that recorded alignment and uniformity, or say how to record them."""
    if not has_log(folder):
        raise InputError(f"{folder} is not a training run: it has no {LOG}. Name the output folder of `train`.")
    log = read_log(folder)
    if not log.geometry:
        raise InputError(
            f"{folder} recorded no geometry. Train with --track-geometry 10 and --dev PAIRS to record "
            "alignment and uniformity every 10 steps."
        )
    return log


def _events(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        with path.open(encoding="utf-8") as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    yield json.loads(line)
                except json.JSONDecodeError as error:
                    raise InputError(f"{path}:{number}: not a line of JSON: {error}.") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from error
