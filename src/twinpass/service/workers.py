"""Threads for work that must not block the event loop: a fixed number, a bounded line, and no hold on the process.

An executor of the standard library has no bound on what waits, and the interpreter waits at its end for whatever its
threads do. These threads are daemons: work that outlives its request, in native code say, cannot delay the end.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Full(Exception):
    """All threads are at work and the line before them is full."""


class Workers:
    """Up to `threads` threads, started when first needed, and up to `line` pieces of work that wait for them."""

    def __init__(self, threads: int, *, name: str, line: int | None = None) -> None:
        self.threads, self.name, self.line = threads, name, line
        self.unfinished = 0  # waiting or at work
        self._lock = threading.Lock()
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._started: list[threading.Thread] = []

    async def run(self, work: Callable[[], T]) -> T:
        """Return what the work returns; it is not begun if the caller is cancelled before."""
        with self._lock:
            if self.line is not None and self.unfinished >= self.threads + self.line:
                raise Full
            if len(self._started) < min(self.threads, self.unfinished + 1):
                self._start_thread()
            self.unfinished += 1
        future: Future[T] = Future()
        self._work.put((future, work))
        return await asyncio.wrap_future(future)

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._serve, name=self.name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system gives no more threads: those that run do the work, only later
            if not self._started:
                raise
        else:
            self._started.append(thread)

    def close(self, seconds: float) -> None:
        """Let the threads end, and wait for them, but no longer than this."""
        until = time.monotonic() + seconds
        for _ in self._started:
            self._work.put(None)
        for thread in self._started:
            thread.join(max(0.0, until - time.monotonic()))

    def _serve(self) -> None:
        while (given := self._work.get()) is not None:
            future, work = given
            if future.set_running_or_notify_cancel():
                try:
                    result = work()
                except BaseException as error:
                    self._finish()
                    future.set_exception(error)
                else:
                    self._finish()
                    future.set_result(result)
            else:
                self._finish()
            del given, future, work

    def _finish(self) -> None:
        with self._lock:
            self.unfinished -= 1
