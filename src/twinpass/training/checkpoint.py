"""Checkpoints: complete, whole or absent; a run resumes from one bit-for-bit identically.

::

    OUTPUT/checkpoints/
      step-00000250/     the newest state: a model that loads anywhere, and with it
        run.json           the run
        progress.json      step, scores, length of the log
        trainer.safetensors  the optimizer's states, the heads' weights, the random generators
        second/            a further encoder, where the method trains two
      best-00000250/     the model that scored best on dev, with run.json

Each folder gets its name only when all of it is on the disk; older ones are removed once the newer one is complete.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from twinpass.config import Run
from twinpass.errors import OutputError
from twinpass.files import writing_folder
from twinpass.log import Scores
from twinpass.training.method import Trainable

FOLDER = "checkpoints"
# Settings that a resumed run may change: where things are, how often they are saved, how the same rows are read.
MAY_CHANGE = {"output", "device", "save_every", "tensorboard", "data", "dev", "skip_bad_rows", "model", "wordnet"}


@dataclass
class Progress:
    """How far a run is: everything that is not a tensor."""

    step: int = 0
    before: Scores = field(default_factory=dict)
    best: Scores = field(default_factory=dict)
    last: Scores = field(default_factory=dict)
    best_step: int | None = None
    kept: str = ""  # the name of the best model, or of the one kept without a dev set
    evaluations_without_gain: int = 0
    masked: int = 0
    seconds: float = 0.0
    log_length: int = 0
    loss: float | None = None
    data_fingerprint: str = ""
    scaler: dict[str, Any] = field(default_factory=dict)
    processes: int = 1
    memory: dict[str, float] = field(default_factory=dict)  # of the method


def folder_of(output: Path, kind: Literal["step", "best"], step: int) -> Path:
    """Return the folder of a step's checkpoint, or of the model that was best at a step."""
    return output / FOLDER / f"{kind}-{step:08d}"


def newest(output: Path) -> Path | None:
    """Return the newest complete checkpoint of an output folder, if there is one."""
    found = sorted((output / FOLDER).glob("step-*/progress.json"))
    return found[-1].parent if found else None


def write_checkpoint(
    output: Path,
    run: Run,
    progress: Progress,
    main: Trainable,
    others: Mapping[str, Trainable],
    state: dict[str, Tensor],
) -> Path:
    """Write a checkpoint, then remove those it replaces; if writing fails, the previous one is unchanged."""
    target = folder_of(output, "step", progress.step)
    with _naming_what_is_left(output), writing_folder(target) as aside:
        write_model(aside, run, main, others)
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, aside / "trainer.safetensors")
        # Read only by a resumed run, which must find a NaN as it was.
        (aside / "progress.json").write_text(json.dumps(asdict(progress), indent=2), encoding="utf-8")
    _remove_replaced(output, progress)
    return target


def write_best(output: Path, run: Run, step: int, kept: Trainable, others: Mapping[str, Trainable]) -> None:
    """Keep the present model as the best so far."""
    with _naming_what_is_left(output), writing_folder(folder_of(output, "best", step)) as aside:
        write_model(aside, run, kept, others)


def write_model(folder: Path, run: Run, main: Trainable, others: Mapping[str, Trainable]) -> None:
    """Write a model, others below it under their names, and the run beside it."""
    main.save(folder)
    for name, other in others.items():
        other.save(folder / name)
    (folder / "run.json").write_text(run.to_json(), encoding="utf-8")


def read_progress(folder: Path) -> Progress:
    """Read how far the run of a checkpoint was."""
    return Progress(**json.loads((folder / "progress.json").read_text(encoding="utf-8")))


