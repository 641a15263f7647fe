"""MODEL#VARIANT on the command line: another pooler, the lower layers alone, whitened vectors.

minilm                                  the model itself
minilm#pooler=avg_first_last            pooled in another way
minilm#layers=3,pooler=avg              its lower three layers alone
minilm#whiten                           whitened; whiten=256 keeps 256 dimensions
minilm#layers=3,label=lower half        under another name in tables and figures
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinpass.cli.console import Console
from twinpass.cli.judge import open_judged
from twinpass.cli.options import ModelOptions
from twinpass.errors import ConfigError
from twinpass.registry import Registry

if TYPE_CHECKING:
    from twinpass.encoder.any_model import Model

WHOLE = 0  # whitening that keeps all dimensions


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A model by name, and what is done to it."""

    source: str
    label: str
    pooler: str | None = None
    layers: int | None = None
    whiten: int | None = None


def parse_variant(spec: str) -> Variant:
    """Read MODEL or MODEL#key=value,key=value."""
    source, mark, options = spec.rpartition("#")
    # A folder may have a # in its name, and a service's address ends in #MODEL.
    if not mark or Path(spec).exists() or spec.startswith(("http://", "https://")):
        return Variant(source=spec, label=spec)
    fields: dict[str, Any] = {}
    for option in options.split(","):
        key, _, value = option.partition("=")
        fields[key.strip()] = OPTIONS[key.strip()](key.strip(), value.strip())
    return Variant(**({"source": source, "label": spec} | fields))


def parse_variants(specs: Sequence[str]) -> list[Variant]:
    """Read several, which must differ in their labels."""
    variants = [parse_variant(spec) for spec in specs]
    labels = [variant.label for variant in variants]
    for label in labels:
        if labels.count(label) > 1:
            raise ConfigError(f"two models are named {label!r}. Give one another name: MODEL#label=NAME.")
    return variants


def open_variant(variant: Variant, chosen: ModelOptions, console: Console) -> Model:
    """Open the model of a variant, without whitening, which needs vectors to be fitted to."""
    if variant.pooler is not None:
        chosen = dataclasses.replace(chosen, pooler=variant.pooler)
    if variant.layers is None:
        return open_judged(variant.source, chosen, console)
    from twinpass.encoder.any_model import from_encoder
    from twinpass.encoder.layers import keep_layers

    encoder = chosen.load(variant.source, console)
    keep_layers(encoder, variant.layers)
    return from_encoder(encoder, precision=chosen.precision, runtime=chosen.runtime)


def _text(key: str, value: str) -> str:
    if not value:
        raise ConfigError(f"{key} wants a value: MODEL#{key}=...")
    return value


def _number(key: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise ConfigError(f"{key} wants a whole number of 1 or more, got {value!r}: MODEL#{key}=3.")
    return int(value)


def _number_or_all(key: str, value: str) -> int:
    return _number(key, value) if value else WHOLE


OPTIONS: Registry[Callable[[str, str], str | int]] = Registry("variant of a model")
OPTIONS.add("pooler", _text)
OPTIONS.add("label", _text)
OPTIONS.add("layers", _number)
OPTIONS.add("whiten", _number_or_all)
