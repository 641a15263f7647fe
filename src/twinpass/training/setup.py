"""From a Run to everything its loop needs; whatever cannot work is found here, before the first step."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from twinpass.config import Run
from twinpass.encoder.encoder import Encoder
from twinpass.encoder.runtime import check_precision, choose_device
from twinpass.errors import ConfigError, OutputError
from twinpass.files import check_writable, explaining
from twinpass.log import FILE as LOG
from twinpass.text.corpus import open_corpus
from twinpass.text.rows import Rows
from twinpass.text.views import VIEWS, View, choose_view, shared_dropout
from twinpass.training import checkpoint
from twinpass.training.data import Batches, InMemory, TrainingData, count_rows, read_data
from twinpass.training.generators import restore_states
from twinpass.training.mlm import MaskedLanguageModel
from twinpass.training.models import load_encoders, load_mlm, make_optimizer, name_parameters, token_limit
from twinpass.training.positives import add_positives
from twinpass.training.processes import Processes

Given = Sequence[str] | Sequence[tuple[str, ...]]


@dataclass
class Parts:
    """Everything a training loop works with."""

    run: Run
    output: Path
    rows: Rows
    view: View
    data: TrainingData
    batches: Batches
    steps: int
    encoders: list[Encoder]  # one, or two for a dual encoder
    mlm: MaskedLanguageModel | None
    processes: Processes
    names: dict[nn.Parameter, str]  # every trained parameter
    optimizer: torch.optim.Optimizer
    progress: checkpoint.Progress
    notes: tuple[str, ...]

    @property
    def encoder(self) -> Encoder:
        """The encoder that is trained, evaluated and kept."""
        return self.encoders[0]

    @property
    def accelerator(self) -> Any:
        """What knows of devices, mixed precision and distribution."""
        return self.processes.accelerator


def prepare(run: Run, *, rows: Given | None, encoder: Encoder | None, resume: bool, overwrite: bool) -> Parts:
    """Check the run and build its parts, from the newest checkpoint if it is resumed."""
    run.check()
    processes, device = _start_processes(run)  # before the output is opened: a refusal leaves it as it was
    output = _open_output(run, resume=resume, overwrite=overwrite)
    text: Rows = _open_rows(run, rows)
    if run.positive is not None:
        text = add_positives(text, run, model=run.model if encoder is None else encoder.name, device=device)
    view = run.view if run.positive is None else "auto"
    run = run.replace(view=choose_view(view, width=text.width, source=text.source)).check()
    folder = checkpoint.newest(output) if resume else None
    encoders = load_encoders(run, device, encoder, folder)
    run = run.replace(pooler=encoders[0].pooler)
    if folder is not None:
        checkpoint.check_same_run(folder, run)
    data = _read_data(run, text, encoders[0])
    mlm = load_mlm(run, encoders[0], resumed=folder is not None)
    names = name_parameters(encoders, mlm)
    checkpoint.check_room(output, sum(parameter.numel() for parameter in names))
    batches = _batches(run, len(data))
    parts = Parts(
        run=run,
        output=output,
        rows=text,
        view=View(1, shared_dropout) if run.share_dropout_mask else VIEWS[run.view],
        data=data,
        batches=batches,
        steps=run.steps or run.epochs * batches.per_epoch,
        encoders=encoders,
        mlm=mlm,
        processes=processes,
        names=names,
        optimizer=make_optimizer(run, names, processes),
        progress=checkpoint.Progress(data_fingerprint=text.fingerprint()),
        notes=(),
    )
    parts.notes = tuple(_notes(parts, resume=resume, folder=folder))
    _begin(parts, folder)
    return parts


def _open_output(run: Run, *, resume: bool, overwrite: bool) -> Path:
    """Make the output folder, see that it can be written to, and guard what it holds."""
    if not run.output:
        raise ConfigError("a run needs an output folder. Name one (in Python: Run(output=...)).")
    output = Path(run.output)
    with explaining(output):
        output.mkdir(parents=True, exist_ok=True)
    check_writable(output / LOG)
    holds = checkpoint.newest(output) or next(output.glob("model*.safetensors"), None)
    if holds and not (resume or overwrite):
        raise OutputError(
            f"{output} already holds a model or an unfinished run ({holds}). Go on with it (--resume), "
            "replace it (--overwrite), or choose another place."
        )
    checkpoint.clean(output)
    if overwrite and not resume:
        shutil.rmtree(output / checkpoint.FOLDER, ignore_errors=True)
    (output / checkpoint.FOLDER).mkdir(exist_ok=True)
    return output


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
        return InMemory(rows)
    if not run.data:
        raise ConfigError("a run needs training text. Name a file, or use the built-in corpus 'docs:'.")
    return open_corpus(run.data, columns=run.columns, skip_bad_rows=run.skip_bad_rows, header=run.header)


def _read_data(run: Run, text: Rows, encoder: Encoder) -> TrainingData:
    """Tokenise ahead: every row, or, where few steps are asked for, only the rows that they will see."""
    limit = token_limit(run, encoder)
    total = count_rows(text) if run.steps is not None else None
    held = _batches(run, total).visited(run.steps) if run.steps is not None and total else None
    return read_data(text, lambda texts: encoder.tokenize(texts, max_tokens=limit), total=total, held=held)


def _batches(run: Run, rows: int) -> Batches:
    return Batches(rows, run.batch_size, run.seed, hard_negatives=run.view == "triplets")


def _notes(parts: Parts, *, resume: bool, folder: Path | None) -> list[str]:
    """Say what a user would want to know before an hour has passed."""
    notes = []
    if resume and folder is None:
        notes.append("there is no checkpoint to resume from: starting at the beginning")
    if len(parts.data) < parts.run.batch_size:
        notes.append(
            f"the batch of {parts.run.batch_size} is larger than the data: every step sees all {len(parts.data)} rows"
        )
    if getattr(parts.rows, "scored", False):
        notes.append(f"{parts.rows.source} has scores, which training does not use: every pair counts as a positive")
    if bad := getattr(parts.rows, "bad_rows", 0):
        notes.append(f"{bad} bad rows of {parts.rows.source} were left out")
    return notes


def _begin(parts: Parts, folder: Path | None) -> None:
    """Seed the generators, or bring everything back to where the checkpoint was."""
    from accelerate.utils import set_seed

    if folder is None:
        set_seed(parts.run.seed + parts.processes.rank)
        return
    progress, tensors = checkpoint.read_progress(folder), checkpoint.read_tensors(folder)
    if progress.data_fingerprint != parts.progress.data_fingerprint:
        raise ConfigError(
            f"{parts.rows.source} is not the text that {folder} was trained on. Resume with the same text."
        )
    if progress.processes != parts.processes.count:
        raise ConfigError(
            f"{folder} was made by {progress.processes} process(es), and there are {parts.processes.count} "
            "now. Resume with as many."
        )
    parts.progress = progress
    with torch.no_grad():
        for parameter, name in parts.names.items():
            if name.startswith("mlm."):
                parameter.copy_(tensors[name])
    checkpoint.restore_optimizer(parts.optimizer, parts.names, tensors)
    restore_states(checkpoint.random_states(tensors, parts.processes.rank), parts.encoder.device)
    if progress.scaler and parts.accelerator.scaler is not None:
        parts.accelerator.scaler.load_state_dict(progress.scaler)
