"""How `mixture` is spelt: several files in one run, each with its own view and share of the steps."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from twinpass.errors import ConfigError
from twinpass.registry import suggest

if TYPE_CHECKING:
    from twinpass.config.run import Run

# What a part says for itself. The first group is never taken from the run, which says it of its own data.
_OWN = ("columns", "join", "header", "label", "score", "view", "positive", "hard_negative_weight", "share_dropout_mask")
PART_FIELDS = (*_OWN, "temperature", "batch_size")
_SHARE = re.compile(r"(?P<data>.+):(?P<share>\d+(?:\.\d+)?)")
_OPTION = re.compile(r"(?P<rest>.+?)\s+(?P<name>[a-z][a-z_-]*)=(?P<value>'[^']*'|\S+)\s*")
EXAMPLE = "'wiki.txt:0.5', or 'tickets.csv:0.5 columns=text label=category'"


class Part(NamedTuple):
    """One part of a mixture: its name, how often it comes relative to the others, and the run it would be alone."""

    name: str
    share: Fraction
    run: Run


def read_part(text: str) -> tuple[str, Fraction, dict[str, Any]]:
    """Read `FILE`, `FILE:SHARE` or `FILE:SHARE columns=a,b label=c` into the file, the share and the fields given."""
    rest, fields = text.strip(), dict[str, Any]()
    while option := _OPTION.fullmatch(rest):
        name = option["name"].replace("-", "_")
        if name not in PART_FIELDS:
            known = ", ".join(PART_FIELDS)
            raise ConfigError(
                f"a part of a mixture has no option {name!r} (in {text!r}).{suggest(name, PART_FIELDS)} Known: {known}."
            )
        fields, rest = {name: _value(text, name, option["value"])} | fields, option["rest"]
    share = Fraction(1)
    if found := _SHARE.fullmatch(rest):
        rest, share = found["data"], Fraction(found["share"])
    if not rest or share <= 0:
        raise ConfigError(f"expected a file and a share of the steps above 0, as in {EXAMPLE}; got {text!r}.")
    return rest, share, fields


def parts_of(run: Run, *, in_memory: bool = False) -> list[Part]:
    """Return the parts of a run: its own data (or rows in memory), then those of its mixture."""
    parts = [Part(run.data or "the data in memory", Fraction(1), run.replace(mixture=()))]
    parts, spelt = (parts, [parts[0].name]) if run.data or in_memory else ([], [])
    usual = {name: getattr(type(run)(method=run.method), name) for name in _OWN}
    for text in run.mixture:
        data, share, fields = read_part(text)
        parts.append(Part(data, share, run.replace(data=data, mixture=(), **(usual | fields))))
    names, spelt = [part.name for part in parts], [*spelt, *run.mixture]
    # A file that is read in two ways is called by all that is said of it.
    return [
        part._replace(name=part.name if names.count(part.name) == 1 else text)
        for part, text in zip(parts, spelt, strict=True)
    ]


def _value(text: str, name: str, value: str) -> Any:
    """Read the value of an option as the type of its field."""
    if name == "columns":
        return tuple(column.strip() for column in value.split(","))
    if name == "join":
        return value[1:-1] if value[0] == value[-1] == "'" and len(value) > 1 else value
    if name in ("header", "share_dropout_mask"):
        if value.lower() in ("true", "false"):
            return value.lower() == "true"
        raise ConfigError(f"{name} is true or false; got {value!r} (in {text!r}).")
    if name in ("hard_negative_weight", "temperature", "batch_size"):
        try:
            return int(value) if name == "batch_size" else float(value)
        except ValueError:
            raise ConfigError(f"{name} is a number; got {value!r} (in {text!r}).") from None
    return value
