"""One batch over several processes, and what the system does to them: signals, and memory that runs out.

Every process encodes its share of the batch, gathers everyone's vectors and puts its own, with their graph, in their
place. The loss it then computes is the whole batch's, and its backward pass gives the part of the gradient that flows
through its own sentences. The gradient of the batch is therefore the sum over processes, not the mean that
data-parallel wrappers take.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from twinpass.errors import OutOfMemory, TrainingError


class Processes:
    """The processes of a run, as seen from one of them."""

    def __init__(self, accelerator: Any) -> None:
        self.accelerator = accelerator
        self.count: int = accelerator.num_processes
        self.rank: int = accelerator.process_index
        self.is_main: bool = accelerator.is_main_process

    def share(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return this process's part of a batch's rows; parts differ by at most one row and may be empty."""
        return self.shares(rows)[self.rank]

    def shares(self, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return everyone's part of a batch's rows."""
        return np.array_split(rows, self.count)

    def gather(self, passes: Tensor, rows: int | Sequence[int]) -> Tensor:
        """Return (passes, rows, d) of the whole batch from everyone's (passes, share, d).

        `rows` is the number of rows in the batch, or of everyone's where they are not shared evenly.
        """
        if self.count == 1:
            return passes
        passes = passes.to(self.accelerator.device)  # a process without rows has made no tensor there yet
        shares = [len(part) for part in self.shares(np.arange(rows))] if isinstance(rows, int) else list(rows)
        padded = passes.new_zeros(passes.shape[0], max(shares), passes.shape[2])
        padded[:, : passes.shape[1]] = passes.detach()
        parts = list(self.accelerator.gather(padded[None]).unbind(0))
        parts = [part[:, :share] for part, share in zip(parts, shares, strict=True)]
        parts[self.rank] = passes
        return torch.cat(parts, dim=1)

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Add up everyone's gradients; a process without rows adds nothing."""
        if self.count == 1:
            return
        every = list(parameters)
        for parameter in every:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        flat = torch.cat([parameter.grad.flatten() for parameter in every if parameter.grad is not None])
        total = self.accelerator.reduce(flat, reduction="sum")
        for parameter, part in zip(every, total.split([p.numel() for p in every]), strict=True):
            parameter.grad = part.view_as(parameter)

    def total(self, number: float) -> float:
        """Return the sum of everyone's number."""
        if self.count == 1:
            return number
        everyone = torch.tensor([number], dtype=torch.float32, device=self.accelerator.device)
        return float(self.accelerator.reduce(everyone, reduction="sum").item())

    def from_main(self, thing: Any) -> Any:
        """Return the main process's object in every process."""
        if self.count == 1:
            return thing
        from accelerate.utils import broadcast_object_list

        return broadcast_object_list([thing])[0]

    def everyones(self, thing: Any) -> list[Any]:
        """Return every process's object, in order of rank."""
        if self.count == 1:
            return [thing]
        from accelerate.utils import gather_object

        things: list[Any] = gather_object([thing])
        return things

    def wait(self) -> None:
        """Wait for every process."""
        self.accelerator.wait_for_everyone()


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether SIGINT or SIGTERM arrived; a second signal stops at once."""
    arrived = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        if arrived.is_set():
            raise KeyboardInterrupt
        arrived.set()

    if threading.current_thread() is not threading.main_thread():
        yield arrived.is_set  # only the main thread may handle signals
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield arrived.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def explaining_memory(advice: Callable[[], str]) -> Iterator[None]:
    """Turn torch's out-of-memory error into our own, which says what needs less memory."""
    from accelerate.utils.memory import should_reduce_batch_size

    try:
        yield
    except RuntimeError as error:
        if should_reduce_batch_size(error):
            raise OutOfMemory(advice()) from error
        raise


@contextlib.contextmanager
def explaining_loss_of_others(processes: Processes) -> Iterator[None]:
    """Turn the error of a lost connection into a TrainingError: another process of the run has ended."""
    try:
        yield
    except RuntimeError as error:
        if processes.count == 1 or not (isinstance(error, torch.distributed.DistError) or "gloo" in str(error)):
            raise
        raise TrainingError(
            f"process {processes.rank} of {processes.count} has lost the connection to another process of this run, "
            f"which has probably ended: {str(error).splitlines()[0].rstrip('.')[:200]}. Look at what that one said, "
            "then start all of them again with --resume (resume=True)."
        ) from error


def memory_of(device: torch.device) -> str:
    """Return whose memory a device uses, in words."""
    return f"the memory of the {'machine' if device.type == 'cpu' else 'GPU'}"
