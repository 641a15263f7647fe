"""The training loop, in plain sight."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from twinpass.config import Run
from twinpass.encoder.encoder import Encoder
from twinpass.errors import TrainingError
from twinpass.log import OnEvent, Result, Started, Stepped
from twinpass.training import checkpoint
from twinpass.training.chunked import cut_chunks, encode_cached, encode_directly
from twinpass.training.data import find_rows
from twinpass.training.memory import explaining_memory, memory_of
from twinpass.training.negatives import false_negatives, negatives_per_anchor
from twinpass.training.objectives import OBJECTIVES
from twinpass.training.setup import Given, Parts, prepare
from twinpass.training.signals import interruptible
from twinpass.training.watch import Evaluate, Watch

Numbers = NDArray[np.int64]
CHUNK = 4096  # tokens that are encoded at once where the memory does not hold a whole batch


class Outcome(NamedTuple):
    """What one step came to."""

    loss: float
    mlm_loss: float | None
    gradient_norm: float
    negatives: float
    masked: int


def train(
    run: Run,
    *,
    evaluate: Evaluate | None = None,
    on_event: OnEvent | None = None,
    rows: Given | None = None,
    encoder: Encoder | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> Result:
    """Train a sentence encoder as the run describes and leave it in the run's output folder.

    `evaluate` is handed a function from texts to vectors and returns a score (higher is better), or a dictionary
    of numbers with one under "score"; the best model by that score is the one kept. `on_event` is called with
    every event of twinpass.log. `rows` and `encoder` take the place of the run's data and model.
    `resume` goes on from the newest checkpoint, bit by bit; `overwrite` lets a new run replace an old one.
    """
    parts = prepare(run, rows=rows, encoder=encoder, resume=resume, overwrite=overwrite)
    watch = Watch(parts, evaluate, on_event)
    try:
        with explaining_memory(lambda: _no_memory(parts)):
            with interruptible() as interrupted:
                watch.tell(_introduce(parts))
                reason = _run_steps(parts, watch, interrupted)
            return watch.finish(reason)
    finally:
        watch.close()


def _run_steps(parts: Parts, watch: Watch, interrupted: Callable[[], bool]) -> str:
    """Take the steps that are left and return why it ended."""
    run, progress = parts.run, parts.progress
    optimizer = parts.accelerator.prepare(parts.optimizer)
    if progress.step == 0:
        watch.evaluate()
        if run.track_geometry is not None:
            watch.track()
    for step, rows in parts.batches.since(progress.step, until=parts.steps):
        if run.patience is not None and progress.evaluations_without_gain >= run.patience:
            return "early stop"
        set_learning_rate(parts.optimizer, run, step, parts.steps)
        outcome = compute_gradient(parts, step, rows)
        optimizer.step()
        optimizer.zero_grad()

        progress.step, progress.loss = step + 1, outcome.loss
        progress.masked += outcome.masked
        watch.tell(_describe(parts, watch, outcome, len(rows)))
        if progress.step % run.eval_every == 0 or progress.step == parts.steps:
            watch.evaluate()
        if run.track_geometry is not None and progress.step % run.track_geometry == 0:
            watch.track()
        stop = parts.processes.total(interrupted()) > 0
        if stop or progress.step % run.save_every == 0:
            watch.save()
        if stop and progress.step < parts.steps:
            return "interrupted"
    return "finished"


def compute_gradient(parts: Parts, step: int, rows: Numbers) -> Outcome:
    """Encode a batch's passes, take the loss over all of it, and send it back to the parameters."""
    run, processes, accelerator = parts.run, parts.processes, parts.accelerator
    own = processes.share(rows)
    # The view says which sentences make which passes; for unsupervised SimCSE every sentence makes two.
    passes = parts.view.passes(parts.data.columns(own))
    ids = [parts.data.ids(text) for one_pass in passes for text in one_pass]
    encoder_of = [parts.encoders[min(place, len(parts.encoders) - 1)] for place in range(len(passes)) for _ in own]

    encode = encode_cached if run.chunk_tokens else encode_directly
    chunks = cut_chunks(ids, encoder_of, token_budget=run.chunk_tokens)
    width = parts.encoder.dimensions
    encoded = encode(chunks, ids, dimensions=width, autocast=accelerator.autocast)
    vectors = processes.gather(encoded.vectors.view(len(passes), len(own), width), len(rows))

    keys = parts.view.passes(parts.data.key_columns(rows))
    mask = None if run.keep_duplicates else false_negatives(keys)
    masked = 0 if mask is None else int(mask.sum())
    hidden = torch.from_numpy(mask).to(vectors.device) if masked else None
    loss = OBJECTIVES[run.view](vectors.unbind(), run, hidden)
    value = loss.item()
    _check_finite(parts, "the loss", value, step, rows, vectors)
    if loss.requires_grad:
        accelerator.backward(loss)
        encoded.carry_on()

    mlm_loss = _mlm_backward(parts, step, ids)
    processes.sum_gradients(parts.names)
    norm = float(accelerator.clip_grad_norm_(list(parts.names), run.clip))
    if accelerator.scaler is None:  # with fp16 the scaler skips such a step by itself
        _check_finite(parts, "the gradient's norm", norm, step, rows, vectors)
    total = value + (mlm_loss or 0.0)
    return Outcome(total, mlm_loss, norm, negatives_per_anchor(keys, mask), masked)


