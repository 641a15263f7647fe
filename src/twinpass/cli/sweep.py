"""The verb `sweep`: train every combination of a grid of settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twinpass.cli.console import Console, command_line, verb
from twinpass.cli.train import MoreData, Preset, RunOptions, StartModel, TextColumns, given_fields, new_run, watching


@verb
def sweep(
    console: Console,
    options: RunOptions,  # type: ignore[valid-type]
    data: Annotated[str, typer.Argument(metavar="DATA", help="Text, as for `train`.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the runs; reused to resume.")],
    grid: Annotated[
        list[str], typer.Option(help="Values to try: learning_rate=1e-5,3e-5. Repeatable: every combination is run.")
    ],
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds for each combination, from --seed on.")] = 1,
    more_data: MoreData = None,
    model: StartModel = None,
    columns: TextColumns = None,
    preset: Preset = None,
) -> None:
    """Train with every combination of some settings, and show which scores best on --dev.

    Every combination and seed is a run with its own folder in OUTPUT. The same command resumes a stopped sweep and
    finds finished runs again; several processes with the same command share the work.
    """
    from twinpass.training.sweep import parse_grid
    from twinpass.workflows.sweep import sweep as run_sweep

    given = given_fields(options, model=model, columns=columns, more_data=more_data)
    run = new_run(console, given, data=data, output=output, preset=preset)
    with watching(console) as show:
        found = run_sweep(run, parse_grid(grid), seeds=seeds, on_event=show, log=console.log, command=command_line())
    console.show(found)
