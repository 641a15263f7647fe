"""Ctrl-C and a polite kill: finish the step, save, and say how to resume."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether SIGINT or SIGTERM came; a second one stops at once."""
    came = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        if came.is_set():
            raise KeyboardInterrupt
        came.set()

    if threading.current_thread() is not threading.main_thread():
        yield came.is_set  # only the main thread may listen for signals
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