def set_learning_rate(optimizer: torch.optim.Optimizer, run: Run, step: int, steps: int) -> None:
    """Set the rate of a step (counted from 0): linear from the peak to 0, after a warm-up if the run has one."""
    warmup = round(run.warmup * steps)
    share = (step + 1) / (warmup + 1) if step < warmup else (steps - step) / (steps - warmup)
    for group in optimizer.param_groups:
        group["lr"] = run.learning_rate * share


def _mlm_backward(parts: Parts, step: int, ids: Sequence[object]) -> float | None:
    if parts.mlm is None:
        return None
    # Drawn from the step's own generator, so a resumed run hides the same tokens.
    random = np.random.default_rng([parts.run.seed, step, parts.processes.rank])
    return parts.mlm.backward(ids, random, weight=parts.run.mlm_weight, processes=parts.processes)


def _check_finite(parts: Parts, what: str, value: float, step: int, rows: Numbers, vectors: torch.Tensor) -> None:
    """Stop the run at a number that is none, and say on which texts."""
    if math.isfinite(value):
        return
    broken = (~vectors.detach().isfinite().all(dim=2)).any(dim=0).cpu().numpy()
    good = checkpoint.newest(parts.output)
    kept = f"The last good checkpoint is {good}" if good else "There was no checkpoint yet"
    texts = find_rows(parts.rows, (rows[broken] if broken.any() else rows).tolist())
    raise TrainingError(
        f"{what} is {value} at step {step + 1}, on {int(broken.sum()) or len(rows)} of {len(rows)} rows:\n  "
        + "\n  ".join(texts)
        + f"\n{kept}. Look at these texts, or train with a lower learning rate."
    )


def _no_memory(parts: Parts) -> str:
    """Say what ran out, and what asks for less of it."""
    run = parts.run
    smaller = CHUNK if run.chunk_tokens is None else max(1, run.chunk_tokens // 2)
    return (
        f"{memory_of(parts.encoder.device)} ran out at step {parts.progress.step + 1}, with a batch of "
        f"{run.batch_size} rows. Begin anew with chunk_tokens {smaller}: the batch is encoded in smaller chunks, and "
        "its loss stays the same. If that is not enough, take a smaller batch."
    )


def _introduce(parts: Parts) -> Started:
    columns = {1: "one text column", 2: "two text columns", 3: "three text columns"}[parts.data.width]
    made, source = parts.run.positive, parts.rows.source
    return Started(
        view=parts.run.view,
        why=f"{source} has {columns}" if made is None else f"positives of {source} are made by {made}",
        pooler=parts.encoder.pooler,
        rows=len(parts.data),
        steps=parts.steps,
        first_step=parts.progress.step,
        epochs=parts.steps / parts.batches.per_epoch,
        batch_size=min(parts.run.batch_size, len(parts.data)),
        processes=parts.processes.count,
        parameters=sum(parameter.numel() for parameter in parts.names),
        lexical_overlap=parts.data.overlap,
        notes=parts.notes,
    )


def _describe(parts: Parts, watch: Watch, outcome: Outcome, rows: int) -> Stepped:
    rate = watch.note_step(rows * parts.data.width, time.monotonic())
    return Stepped(
        step=parts.progress.step,
        steps=parts.steps,
        epoch=parts.progress.step / parts.batches.per_epoch,
        loss=outcome.loss,
        mlm_loss=outcome.mlm_loss,
        learning_rate=parts.optimizer.param_groups[0]["lr"],
        gradient_norm=outcome.gradient_norm,
        negatives=outcome.negatives,
        masked=outcome.masked,
        sentences_per_second=rate.sentences_per_second,
        seconds_left=rate.seconds_left,
    )
