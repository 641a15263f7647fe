"""Sentences to train on, and what children processes of the tests do."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tests.tiny import WORDS

from twinpass.config import Run
from twinpass.log import Event, Result
from twinpass.training import checkpoint
from twinpass.training.loop import compute_gradient, train
from twinpass.training.setup import prepare


def make_sentences(count: int, *, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(2, 12))) + f" {number}" for number in range(count)]


def make_triplets(count: int) -> list[tuple[str, ...]]:
    columns = [make_sentences(count, seed=seed) for seed in (1, 2, 3)]
    return list(zip(*columns, strict=True))


def spread(encode: Callable[[list[str]], np.ndarray]) -> dict[str, float]:
    """A score that changes with training: how far apart a few sentences are; it draws at random on purpose."""
    vectors = encode(make_sentences(6, seed=9))
    noise = 0.0 * float(np.random.rand() + random.random() + torch.rand(()).item())
    return {"score": float(vectors.std(axis=0).mean()) + noise, "vectors": len(vectors)}


def train_until_killed(run: Run, rows: list[Any], kill_at: int, kill_when: str, resume: bool) -> None:
    """Train in this process and die by SIGKILL at the given occurrence of an event, or amid a save."""
    torch.set_num_threads(1)
    seen = 0

    def count(event: Event) -> None:
        nonlocal seen
        seen += type(event).__name__ == kill_when
        if seen == kill_at > 0:
            os.kill(os.getpid(), signal.SIGKILL)

    if kill_when == "half-written":
        checkpoint.save_file = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    train(run, rows=rows, evaluate=spread, on_event=count, resume=resume)


def gradient_in_process(run: Run, rows: list[Any], batch: list[int], rank: int, count: int, port: int, to: str) -> None:
    """Compute one batch's gradient as one of several processes; the first writes it down."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    loss, gradients = gradient_of(run, rows, batch)
    if rank == 0:
        np.savez(to, loss=loss, **gradients)
    torch.distributed.destroy_process_group()


def gradient_of(run: Run, rows: list[Any], batch: list[int]) -> tuple[float, dict[str, np.ndarray]]:
    """Return a batch's loss and gradient by parameter name."""
    parts = prepare(run, rows=rows, encoder=None, resume=False, overwrite=True)
    outcome = compute_gradient(parts, 0, np.array(batch))
    gradients = {
        name: torch.zeros_like(parameter).numpy() if parameter.grad is None else parameter.grad.numpy()
        for parameter, name in parts.names.items()
    }
    return outcome.loss, gradients


def train_in_process(run: Run, rows: list[Any], rank: int, count: int, port: int) -> None:
    """Train as one of several processes."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    result: Result = train(run, rows=rows, evaluate=spread, resume=True)
    torch.distributed.destroy_process_group()
    if not result.finished:
        raise SystemExit(3)
