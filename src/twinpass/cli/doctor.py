"""The verb `doctor`: what this machine offers, and what is missing."""

from __future__ import annotations

from twinpass.cli.console import Console, verb
from twinpass.provenance import provenance


@verb
def doctor(console: Console) -> None:
    """Show versions, processor, threads, memory, devices, caches, optional parts and the built-in model.

    A missing part is not an error: it is listed with the command that installs it.
    """
    from twinpass.workflows.doctor import doctor as examine

    console.show(examine(), **provenance())
