"""Checkpoints: complete, whole or absent, with checksums; a run resumes from one bit-for-bit identically.

::

    OUTPUT/checkpoints/
      step-00000250/     a state: a model that loads anywhere, and with it
        run.json           the run
        progress.json      step, scores, length of the log
        trainer.safetensors  the optimizer's states, the heads' weights, the method's tensors, the random generators
        second/            a further encoder, where the method trains two
        manifest.json      the SHA-256 of every file, and its own
      best-00000250/     the model that scored best on dev, with run.json and manifest.json
    OUTPUT/result.json   of a finished run: its result, its settings, and the SHA-256 of its weights

Each folder gets its name only when all of it is on the disk. The checkpoint before the newest is kept as well: a
resumed run compares every file with its checksum, and goes back to that one if the newest is damaged.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from twinpass.config import Run, read_part
from twinpass.errors import OutputError
from twinpass.files import DiskFull, human_bytes, sha256, writing, writing_folder
from twinpass.log import FILE as LOG
from twinpass.log import Result, Scores
from twinpass.training.method import Trainable

FOLDER = "checkpoints"
MANIFEST = "manifest.json"
RESULT = "result.json"
# Settings that a resumed run may change: where things are, how often they are saved, how the same rows are read.
MAY_CHANGE = {"output", "device", "save_every", "keep_checkpoints", "tensorboard", "data", "dev", "skip_bad_rows"}
MAY_CHANGE |= {"model", "wordnet", "teacher", "generator"}


@dataclass
class Progress:
    """How far a run is: everything that is not a tensor."""

    step: int = 0
    before: Scores = field(default_factory=dict)
    best: Scores = field(default_factory=dict)
    last: Scores = field(default_factory=dict)
    best_step: int | None = None
    last_step: int | None = None  # the step that was scored last
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
    """Return the newest checkpoint of an output folder, whole or damaged, if there is one."""
    return next(iter(_newest_first(output)), None)


def newest_good(output: Path) -> tuple[Path | None, list[str]]:
    """Return the newest checkpoint whose files are as they were written, and what is wrong with each newer one."""
    damages: list[str] = []
    for folder in _newest_first(output):
        reason = damage(folder)
        if reason is None and (best := read_progress(folder).best_step) is not None:
            reason = damage(folder_of(output, "best", best))
        if reason is None:
            return folder, damages
        damages.append(reason)
    return None, damages


def damage(folder: Path) -> str | None:
    """Return which file of a checkpoint is not as it was written, or None if all are."""
    try:
        listed = _read_sealed(folder / MANIFEST)["files"]
        for name, digest in listed.items():
            if sha256(folder / name) != digest:
                return f"{folder / name} is damaged: its SHA-256 is not the one that {MANIFEST} has"
    except OSError as error:
        return f"{error.filename} cannot be read: {error.strerror}"
    except ValueError as error:
        return str(error)
    return None


def write_checkpoint(
    output: Path,
    run: Run,
    progress: Progress,
    main: Trainable,
    others: Mapping[str, Trainable],
    state: dict[str, Tensor],
) -> Path:
    """Write a checkpoint beside the newest good one; older ones and damaged ones are removed first."""
    _make_way(output, progress, keep=max(1, run.keep_checkpoints - 1))
    target = folder_of(output, "step", progress.step)
    with _writing(target) as aside:
        write_model(aside, run, main, others)
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, aside / "trainer.safetensors")
        # Read only by a resumed run, which must find a NaN as it was.
        (aside / "progress.json").write_text(json.dumps(asdict(progress), indent=2), encoding="utf-8")
    return target


def write_best(output: Path, run: Run, step: int, kept: Trainable, others: Mapping[str, Trainable]) -> None:
    """Keep the present model as the best so far."""
    with _writing(folder_of(output, "best", step)) as aside:
        write_model(aside, run, kept, others)


def find_best(output: Path, step: int) -> Path:
    """Return the folder of the model that was best at a step, or raise OutputError if it is damaged."""
    folder = folder_of(output, "best", step)
    if (reason := damage(folder)) is not None:
        raise OutputError(f"the best model of this run cannot be kept: {reason}.")
    return folder


def write_model(folder: Path, run: Run, main: Trainable, others: Mapping[str, Trainable]) -> None:
    """Write a model, others below it under their names, and the run beside it."""
    main.save(folder)
    for name, other in others.items():
        other.save(folder / name)
    (folder / "run.json").write_text(run.to_json(), encoding="utf-8")


def read_progress(folder: Path) -> Progress:
    """Read how far the run of a checkpoint was."""
    return Progress(**json.loads((folder / "progress.json").read_text(encoding="utf-8")))


def difference(
    folder: Path, stored: Run, run: Run, *, then: tuple[str, int], now: tuple[str, int], source: str
) -> str | None:
    """Return why a run cannot be resumed from a folder, or None if it can.

    `then` and `now` are the fingerprint of the text and the number of processes.
    """
    # The stored run knows the pooler that the model brought along.
    new = asdict(run if run.pooler is not None else run.replace(pooler=stored.pooler))
    old = asdict(stored)
    if [read_part(part)[1:] for part in stored.mixture] == [read_part(part)[1:] for part in run.mixture]:
        old["mixture"] = new["mixture"]  # as with `data`, files may have moved: their content is compared below
    changed = [name for name in new if old[name] != new[name] and name not in MAY_CHANGE]
    if changed:
        details = "; ".join(f"{name}: {old[name]!r} then, {new[name]!r} now" for name in changed)
        return (
            f"the run in {folder} was made with other settings ({details}). Resume with the same settings, or start "
            "again in another folder; to train a finished model further, start from it as the model of a new run."
        )
    if then[0] != now[0]:
        return f"{source} is not the text that {folder} was trained on. Resume with the same text."
    if then[1] != now[1]:
        return (
            f"{folder} was written by {then[1]} process(es), and now there are {now[1]}. Resume with the same number."
        )
    return None


@dataclass(frozen=True)
class Finished:
    """What OUTPUT/result.json says of a finished run."""

    run: Run
    data_fingerprint: str
    processes: int
    result: Result


def write_finished(output: Path, run: Run, progress: Progress, result: Result) -> None:
    """Write the result of a finished run, then remove the checkpoints that it need not keep."""
    weights = {path.name: sha256(path) for path in sorted(output.glob("*model*.safetensors"))}
    document = {
        "run": asdict(run),
        "data_fingerprint": progress.data_fingerprint,
        "processes": progress.processes,
        "result": asdict(result) | {"output": str(output)},
        "files": weights,
    }
    with writing(output / RESULT) as aside:
        aside.write_text(_seal(document), encoding="utf-8")
    remove_after_finish(output, run.keep_checkpoints)


def read_finished(output: Path) -> Finished | None:
    """Return what a finished run left, or None; raise OutputError if it, or the model, is damaged."""
    path = output / RESULT
    if not path.is_file():
        return None
    try:
        found = _read_sealed(path)
        changed = [name for name, digest in found["files"].items() if sha256(output / name) != digest]
    except (OSError, ValueError) as error:
        raise OutputError(f"the finished run in {output} is damaged: {error}. {_REMEDY}") from error
    if changed:
        raise OutputError(
            f"{output / changed[0]} is not the model that the run in {output} finished with: its SHA-256 is not the "
            f"one that {RESULT} has. {_REMEDY}"
        )
    result = replace(Result(**found["result"]), output=output)
    run = Run.from_json(json.dumps(found["run"]))
    return Finished(run, found["data_fingerprint"], found["processes"], result)


def remove_after_finish(output: Path, keep: int) -> None:
    """Remove all but the newest checkpoints of a finished run, and the best models that belong to none of them."""
    _keep_only(output, _newest_first(output)[:keep])
    if keep == 0:
        shutil.rmtree(output / FOLDER, ignore_errors=True)


def clean(output: Path) -> None:
    """Remove what a killed run left half-written."""
    folders = ("step-*", "best-*", "saving")
    files = (LOG, "run.json", RESULT, "README.md", "report.html")
    for place in (output, output / FOLDER):
        for leftover in (path for name in (*folders, *files) for path in place.glob(f".{name}.*")):
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)


def remove_all(output: Path) -> None:
    """Remove every checkpoint, and the result of an earlier run."""
    (output / RESULT).unlink(missing_ok=True)
    shutil.rmtree(output / FOLDER, ignore_errors=True)
    (output / FOLDER).mkdir(exist_ok=True)


def check_room(output: Path, parameters: int, *, keep: int = 0) -> None:
    """Raise OutputError now if the disk has no room for the checkpoints of a model of this size."""
    needed, free = _room_needed(parameters, keep), shutil.disk_usage(output).free + _room_taken(output)
    if free < needed:
        raise OutputError(
            f"{output} is on a disk with {human_bytes(free)} free, and this run needs about {human_bytes(needed)} "
            "for its checkpoints. Make room, or choose another place."
        )


@contextlib.contextmanager
def advising(output: Path, parameters: int, *, keep: int = 0) -> Iterator[None]:
    """Add to a failure to write how to go on; to a full disk also how much is free, and how much is needed."""
    try:
        yield
    except OutputError as error:
        good, damages = newest_good(output)
        advice = "go on with the same command and --resume (resume=True): "
        advice += f"{good} is whole" if good else "there is no checkpoint yet, so the run starts at the beginning"
        if damages and not good:
            advice = "start again with --overwrite (overwrite=True): no checkpoint is whole"
        if not isinstance(error, DiskFull):
            raise OutputError(f"{error} {advice[0].upper()}{advice[1:]}.") from error
        needed = _room_needed(parameters, keep) - _room_taken(output)
        advice = f"Free space, then {advice}."
        raise DiskFull(error.target, error.reason, needed=max(0, needed), advice=advice) from error


def _room_needed(parameters: int, keep: int) -> int:
    # At most: checkpoints of weights and two moments, their best models and one more, the finished one.
    held = max(2, keep)
    return 4 * parameters * (3 * held + held + 1 + 1)


def _room_taken(output: Path) -> int:
    """Return the bytes that the run wrote before: they are replaced, so their room is free to use."""
    written = (*(output / FOLDER).rglob("*"), *output.glob("*model*.safetensors"))
    return sum(path.stat().st_size for path in written if path.is_file())


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


def kept_tensors(own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a method's own tensors under the names they have in a checkpoint."""
    return {f"method.{name}": tensor.detach() for name, tensor in own.items()}


