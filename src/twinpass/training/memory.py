"""What is said where the memory runs out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from accelerate.utils.memory import should_reduce_batch_size

from twinpass.errors import TrainingError


@contextlib.contextmanager
def explaining_memory(advice: Callable[[], str]) -> Iterator[None]:
    """Turn torch's error for memory that ran out into a TrainingError that says what asks for less of it."""
    try:
        yield
    except RuntimeError as error:
        if should_reduce_batch_size(error):
            raise TrainingError(advice()) from error
        raise


def memory_of(device: torch.device) -> str:
    """Say whose memory a device uses."""
    return f"the memory of the {'machine' if device.type == 'cpu' else 'GPU'}"
