"""From a Run to everything that the loop needs; what cannot work is found here, before the first step."""

from __future__ import annotations

import contextlib
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import load_file
from torch import nn

from twinpass.config import METHOD_DEFAULTS, Run, parts_of
from twinpass.encoder.encoder import Encoder
from twinpass.encoder.runtime import check_precision, choose_device
from twinpass.errors import ConfigError, InputError, OutputError, UserError
from twinpass.files import check_writable, explaining, locked
from twinpass.log import FILE as LOG
from twinpass.log import Result
from twinpass.text.corpus import open_corpus
from twinpass.text.rows import Rows
from twinpass.training import checkpoint
from twinpass.training.batches import Schedule
from twinpass.training.data import InMemory
from twinpass.training.method import Method, Start
from twinpass.training.methods import METHODS
from twinpass.training.mixture import Mixture, PartRows, parts_in
from twinpass.training.processes import Processes
from twinpass.training.randomness import restore_states

Texts = Sequence[str] | Sequence[tuple[Any, ...]] | InMemory
Given = Texts | Mapping[str, Texts]  # rows in memory, of a mixture by the name of the part
Answer = TypeVar("Answer")
LOCK = ".lock"


class AlreadyFinished(Exception):
    """The run that is to be resumed was finished before; nothing is left to train."""

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self.result = result


@dataclass
class Parts:
    """Everything that the training loop works with; leaving its block lets others write to the output folder."""

    method: Method
    output: Path
    batches: Schedule
    steps: int
    names: dict[nn.Parameter, str]  # every trained parameter
    optimizer: torch.optim.Optimizer
    progress: checkpoint.Progress
    notes: tuple[str, ...] = ()
    claim: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)  # the lock on the output folder

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *_: object) -> None:
        self.claim.close()

    @property
    def run(self) -> Run:
        """The run, with what the text and the model decided."""
        return self.method.run

    def epoch(self, step: int) -> float:
        """Return after how many epochs a step is; the last step ends as many as the run asks for."""
        if self.run.steps is None:
            return self.run.epochs * step / self.steps
        return step / self.batches.per_epoch

    @property
    def processes(self) -> Processes:
        """The processes that train together."""
        return self.method.processes


def prepare(run: Run, *, rows: Given | None, encoder: Encoder | None, resume: bool, overwrite: bool) -> Parts:
    """Check the run and build its parts, from the newest good checkpoint if it is resumed.

    The parts hold the lock on the output folder until they are left. Raises AlreadyFinished if a resumed run is.
    """
    from accelerate.utils import set_seed

    run.check()
    if encoder is not None:
        encoder.check_whole("training")
    kind = METHODS[run.method]
    processes, device = _start_processes(run)
    if processes.count > 1 and not kind.several_processes:
        raise ConfigError(f"{run.method} trains in one process, and there are {processes.count}. Start one.")
    with contextlib.ExitStack() as claim, _opened(run, processes, claim, resume=resume, overwrite=overwrite) as output:
        text = open_rows(run, rows)
        run, text = kind.read(run, text, model=run.model if encoder is None else encoder.name, device=device)
        progress = checkpoint.Progress(data_fingerprint=text.fingerprint(), kept=kind.main)
        folder = None
        if resume:
            now = progress.data_fingerprint, processes.count
            folder = _by_main(processes, lambda: _to_resume(output, run, now, text.source, overwrite=overwrite))
        set_seed(run.seed)  # new layers are the same in every process
        start = Start(run=run, rows=text, device=device, processes=processes, encoder=encoder, checkpoint=folder)
        method = kind(start)
        names = method.parameters()
        checkpoint.check_room(output, count_values(names), keep=run.keep_checkpoints)
        batches = method.schedule()
        parts = Parts(
            method=method,
            output=output,
            batches=batches,
            steps=run.steps or batches.steps_in(run.epochs),
            names=names,
            optimizer=method.make_optimizer(list(names)),
            progress=progress,
        )
        parts.notes = tuple(_notes(parts, resume=resume, folder=folder))
        set_seed(run.seed + processes.rank)
        if folder is not None:
            _restore(parts, folder)
        else:  # not before all else worked, in every process: a refused run takes nothing away
            processes.wait()
            if processes.is_main:
                checkpoint.remove_all(output)
            processes.wait()
        parts.claim = claim.pop_all()
    return parts


