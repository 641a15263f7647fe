"""From a Run to everything that the loop needs; what cannot work is found here, before the first step."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

from twinpass.config import METHOD_DEFAULTS, Run
from twinpass.encoder.encoder import Encoder
from twinpass.encoder.runtime import check_precision, choose_device
from twinpass.errors import ConfigError, OutputError
from twinpass.files import check_writable, explaining
from twinpass.log import FILE as LOG
from twinpass.text.corpus import open_corpus
from twinpass.text.rows import Rows
from twinpass.training import checkpoint
from twinpass.training.data import Batches, InMemory
from twinpass.training.method import Method, Start
from twinpass.training.methods import METHODS
from twinpass.training.processes import Processes
from twinpass.training.randomness import restore_states

Given = Sequence[str] | Sequence[tuple[str, ...]] | InMemory


@dataclass
class Parts:
    """Everything that the training loop works with."""

    method: Method
    output: Path
    batches: Batches
    steps: int
    names: dict[nn.Parameter, str]  # every trained parameter
    optimizer: torch.optim.Optimizer
    progress: checkpoint.Progress
    notes: tuple[str, ...] = ()

    @property
    def run(self) -> Run:
        """The run, with what the text and the model decided."""
        return self.method.run

    @property
    def processes(self) -> Processes:
        """The processes that train together."""
        return self.method.processes


def prepare(run: Run, *, rows: Given | None, encoder: Encoder | None, resume: bool, overwrite: bool) -> Parts:
    """Check the run and build its parts, from the newest checkpoint if it is resumed."""
    from accelerate.utils import set_seed

    run.check()
    kind = METHODS[run.method]
    processes, device = _start_processes(run)
    if processes.count > 1 and not kind.several_processes:
        raise ConfigError(f"{run.method} trains in one process, and there are {processes.count}. Start one.")
    with _open_output(run, resume=resume, overwrite=overwrite) as output:
        text = _open_rows(run, rows)
        run, text = kind.read(run, text, model=run.model if encoder is None else encoder.name, device=device)
        progress = checkpoint.Progress(data_fingerprint=text.fingerprint(), kept=kind.main)
        folder = checkpoint.newest(output) if resume else None
        if folder is not None:
            fingerprint, count = progress.data_fingerprint, processes.count
            reason = checkpoint.difference(folder, run, source=text.source, fingerprint=fingerprint, processes=count)
            if reason is not None and not overwrite:
                raise ConfigError(reason)
            folder = folder if reason is None else None
        set_seed(run.seed)  # new layers are the same in every process
        start = Start(run=run, rows=text, device=device, processes=processes, encoder=encoder, checkpoint=folder)
        method = kind(start)
        names = method.parameters()
        checkpoint.check_room(output, sum(parameter.numel() for parameter in names))
        batches = method.batches(method.examples)
        parts = Parts(
            method=method,
            output=output,
            batches=batches,
            steps=run.steps or run.epochs * batches.per_epoch,
            names=names,
            optimizer=method.make_optimizer(list(names)),
            progress=progress,
        )
        parts.notes = tuple(_notes(parts, resume=resume, folder=folder))
        set_seed(run.seed + processes.rank)
        if folder is not None:
            _restore(parts, folder)
        elif overwrite:  # not before all else worked: a refused run takes nothing away
            checkpoint.remove_all(output)
    return parts


@contextlib.contextmanager
def _open_output(run: Run, *, resume: bool, overwrite: bool) -> Iterator[Path]:
    """Make the output folder, check that it is writable and guard what it holds; a refused run leaves no new folder."""
    if not run.output:
        raise ConfigError("a run needs an output folder. Name one (in Python: Run(output=...)).")
    output = Path(run.output)
    is_new = not output.exists()
    with explaining(output):
        output.mkdir(parents=True, exist_ok=True)
    check_writable(output / LOG)
    holds = checkpoint.newest(output) or next(output.glob("model*.safetensors"), None)
    if holds and not (resume or overwrite):
        raise OutputError(
            f"{output} already holds a model or an unfinished run ({holds}). Resume it (--resume), replace it "
            "(--overwrite), or choose another place."
        )
    checkpoint.clean(output)
    (output / checkpoint.FOLDER).mkdir(exist_ok=True)
    try:
        yield output
    except BaseException:
        if is_new:
            shutil.rmtree(output, ignore_errors=True)
        raise


def _start_processes(run: Run) -> tuple[Processes, torch.device]:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    device = choose_device(run.device)
    check_precision(run.precision, device)
    AcceleratorState._reset_state()  # an earlier run of this process may have chosen another precision
    mixed = {"fp32": "no"}.get(run.precision, run.precision)
    processes = Processes(Accelerator(cpu=device.type == "cpu", mixed_precision=mixed))
    return processes, processes.accelerator.device if processes.count > 1 else device


def _open_rows(run: Run, rows: Given | None) -> Rows:
    if rows is not None:
        return rows if isinstance(rows, InMemory) else InMemory(rows)
    if not run.data:
        reads = METHOD_DEFAULTS[run.method].reads
        raise ConfigError(
            f"a run needs training text: {run.method} learns from {reads}. Name a file, or use the built-in "
            "corpus 'docs:'."
        )
    return open_corpus(run.data, columns=run.columns, skip_bad_rows=run.skip_bad_rows, header=run.header)


def _notes(parts: Parts, *, resume: bool, folder: Path | None) -> list[str]:
    """Return what a user should know before the first step."""
    notes, method, rows = [], parts.method, parts.method.rows
    if resume and folder is None:
        notes.append("there is no checkpoint to resume from: starting at the beginning")
    if method.examples < method.per_step:
        notes.append(
            f"the batch of {method.per_step} is larger than the data: every step uses all {method.examples} rows"
        )
    if getattr(rows, "scored", False):
        notes.append(f"{rows.source} has scores, which training does not use: every pair counts as a positive")
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
    method.memory = progress.memory
    restore_states(checkpoint.random_states(tensors, parts.processes.rank), method.device)
    if progress.scaler and (scaler := parts.processes.accelerator.scaler) is not None:
        scaler.load_state_dict(progress.scaler)