def method_tensors(tensors: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Return a method's own tensors from a checkpoint."""
    start = "method."
    return {name.removeprefix(start): one.to(device) for name, one in tensors.items() if name.startswith(start)}


_REMEDY = "Start again with --overwrite (overwrite=True), or choose another place."


def _newest_first(output: Path) -> list[Path]:
    return sorted((output / FOLDER).glob("step-*"), reverse=True)


def _make_way(output: Path, progress: Progress, *, keep: int) -> None:
    """Remove damaged checkpoints, and of the others all but the newest ones; no other is given up for a damaged one."""
    good = list(itertools.dropwhile(damage, _newest_first(output)))
    _keep_only(output, good[:keep], progress.best_step)


def _keep_only(output: Path, kept: Sequence[Path], best: int | None = None) -> None:
    """Remove every checkpoint but these, and every best model that is neither theirs nor of the step `best`."""
    bests = {best}
    for folder in kept:
        with contextlib.suppress(OSError, ValueError, TypeError):
            bests.add(read_progress(folder).best_step)
    needed = {*kept, *(folder_of(output, "best", step) for step in bests if step is not None)}
    for folder in ({*(output / FOLDER).glob("step-*"), *(output / FOLDER).glob("best-*")}) - needed:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _writing(target: Path) -> Iterator[Path]:
    """Yield a folder to fill; it becomes the target together with the checksums of its files."""
    try:
        with writing_folder(target) as aside:
            yield aside
            files = sorted(path for path in aside.rglob("*") if path.is_file())
            listed = {path.relative_to(aside).as_posix(): sha256(path) for path in files}
            (aside / MANIFEST).write_text(_seal({"files": listed}), encoding="utf-8")
    except DiskFull as error:  # what failed may be a file under a name that nobody has seen
        raise DiskFull(target, error.reason) from error


def _seal(document: dict[str, Any]) -> str:
    """Return a document as JSON together with its own SHA-256."""
    return json.dumps(document | {"sha256": _digest(document)}, indent=2)


def _read_sealed(path: Path) -> dict[str, Any]:
    """Read a sealed document; ValueError says that it is not as it was written."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        digest = document.pop("sha256")
    except (ValueError, KeyError, TypeError, AttributeError):
        digest = None
    if digest is None or digest != _digest(document):
        raise ValueError(f"{path} is damaged: it does not have the checksum that it was written with")
    return dict(document)


def _digest(document: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