def difference(folder: Path, run: Run, *, source: str, fingerprint: str, processes: int) -> str | None:
    """Return why a run cannot be resumed from a checkpoint, or None if it can."""
    stored, progress = Run.read(folder / "run.json"), read_progress(folder)
    # The checkpoint knows the pooler that the model brought along.
    now = asdict(run if run.pooler is not None else run.replace(pooler=stored.pooler))
    then = asdict(stored)
    changed = [name for name in now if then[name] != now[name] and name not in MAY_CHANGE]
    if changed:
        details = "; ".join(f"{name}: {then[name]!r} then, {now[name]!r} now" for name in changed)
        return (
            f"the run in {folder} was made with other settings ({details}). Resume with the same settings, or start "
            "again in another folder; to train a finished model further, start from it as the model of a new run."
        )
    if progress.data_fingerprint != fingerprint:
        return f"{source} is not the text that {folder} was trained on. Resume with the same text."
    if progress.processes != processes:
        return (
            f"{folder} was written by {progress.processes} process(es), and now there are {processes}. Resume with the "
            "same number."
        )
    return None


def clean(output: Path) -> None:
    """Remove what a killed run left half-written."""
    for place in (output, output / FOLDER):
        for leftover in (*place.glob(".step-*"), *place.glob(".best-*"), *place.glob(".saving.*")):
            shutil.rmtree(leftover, ignore_errors=True)


def remove_all(output: Path) -> None:
    """Remove every checkpoint; several processes may do so at once."""
    shutil.rmtree(output / FOLDER, ignore_errors=True)
    (output / FOLDER).mkdir(exist_ok=True)


def check_room(output: Path, parameters: int) -> None:
    """Raise OutputError now if the disk has no room for the checkpoints of a model of this size."""
    # At most: two checkpoints of weights and two moments, two best models, the finished one.
    needed = 4 * parameters * (3 + 3 + 1 + 1 + 1)
    # What an earlier part of the run has written is replaced, so its room is free to use.
    written = (*(output / FOLDER).rglob("*"), *output.glob("model*.safetensors"))
    free = shutil.disk_usage(output).free + sum(path.stat().st_size for path in written if path.is_file())
    if free < needed:
        raise OutputError(
            f"{output} is on a disk with {free / 1e9:.1f} GB free, and this run needs about {needed / 1e9:.1f} GB "
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
    """Restore the optimizer's state."""
    states: dict[str, dict[str, Tensor]] = {}
    for place, tensor in tensors.items():
        kind, _, rest = place.partition(".")
        if kind == "optimizer":
            key, _, name = rest.partition(".")
            states.setdefault(name, {})[key] = tensor
    for group in optimizer.param_groups:
        # Only a fused optimizer counts its steps on the device of the parameters; the others count in main memory.
        fused = bool(group.get("fused"))
        for parameter in group["params"]:
            for key, stored in states.get(names[parameter], {}).items():
                on_device = fused or key != "step"
                optimizer.state[parameter][key] = stored.to(parameter.device) if on_device else stored


def random_tensors(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return every process's generators under the names they have in a checkpoint."""
    return {f"random.{rank}.{name}": state for rank, own in enumerate(states) for name, state in own.items()}


def random_states(tensors: Mapping[str, Tensor], rank: int) -> dict[str, Tensor]:
    """Return one process's generators from a checkpoint."""
    start = f"random.{rank}."
    return {name.removeprefix(start): state for name, state in tensors.items() if name.startswith(start)}


def _remove_replaced(output: Path, progress: Progress) -> None:
    keep = {folder_of(output, "step", progress.step)}
    if progress.best_step is not None:
        keep.add(folder_of(output, "best", progress.best_step))
    for folder in (output / FOLDER).iterdir():
        if folder.name.startswith(("step-", "best-")) and folder not in keep:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _naming_what_is_left(output: Path) -> Iterator[None]:
    """Add to a failure to write which checkpoint to resume from."""
    try:
        yield
    except OutputError as error:
        left = newest(output)
        advice = f"The checkpoint {left} is whole; resume from it." if left else "There was no earlier checkpoint."
        raise OutputError(f"{error} {advice}") from error
