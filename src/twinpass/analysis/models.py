"""The models of an analysis: opened by name with another pooler, fewer layers or whitening, or given as objects.

minilm                                  the model itself
minilm#pooler=avg_first_last            with another pooler
minilm#layers=3,pooler=avg              its lower three layers alone
minilm#whiten                           whitened; whiten=256 keeps 256 dimensions
minilm#layers=3,label=lower half        with another name in tables and figures
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from twinpass.analysis.sampling import Vectors
from twinpass.encoder.any_model import Encode, Model, open_model
from twinpass.encoder.layers import Whitening, fit_whitening, whiten
from twinpass.encoder.vector_cache import Cache, encode_once
from twinpass.errors import ConfigError
from twinpass.progress import Progress, silent
from twinpass.registry import Registry

if TYPE_CHECKING:
    from twinpass.encoder.encoder import Encoder

ALL = 0  # whitening that keeps all dimensions

Source: TypeAlias = "str | Path | Encoder | Model | Encode"
Models: TypeAlias = "Source | Sequence[Source] | Mapping[str, Source]"


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A model, by name or as an object, and how it is changed."""

    source: Source
    label: str
    pooler: str | None = None
    layers: int | None = None
    whiten: int | None = None
    given: str = field(default="", compare=False)  # as it was given, for messages


def parse_variants(models: Models) -> list[Variant]:
    """Read one or several models, or a mapping from labels to models."""
    if isinstance(models, Mapping):
        variants = [replace(parse_variant(source), label=label) for label, source in models.items()]
    else:
        several = models if isinstance(models, Sequence) and not isinstance(models, str) else [models]
        variants = [parse_variant(source) for source in several]
    labels = [variant.label for variant in variants]
    for label in labels:
        if labels.count(label) > 1:
            raise ConfigError(f"two models are named {label!r}. Give one of them another name: MODEL#label=NAME.")
    return variants


def parse_variant(source: Source) -> Variant:
    """Read MODEL or MODEL#key=value,key=value, or take an Encoder or a function."""
    if not isinstance(source, (str, Path)):
        name = str(getattr(source, "name", None) or getattr(source, "__name__", type(source).__name__))
        return Variant(source=source, label=name, given=name)
    spec = str(source)
    model, mark, options = spec.rpartition("#")
    # The name of a folder may contain a #, and the address of a service ends in #MODEL.
    if not mark or Path(spec).exists() or spec.startswith(("http://", "https://")):
        return Variant(source=spec, label=spec, given=spec)
    fields: dict[str, Any] = {}
    for option in options.split(","):
        key, _, value = option.partition("=")
        fields[key.strip()] = OPTIONS[key.strip()](key.strip(), value.strip())
    return Variant(**({"source": model, "label": spec, "given": spec} | fields))


class VariantEncoder:
    """An opened variant: encodes through the cache on disk; whitening is fitted to the first texts."""

    def __init__(
        self, variant: Variant, loading: Mapping[str, Any], *, cache: Cache | None = None, progress: Progress = silent
    ) -> None:
        self.variant, self.cache, self.progress = variant, cache, progress
        self.model = _open(variant, loading)
        self.fingerprint = self.model.fingerprint
        self.whitening: Whitening | None = None

    def fit(self, texts: Sequence[str]) -> Vectors:
        """Encode texts; if the variant is whitened, fit the whitening to them."""
        vectors = self.encode(texts)
        if self.variant.whiten is None:
            return vectors
        self.whitening = fit_whitening(vectors, keep=self.variant.whiten or None)
        vectors = whiten(vectors, self.whitening)
        if self.fingerprint is not None:
            self.fingerprint += f"-whitened-{vectors.shape[1]}"
        return vectors

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Encode texts."""
        with self.progress(f"encoding with {self.variant.label}", total=len(texts)) as advance:
            vectors = encode_once(self.model, texts, cache=self.cache, advance=advance)(texts)
        return vectors if self.whitening is None else whiten(vectors, self.whitening)


def _open(variant: Variant, loading: Mapping[str, Any]) -> Model:
    options = dict(loading) | ({} if variant.pooler is None else {"pooler": variant.pooler})
    if variant.layers is None:
        return open_model(variant.source, **options)
    from twinpass.encoder.encoder import Encoder
    from twinpass.encoder.layers import keep_layers

    encoder = Encoder.load(str(variant.source), **options)
    keep_layers(encoder, variant.layers)
    return open_model(encoder)


def _text(key: str, value: str) -> str:
    if not value:
        raise ConfigError(f"{key} expects a value: MODEL#{key}=...")
    return value


def _number(key: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise ConfigError(f"{key} expects a whole number of 1 or more, got {value!r}: MODEL#{key}=3.")
    return int(value)


def _number_or_all(key: str, value: str) -> int:
    return _number(key, value) if value else ALL


OPTIONS: Registry[Callable[[str, str], str | int]] = Registry("variant of a model")
OPTIONS.add("pooler", _text)
OPTIONS.add("label", _text)
OPTIONS.add("layers", _number)
OPTIONS.add("whiten", _number_or_all)
