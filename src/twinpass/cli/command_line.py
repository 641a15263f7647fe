"""The command being run, in words, for reports that say how to make them again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

_given: list[str] = []


def remember_command(arguments: Sequence[str]) -> None:
    """Keep what was typed after `twinpass`."""
    _given[:] = arguments


def command_line() -> str:
    """Return the command as it can be typed again."""
    return shlex.join(["twinpass", *_given])
