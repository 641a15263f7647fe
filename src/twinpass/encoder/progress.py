"""A progress bar on stderr with rate and time left, drawn only where somebody can see it."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any


class Progress:
    """Counts what is done; shows it if asked and if stderr is a terminal."""

    def __init__(self, what: str, *, total: int | None, shown: bool) -> None:
        self.what, self.total = what, total
        self.shown = shown and sys.stderr.isatty()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if self.shown:
            from rich import progress
            from rich.console import Console

            self._bar = progress.Progress(
                progress.TextColumn("{task.description}"),
                progress.BarColumn(),
                progress.MofNCompleteColumn(),
                progress.TextColumn("{task.speed:,.0f}/s" if self.total else ""),
                progress.TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(self.what, total=self.total)
        return self

    def advance(self, count: int) -> None:
        """Say that this many more are done."""
        if self._bar is not None:
            self._bar.advance(self._task, count)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
