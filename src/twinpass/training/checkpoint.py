"""Checkpoints: whole or not there, complete enough to go on bit by bit as if nothing had happened.

::

    OUTPUT/checkpoints/
      step-00000250/     the newest state: a model any verb can load, and beside it
        run.json           the run
        progress.json      how far it is: step, scores, length of the log
        trainer.safetensors  the optimizer's moments, further weights, the random generators
      best-00000250/     the model that scored best on dev, with run.json

Each folder gets its name only when all of it is on the disk; older ones go once the newer one stands.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from twinpass.config import Run
from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError, OutputError
from twinpass.files import writing_folder
from twinpass.log import Scores

FOLDER = "checkpoints"
SECOND = "second"  # where the other encoder of a dual encoder lies
# Settings a resumed run may change: where things lie, how often they are saved, how the same rows are read.
MAY_CHANGE = {"output", "device", "save_every", "tensorboard", "data", "skip_bad_rows", "model", "wordnet"}


@dataclass
class Progress:
    """How far a run is; everything of it that is neither weight nor moment."""

    step: int = 0
    before: Scores = field(default_factory=dict)
    best: Scores = field(default_factory=dict)
    last: Scores = field(default_factory=dict)
    best_step: int | None = None
    evaluations_without_gain: int = 0
    masked: int = 0
    seconds: float = 0.0
    log_length: int = 0
    loss: float | None = None
    data_fingerprint: str = ""
    scaler: dict[str, Any] = field(default_factory=dict)
    processes: int = 1


def step_folder(output: Path, step: int) -> Path:
    """Return where the checkpoint of a step lies."""
    return output / FOLDER / f"step-{step:08d}"


def best_folder(output: Path, step: int) -> Path:
    """Return where the best model so far lies."""
    return output / FOLDER / f"best-{step:08d}"


def newest(output: Path) -> Path | None:
    """Return the newest whole checkpoint of an output folder, if there is one."""
    found = sorted((output / FOLDER).glob("step-*/progress.json"))
    return found[-1].parent if found else None


def write_checkpoint(
    output: Path, run: Run, progress: Progress, encoders: list[Encoder], tensors: dict[str, Tensor]
) -> Path:
    """Write a checkpoint, then remove those it replaces; if writing fails, the previous one is untouched."""
    target = step_folder(output, progress.step)
    with _saying_what_is_left(output), writing_folder(target) as aside:
        write_model(aside, run, encoders)
        whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
        save_file(whole, aside / "trainer.safetensors")
        # Read by nobody but a resumed run, which must find a NaN as it was.
        (aside / "progress.json").write_text(json.dumps(asdict(progress), indent=2), encoding="utf-8")
    _remove_replaced(output, progress)
    return target


def write_best(output: Path, run: Run, step: int, encoders: list[Encoder]) -> None:
    """Keep the present model as the best so far."""
    with _saying_what_is_left(output), writing_folder(best_folder(output, step)) as aside:
        write_model(aside, run, encoders)


def write_model(folder: Path, run: Run, encoders: list[Encoder]) -> None:
    """Write the encoder (and a second one below it), and the run beside it."""
    encoders[0].save(folder)
    for second in encoders[1:]:
        second.save(folder / SECOND)
    (folder / "run.json").write_text(run.to_json(), encoding="utf-8")


def read_progress(folder: Path) -> Progress:
    """Read how far the run of a checkpoint was."""
    return Progress(**json.loads((folder / "progress.json").read_text(encoding="utf-8")))


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Read what a checkpoint holds beside the model."""
    return load_file(folder / "trainer.safetensors")


def check_same_run(folder: Path, run: Run) -> None:
    """Refuse to resume with other settings than the checkpoint's."""
    stored = asdict(Run.read(folder / "run.json"))
    changed = [name for name, value in asdict(run).items() if stored[name] != value and name not in MAY_CHANGE]
    if changed:
        details = "; ".join(f"{name}: {stored[name]!r} then, {getattr(run, name)!r} now" for name in changed)
        raise ConfigError(
            f"the run in {folder} was made with other settings ({details}). Resume with the same ones, or start "
            "anew in another folder; to train a finished model further, start from it as the model of a new run."
        )


def clean(output: Path) -> None:
    """Remove what a killed run left half-written."""
    for place in (output, output / FOLDER):
        for leftover in (*place.glob(".step-*"), *place.glob(".best-*"), *place.glob(".saving.*")):
            shutil.rmtree(leftover, ignore_errors=True)


def check_room(output: Path, parameters: int) -> None:
    """Raise OutputError now if the disk could not take the checkpoints of a model of this size."""
    # At the fullest moment: two checkpoints of weights and two moments, two best models, the finished one.
    needed = 4 * parameters * (3 + 3 + 1 + 1 + 1)
    free = shutil.disk_usage(output).free
    if free < needed:
        raise OutputError(
            f"{output} lies on a disk with {free / 1e9:.1f} GB free, and this run needs about {needed / 1e9:.1f} GB "
            "for its checkpoints. Make room, or choose another place."
        )


def optimizer_tensors(optimizer: torch.optim.Optimizer, names: dict[nn.Parameter, str]) -> dict[str, Tensor]:
    """Return the optimizer's state under the names of its parameters."""
    return {
        f"optimizer.{key}.{name}": value.detach()
        for parameter, name in names.items()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(
    optimizer: torch.optim.Optimizer, names: dict[nn.Parameter, str], tensors: dict[str, Tensor]
) -> None:
    """Bring the optimizer's state back."""
    states: dict[str, dict[str, Tensor]] = {}
    for place, tensor in tensors.items():
        kind, _, rest = place.partition(".")
        if kind == "optimizer":
            key, _, name = rest.partition(".")
            states.setdefault(name, {})[key] = tensor
    for group in optimizer.param_groups:
        # Only a fused optimizer counts its steps beside the parameters; the others do so in main memory.
        fused = bool(group.get("fused"))
        for parameter in group["params"]:
            for key, stored in states.get(names[parameter], {}).items():
                beside = fused or key != "step"
                optimizer.state[parameter][key] = stored.to(parameter.device) if beside else stored


def random_tensors(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return every process's generators under the names they have in a checkpoint."""
    return {
        name: state for rank, own in enumerate(states) for name, state in with_prefix(f"random.{rank}", own).items()
    }


def random_states(tensors: Mapping[str, Tensor], rank: int) -> dict[str, Tensor]:
    """Return one process's generators from a checkpoint."""
    return without_prefix(f"random.{rank}", tensors)


def with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors under names that begin so."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin so, without that beginning."""
    start = f"{prefix}."
    return {name[len(start) :]: tensor for name, tensor in tensors.items() if name.startswith(start)}


def _remove_replaced(output: Path, progress: Progress) -> None:
    keep = {step_folder(output, progress.step)}
    if progress.best_step is not None:
        keep.add(best_folder(output, progress.best_step))
    for folder in (output / FOLDER).iterdir():
        if folder.name.startswith(("step-", "best-")) and folder not in keep:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _saying_what_is_left(output: Path) -> Iterator[None]:
    """Add to a failure to write which checkpoint there is to go on from."""
    try:
        yield
    except OutputError as error:
        left = newest(output)
        advice = f"The checkpoint {left} is whole; resume from it." if left else "There was no earlier checkpoint."
        raise OutputError(f"{error} {advice}") from error
