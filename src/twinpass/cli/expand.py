"""Groups of options: a parameter whose type is a dataclass stands, for typer, for that dataclass's fields."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints


def expand(function: Callable[..., None], run: Callable[..., None]) -> Callable[..., None]:
    """Return a flat version of `function` for typer, which builds the dataclasses and hands them to `run`."""
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters
    groups = {name: hints[name] for name in parameters if dataclasses.is_dataclass(hints[name])}

    def flat(**values: Any) -> None:
        built = {name: group(**_take(group, values)) for name, group in groups.items()}
        run(**built, **values)

    own = [_parameter(name, hints[name], p.default) for name, p in parameters.items() if name not in groups]
    shared = [p for name in reversed(groups) for p in _fields(groups[name])]  # --help shows the console's last
    flat.__name__, flat.__doc__, flat.__module__ = function.__name__, function.__doc__, function.__module__
    flat.__signature__ = inspect.Signature(own + shared)  # type: ignore[attr-defined]
    flat.__annotations__ = {p.name: p.annotation for p in own + shared}
    return flat


def _fields(group: type[Any]) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in dataclasses.fields(group):
        if field.init:
            given = field.default is not dataclasses.MISSING
            default = field.default if given else inspect.Parameter.empty
            yield _parameter(field.name, hints[field.name], default)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _take(group: type[Any], values: dict[str, Any]) -> dict[str, Any]:
    return {field.name: values.pop(field.name) for field in dataclasses.fields(group) if field.init}
