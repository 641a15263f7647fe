"""Options of a training run, derived from the fields of Run: a field added there is a flag here."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, get_type_hints

import typer

from twinpass.config import PRESETS, Run

# Fields that the command line names in its own way: by position, with a letter, or as every verb does.
NAMED_OTHERWISE = {"data", "columns", "model", "output", "seed", "device"}
SHORT_NAMES = {"learning_rate": "--lr"}


def _field(field: dataclasses.Field[Any], hint: Any) -> tuple[str, Any, Any]:
    """Return a dataclass field whose default, None, means that the flag was not given."""
    details = [str(field.default)] if field.default not in (None, False, "") else []
    details += [field.metadata["source"]] if field.metadata["source"] else []
    choices = ", ".join(field.metadata["choices"])
    help = field.metadata["help"] + (f" One of {choices}." if choices else "")
    help += f" [{'; '.join(details)}]" if details else ""
    long = "--" + field.name.replace("_", "-")
    names = [f"{long}/--no-{long[2:]}"] if hint in (bool, bool | None) else [long]
    names += [SHORT_NAMES[field.name]] if field.name in SHORT_NAMES else []
    annotation = Annotated[hint | None, typer.Option(*names, help=help, show_default=False)]
    return field.name, annotation, dataclasses.field(default=None)


_HINTS = get_type_hints(Run)
RunOptions = dataclasses.make_dataclass(
    "RunOptions",
    [_field(field, _HINTS[field.name]) for field in dataclasses.fields(Run) if field.name not in NAMED_OTHERWISE],
    frozen=True,
)


def describe_run(options: Any, *, preset: str | None, **named: Any) -> Run:
    """Return the run that the flags describe, on top of a preset if one is named."""
    given = {name: value for name, value in dataclasses.asdict(options).items() if value is not None}
    base = PRESETS[preset] if preset is not None else Run()
    return base.replace(**given, **named)
