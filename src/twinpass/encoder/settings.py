"""What a model folder knows about itself beyond the transformer: twinpass.json."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from twinpass.encoder.pooling import describe_poolers, find_pooler
from twinpass.errors import ModelError
from twinpass.files import write_json

FILE = "twinpass.json"
FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How vectors are made from a folder's transformer."""

    pooler: str
    transformer: str = ""  # folder of the transformer, where it is not this one
    head: str | None = None  # folder of the MLP over the pooled vector, if there is one
    layers: tuple[str, ...] = ()  # folders of what follows, in order; "normalize" needs no folder
    max_tokens: int | None = None
    lowercase: bool = False
    prompt: str = ""


_TYPES: dict[str, tuple[type, ...]] = {
    "pooler": (str,),
    "transformer": (str,),
    "head": (str, type(None)),
    "layers": (list,),
    "max_tokens": (int, type(None)),
    "lowercase": (bool,),
    "prompt": (str,),
}


def read_settings(folder: Path) -> Settings | None:
    """Return what twinpass saved beside a model, or None if it was not saved by twinpass."""
    path = folder / FILE
    if not path.is_file():
        return None
    document = read_json(path)
    if document.get("format") != FORMAT:
        raise ModelError(
            f"{path}: format {document.get('format')!r} is not {FORMAT}; this folder needs another version of twinpass."
        )
    fields = {name: value for name, value in document.items() if name in _TYPES}
    if "pooler" not in fields:
        raise ModelError(f"{path}: it names no pooler, so the folder is damaged. Save the model again.")
    for name, value in fields.items():
        if not isinstance(value, _TYPES[name]):
            raise ModelError(f"{path}: {name} cannot be {value!r}, so the folder is damaged. Save the model again.")
    fields["layers"] = tuple(fields.get("layers", ()))
    find_pooler(fields["pooler"])
    return Settings(**fields)


def write_settings(folder: Path, settings: Settings) -> None:
    """Write twinpass.json."""
    document: dict[str, Any] = {"format": FORMAT, **asdict(settings)}
    write_json(folder / FILE, document)


def need_pooler(name: str) -> ModelError:
    """Explain that a bare checkpoint does not say how its states become one vector."""
    return ModelError(
        f"{name} is a bare transformer: it does not say how token states become one vector. "
        f"Choose with --pooler (in Python: pooler=...):\n{describe_poolers()}"
    )


def read_json(path: Path) -> dict[str, Any]:
    """Read one JSON object of a model folder, or say which file is damaged."""
    document = read_any_json(path)
    if not isinstance(document, dict):
        raise ModelError(f"{path}: expected a JSON object, found {type(document).__name__}.")
    return document


def read_any_json(path: Path) -> Any:
    """Read one JSON file of a model folder, or say that it is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {path}: {error}. The model folder is incomplete or damaged.") from error


def inside(folder: Path, name: str) -> Path:
    """Return a path that a folder's own files name, refusing one that leads out of the folder."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ModelError(f"{folder} names a part outside itself, {name!r}, which is not read.")
    return path
