"""One step ahead: a thread reads and tokenises the next texts while the model computes the vectors of these."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Generator, Iterator
from typing import TypeVar

T = TypeVar("T")


def ahead(steps: Iterator[T]) -> Generator[T, None, None]:
    """Yield what an iterator yields; a thread takes the next step meanwhile, and at most one waits to be taken.

    An error of the iterator is raised here, once, after the steps before it. Close the generator to end the thread
    early: it finishes the step that it is in. Only the thread runs the iterator, so it needs no locks.
    """
    made: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(maxsize=1)
    stopped = threading.Event()

    def work() -> None:
        error: BaseException = StopIteration()
        try:
            for step in steps:
                if stopped.is_set():
                    return
                made.put((step, None))
        except BaseException as raised:  # whatever it is belongs to the thread that asked for the steps
            error = raised
        if not stopped.is_set():
            made.put((None, error))

    thread = threading.Thread(target=work, name="twinpass-ahead", daemon=True)
    thread.start()
    try:
        while True:
            step, error = made.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield step  # type: ignore[misc]
    finally:
        stopped.set()
        with contextlib.suppress(queue.Empty):  # makes room for a step that the thread still holds
            made.get_nowait()
        thread.join()
