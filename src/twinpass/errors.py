"""Every error that twinpass raises on purpose.

::

    TwinpassError               something twinpass can explain
    ├── UserError               the user can mend it: the command line exits with 2
    │   ├── InputError          a file, column or row that cannot be read as asked
    │   ├── ModelError          a model that is missing, incomplete or not safe to load
    │   ├── OutputError         a place that cannot be written to
    │   ├── ConfigError         an option, name or combination that makes no sense
    │   └── MissingExtra        an optional part that is not installed
    └── TrainingError           a run that cannot go on (a loss that is not a number, say)

A message says what was wanted, what came, and what to do next.
"""

from __future__ import annotations


class TwinpassError(Exception):
    """Something twinpass can explain."""


class UserError(TwinpassError):
    """Something the user can mend."""


class InputError(UserError):
    """A file, column or row that cannot be read as asked."""


class ModelError(UserError):
    """A model that is missing, incomplete or not safe to load."""


class OutputError(UserError):
    """A place that cannot be written to."""


class ConfigError(UserError):
    """An option, name or combination that makes no sense."""


class MissingExtra(UserError):
    """An optional part that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional part. Install it with: pip install 'twinpass[{extra}]'")


class TrainingError(TwinpassError):
    """A run that cannot go on."""
