"""Showing a training run, for `train` and `demo`: a live line on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from twinpass.cli.console import Console
from twinpass.log import Evaluated, Event, Saved, Started, Stepped, Stopped

LINES = 10  # lines for the steps of a run where there is no terminal


class TrainingView:
    """Shows the events of a training run."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live = not console.quiet and sys.stderr.isatty()
        self._bar: Any = None
        self._task: Any = None
        self._dev = ""

    def __enter__(self) -> TrainingView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, event: Event) -> None:
        """Show one event of the loop."""
        if isinstance(event, Started):
            self._start(event)
        elif isinstance(event, Stepped):
            self._step(event)
        elif isinstance(event, Evaluated):
            self._evaluated(event)
        elif isinstance(event, Saved):
            self._say(f"checkpoint at step {event.step}")
        elif isinstance(event, Stopped) and event.reason == "early stop":
            self._say(f"stopped early at step {event.step}: the dev score no longer rises")

    def _start(self, event: Started) -> None:
        overlap = "" if event.lexical_overlap is None else f", lexical overlap of pairs {event.lexical_overlap:.0%}"
        self._say(f"{event.objective}, because {event.why}")
        self._say(f"{event.rows:,} rows{overlap}; pooler {event.pooler}; {event.parameters:,} parameters")
        self._say(
            f"steps {event.first_step} to {event.steps} of batch {event.batch_size} ({event.epochs:.2g} epochs), "
            f"{event.processes} process(es)"
        )
        for note in event.notes:
            self._say(f"note: {note}")
        if self.live:
            self._open_bar(event)

    def _open_bar(self, event: Started) -> None:
        from rich.console import Console as RichConsole
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("training"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=RichConsole(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("", total=event.steps, completed=event.first_step, numbers="")
        self._bar.start()

    def _step(self, event: Stepped) -> None:
        numbers = f"loss {event.loss:.4g}  {event.sentences_per_second:,.0f} sentences/s{self._dev}"
        if self._bar is not None:
            self._bar.update(self._task, completed=event.step, numbers=numbers)
        elif event.step % max(1, event.steps // LINES) == 0:
            self._say(f"step {event.step}/{event.steps}  {numbers}  {event.seconds_left:,.0f} s left")

    def _evaluated(self, event: Evaluated) -> None:
        self._dev = f"  dev {event.score:.2f}"
        others = "  ".join(f"{name} {value:.3f}" for name, value in event.scores.items() if name != "score")
        self._say(f"dev at step {event.step}: {event.score:.2f}{' (best)' if event.best else ''}  {others}")

    def _say(self, line: str) -> None:
        if self._bar is None:
            self.console.log(line)
        elif not self.console.quiet:
            self._bar.console.print(line, highlight=False, markup=False)
