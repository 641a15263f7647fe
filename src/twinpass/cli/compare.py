"""The verb `compare`: two models on the same pairs, and whether a difference shows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twinpass.cli.console import Console, verb
from twinpass.cli.evaluate import TaskOptions
from twinpass.cli.options import ModelOptions, exactly
from twinpass.errors import ConfigError


@verb
def compare(
    console: Console,
    chosen: ModelOptions,
    options: TaskOptions,
    names: Annotated[list[str], typer.Argument(metavar="A B", help="Models, or .json files that evaluate wrote.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Also write a row for each task to a .csv, .parquet or .jsonl file."),
    ] = None,
) -> None:
    """Compare two models, or two result files, pair by pair.

    A paired bootstrap: both are resampled alike, so that what is hard for both cancels out. Where the interval of
    the difference contains zero, it says "no difference shown".
    """
    from twinpass.evaluation import compare as library

    exactly(names, 2, "two models or result files, A and B")
    if chosen.model is not None:
        raise ConfigError("--model is not for compare: name both models, A and B.")
    console.show(library.compare(*names, output=output, **options.given(chosen, console)))