def count_values(names: dict[nn.Parameter, str]) -> int:
    """Return the number of values in all parameters."""
    return sum(parameter.numel() for parameter in names)


def _by_main(processes: Processes, decide: Callable[[], Answer]) -> Answer:
    """Return what the main process decides, in every process; what it refuses is refused in every process."""
    if processes.count == 1:
        return decide()
    answer: Answer | None = None
    refusal: Exception | None = None
    if processes.is_main:
        try:
            answer = decide()
        except (UserError, AlreadyFinished) as error:
            refusal = error
    answer, refusal = processes.from_main((answer, refusal))
    if refusal is not None:
        raise refusal
    return answer


@contextlib.contextmanager
def _opened(
    run: Run, processes: Processes, claim: contextlib.ExitStack, *, resume: bool, overwrite: bool
) -> Iterator[Path]:
    """Make and claim the output folder, and guard what it holds; a refused run leaves no new folder."""
    if not run.output:
        raise ConfigError("a run needs an output folder. Name one (in Python: Run(output=...)).")
    output = Path(run.output)
    with contextlib.ExitStack() as undo:
        _by_main(processes, lambda: _open_output(output, claim, undo, resume=resume, overwrite=overwrite))
        yield output
        undo.pop_all()


def _open_output(
    output: Path, claim: contextlib.ExitStack, undo: contextlib.ExitStack, *, resume: bool, overwrite: bool
) -> None:
    with explaining(output):
        is_new = _make_folder(output)
    # One training at a time: the processes of this one share the lock that its main process holds.
    claim.enter_context(locked(output / LOCK, wait=False, what=f"the output folder {output}", keep=False))
    # Only now: another training may have taken the folder between the two lines above.
    if is_new and {path.name for path in output.iterdir()} <= {LOCK}:
        undo.callback(shutil.rmtree, output, ignore_errors=True)
    check_writable(output / LOG)
    newest, model = checkpoint.newest(output), next(output.glob("*model*.safetensors"), None)
    if (newest or model) and not (resume or overwrite):
        raise OutputError(
            f"{output} already holds a model or an unfinished run ({newest or model}). Resume it (--resume), replace "
            "it (--overwrite), or choose another place."
        )
    if model and not newest and not overwrite and not (output / checkpoint.RESULT).is_file():
        raise OutputError(
            f"{output} holds a model ({model}), but neither a checkpoint to resume from nor the result of a finished "
            "run. Replace it (--overwrite), or choose another place."
        )
    checkpoint.clean(output)
    (output / checkpoint.FOLDER).mkdir(exist_ok=True)


