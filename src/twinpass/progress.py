"""A progress bar on stderr: done, rate, time left."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text


class RateColumn(ProgressColumn):
    """How many a second."""

    def render(self, task: Task) -> Text:
        """Return the rate as text."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s")


@contextlib.contextmanager
def bar(what: str, *, total: int | None) -> Iterator[Callable[[int], None]]:
    """Draw a bar and yield the function that moves it; without a total it shows only count, rate and time."""
    known = [TextColumn("left"), TimeRemainingColumn()] if total is not None else []
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), RateColumn(), TimeElapsedColumn()]
    with Progress(*columns, *known, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.update(task, advance=count)
