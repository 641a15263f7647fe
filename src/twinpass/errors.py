"""Every error that twinpass raises on purpose.

::

    TwinpassError               an error with an explanation
    ├── UserError               the user can fix it: the command line exits with 2
    │   ├── InputError          a file, column or row that cannot be read
    │   ├── ModelError          a model that is missing, incomplete or not safe to load
    │   ├── OutputError         a file or folder that cannot be written
    │   │   └── Busy            because another process works on it
    │   ├── ConfigError         an unknown option or name, or options that exclude each other
    │   └── MissingExtra        an optional part that is not installed
    └── TrainingError           a run that cannot continue (a non-finite loss, for example): exit code 1
        └── OutOfMemory         the memory of this machine or GPU is too small for it

A message says what was expected, what came, where, and what to do: "expected 3 tab-separated columns, got 2
(tickets.tsv:17). Fix the row, or pass --skip-bad-rows."
"""

from __future__ import annotations

import copyreg
from typing import Any


class TwinpassError(Exception):
    """An error with an explanation."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the text as it is, whatever a constructor expects: a refusal goes to every process of a run."""
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


class UserError(TwinpassError):
    """An error that the user can fix."""


class InputError(UserError):
    """A file, column or row that cannot be read."""


class ModelError(UserError):
    """A model that is missing, incomplete or not safe to load."""


class OutputError(UserError):
    """A file or folder that cannot be written."""


class Busy(OutputError):
    """A file or folder that another process works on."""


class ConfigError(UserError):
    """An unknown option or name, or options that exclude each other."""


class MissingExtra(UserError):
    """An optional part that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional part. Install it with: pip install 'twinpass[{extra}]'")


class TrainingError(TwinpassError):
    """A run that cannot continue."""


class OutOfMemory(TrainingError):
    """A run for which the memory of this machine or GPU is too small."""
