"""The verb `doctor`: what this machine offers, and what is missing."""

from __future__ import annotations

from typing import Annotated

import typer

from twinpass.cli.console import Console, verb
from twinpass.provenance import provenance


@verb
def doctor(
    console: Console,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure the runtimes with the built-in model (under a minute).")
    ] = False,
) -> None:
    """Show versions, processor, threads, memory, devices, caches, optional parts, the built-in model and runtimes.

    A missing part is not an error: it is listed with the command that installs it.
    """
    from twinpass.workflows.doctor import doctor as examine

    console.show(examine(measure=measure), **provenance())
