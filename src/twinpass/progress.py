"""Progress bars on stderr, and silent stand-ins."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

Advance = Callable[[int], None]  # moves a bar by a number of steps
Log = Callable[[str], None]  # shows one line


class Progress(Protocol):
    """Opens a progress bar: `with progress("encoding", total=n) as advance: advance(k)`."""

    def __call__(self, what: str, *, total: int | None = None) -> AbstractContextManager[Advance]:
        """Return the bar, which yields the function that moves it."""


def silent(what: str, *, total: int | None = None) -> AbstractContextManager[Advance]:
    """Show no bar: the default of the library."""
    return contextlib.nullcontext(lambda count: None)


def ignore(message: str) -> None:
    """Show no line: the default of the library."""


@contextlib.contextmanager
def bar(what: str, *, total: int | None = None) -> Iterator[Advance]:
    """Draw a bar with count, rate and time; with a total, also the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar
    from rich.progress import TimeRemainingColumn as TimeLeft
    from rich.text import Text

    class RateColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.0f}/s")

    known = [TextColumn("left"), TimeLeft()] if total is not None else []
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), RateColumn(), TimeElapsedColumn()]
    with Bar(*columns, *known, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.update(task, advance=count)
