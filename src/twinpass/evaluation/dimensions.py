"""Scores over dimensions: which sizes of vectors an evaluation takes, and the model of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from twinpass.config import read_sizes
from twinpass.encoder.any_model import Model
from twinpass.encoder.dimensions import check_size, shorten, shortened, warn_untrained


def list_sizes(dimensions: int | str | Sequence[int] | None) -> tuple[int, ...]:
    """Return the sizes that are asked for, each once, the largest first; none for whole vectors."""
    if dimensions is None:
        return ()
    given = dimensions if isinstance(dimensions, (int, str)) else ",".join(map(str, dimensions))
    return read_sizes(str(given), what="dimensions")


def check_sizes(sizes: Sequence[int], model: Model, *, whole: int) -> None:
    """Refuse a size that the vectors do not have, and warn of those that the model was not trained for."""
    for size in sizes:
        check_size(size, whole=whole, name=model.name)
    if model.sizes is not None:  # of a function or a service it is not known
        cut = [size for size in sizes if size < whole]
        warn_untrained(cut, trained=model.sizes, name=model.name, stacklevel=4)


def shortened_model(model: Model, size: int | None) -> Model:
    """Return a model whose vectors are shortened to a size."""
    if size is None:
        return model
    return dataclasses.replace(
        model,
        encode=lambda texts: shorten(model.encode(texts), size),
        fingerprint=model.fingerprint and shortened(model.fingerprint, size),
        computing={**model.computing, "dimensions": str(size)},
    )