def _make_folder(folder: Path) -> bool:
    """Make a folder if there is none; return whether this call made it."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        if not folder.is_dir():
            raise
        return False
    return True


def _to_resume(output: Path, run: Run, now: tuple[str, int], source: str, *, overwrite: bool) -> Path | None:
    """Return the checkpoint to resume from, or None to start at the beginning."""
    try:
        finished = checkpoint.read_finished(output)
        folder, damages = (None, []) if finished else checkpoint.newest_good(output)
        if damages and folder is None:
            raise InputError(
                f"no checkpoint of {output} can be resumed from: {'; '.join(damages)}. Start again with --overwrite "
                "(overwrite=True), or choose another place."
            )
        if finished:
            then = finished.data_fingerprint, finished.processes
            reason = checkpoint.difference(output, finished.run, run, then=then, now=now, source=source)
        elif folder:
            progress, stored = checkpoint.read_progress(folder), Run.read(folder / "run.json")
            then = progress.data_fingerprint, progress.processes
            reason = checkpoint.difference(folder, stored, run, then=then, now=now, source=source)
        else:
            reason = None
        if reason is not None:
            raise ConfigError(reason)
    except UserError as error:
        if not overwrite:
            raise
        if not isinstance(error, ConfigError):  # another run is replaced without a word, a damaged one is not
            warnings.warn(f"{error} It starts at the beginning.", stacklevel=2)
        return None
    if finished:
        checkpoint.remove_after_finish(output, run.keep_checkpoints)
        advice = f"The run in {output} was finished before, so nothing was trained. {finished.result.advice}"
        raise AlreadyFinished(replace(finished.result, advice=advice))
    if damages and folder:
        warnings.warn(f"{'; '.join(damages)}. Resuming from the checkpoint before it, {folder}.", stacklevel=2)
    return folder


def _start_processes(run: Run) -> tuple[Processes, torch.device]:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    device = choose_device(run.device)
    check_precision(run.precision, device)
    AcceleratorState._reset_state()  # an earlier run of this process may have chosen another precision
    mixed = {"fp32": "no"}.get(run.precision, run.precision)
    processes = Processes(Accelerator(cpu=device.type == "cpu", mixed_precision=mixed))
    return processes, processes.accelerator.device if processes.count > 1 else device


def open_rows(run: Run, rows: Given | None) -> Rows:
    """Open the run's data, or its parts; rows in memory replace the data, or the parts that they are named by."""
    if not run.mixture:
        return _open_part(run, rows.get(run.data) if isinstance(rows, Mapping) else rows)
    given = rows if isinstance(rows, Mapping) else {}
    parts = parts_of(run, in_memory=rows is not None and not isinstance(rows, Mapping))
    if unknown := [name for name in given if name not in {part.run.data for part in parts}]:
        raise ConfigError(
            f"rows has {', '.join(map(repr, unknown))}, and no part of the run's mixture is called so. Its parts: "
            f"{', '.join(repr(part.run.data) for part in parts)}."
        )
    opened = []
    for place, (name, share, own) in enumerate(parts):
        of_run = rows if place == 0 and not isinstance(rows, Mapping) else None
        opened.append(PartRows(name, share, own, _open_part(own, given.get(own.data, of_run))))
    return Mixture(opened)


def _open_part(run: Run, rows: Texts | None) -> Rows:
    if rows is not None:
        return rows if isinstance(rows, InMemory) else InMemory(rows, label=run.label, score=run.score)
    if not run.data:
        reads = METHOD_DEFAULTS[run.method].reads
        raise ConfigError(
            f"a run needs training text: {run.method} learns from {reads}. Name a file, or use the built-in "
            "corpus 'docs:'."
        )
    return open_corpus(
        run.data,
        columns=run.columns,
        join=run.join,
        score=run.score,
        label=run.label,
        negatives=run.method == "simcse",
        skip_bad_rows=run.skip_bad_rows,
        header=run.header,
    )


def _notes(parts: Parts, *, resume: bool, folder: Path | None) -> list[str]:
    """Return what a user should know before the first step."""
    notes, method = list(parts.method.notes), parts.method
    if resume and folder is None:
        notes.append("there is no checkpoint to resume from: starting at the beginning")
    if method.examples < method.per_step:
        notes.append(
            f"the batch of {method.per_step} is larger than the data: every step uses all {method.examples} rows"
        )
    for part in parts_in(method.rows, method.run):
        rows = part.rows
        notes += getattr(rows, "decisions", ())
        if getattr(rows, "scored", False) and part.run.score is None:
            notes.append(
                f"{rows.source} has scores, which training does not use: every pair counts as a positive; with --score "
                f"{getattr(rows, 'score_column', 'NAME')} it ranks the pairs by them"
            )
        if bad := getattr(rows, "bad_rows", 0):
            notes.append(f"skipped {bad} bad rows of {rows.source}")
    return notes


def _restore(parts: Parts, folder: Path) -> None:
    """Restore what a checkpoint holds besides the models, which the method has loaded."""
    method, tensors = parts.method, load_file(folder / "trainer.safetensors")
    parts.progress = progress = checkpoint.read_progress(folder)
    with torch.no_grad():
        for parameter, name in parts.names.items():
            if name in tensors:
                parameter.copy_(tensors[name])
    checkpoint.restore_optimizer(parts.optimizer, parts.names, tensors)
    method.restore(progress.memory, checkpoint.method_tensors(tensors, method.device))
    restore_states(checkpoint.random_states(tensors, parts.processes.rank), method.device)
    if progress.scaler and (scaler := parts.processes.accelerator.scaler) is not None:
        scaler.load_state_dict(progress.scaler)
