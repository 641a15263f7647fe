"""What a stopped baseline goes on from: one file of state, and the log, in a folder beside the output."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from twinpass.errors import ConfigError, OutputError
from twinpass.files import explaining, writing
from twinpass.training.baselines.run import FilledRun
from twinpass.training.checkpoint import MAY_CHANGE

STATE = "state.safetensors"
PROGRESS = "progress"  # under this name the file's header holds all that is no tensor


@dataclass(frozen=True, kw_only=True)
class Saved:
    """How far a baseline was: its tensors, and the rest."""

    step: int
    loss: float
    seconds: float  # in steps
    elapsed: float  # in all
    log_length: int
    keeper: dict[str, Any]
    memory: dict[str, float]
    tensors: dict[str, Tensor] = field(default_factory=dict)


class Saver:
    """Keeps the state of one run until its model stands in the output folder."""

    def __init__(self, run: FilledRun, *, data_fingerprint: str) -> None:
        output = Path(run.output)
        self.folder = output.with_name(f".{output.name}.unfinished")
        self.state = self.folder / STATE
        self.data_fingerprint = data_fingerprint
        self.identity = {
            "data_fingerprint": data_fingerprint,
            "run": {name: value for name, value in asdict(run).items() if name not in MAY_CHANGE - {"model"}},
        }

    def open(self, *, resume: bool, overwrite: bool) -> Saved | None:
        """Make the folder and return what it holds of this run; None where the run starts at its beginning."""
        held = self.state.is_file()
        if held and not (resume or overwrite):
            raise OutputError(
                f"{self.folder} holds an unfinished run. Resume it, allow it to be overwritten, or choose another "
                "place."
            )
        saved = self._read(or_none=overwrite) if held and resume else None
        if saved is None:
            self.remove()
        with explaining(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        return saved

    def save(self, saved: Saved) -> None:
        """Replace the state by a later one, whole or not at all."""
        header = {name: value for name, value in vars(saved).items() if name != "tensors"}
        whole = {name: tensor.detach().contiguous() for name, tensor in saved.tensors.items()}
        with writing(self.state) as aside:
            save_file(whole, aside, metadata={PROGRESS: json.dumps(self.identity | header)})

    def remove(self) -> None:
        """Let go of it all."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self, *, or_none: bool) -> Saved | None:
        """Return the state; that of another run is refused, or None."""
        with safe_open(self.state, framework="pt") as stored:
            header = json.loads(stored.metadata()[PROGRESS])
            tensors: dict[str, Tensor] = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        for name, now in json.loads(json.dumps(self.identity)).items():  # tuples are lists in the file
            then = header.pop(name)
            if then == now:
                continue
            if or_none:
                return None
            raise ConfigError(
                f"the run in {self.folder} was made {_difference(name, then, now)}. Go on with the same, or start "
                "anew by allowing it to be overwritten."
            )
        return Saved(**header, tensors=tensors)


def _difference(name: str, then: Any, now: Any) -> str:
    if name == "data_fingerprint":
        return "with other text"
    changed = [f"{key}: {then.get(key)!r} then, {now[key]!r} now" for key in now if then.get(key) != now[key]]
    return f"with other settings ({'; '.join(changed)})"


def copy_into(parameters: dict[str, torch.nn.Parameter], values: dict[str, Tensor]) -> None:
    """Give parameters the values that stand under their names."""
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(values[name])
