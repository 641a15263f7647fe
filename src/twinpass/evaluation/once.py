"""Encode each distinct sentence of all tasks once, and hand out vectors by text from then on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from twinpass.errors import ModelError
from twinpass.evaluation.cache import Cache
from twinpass.evaluation.features import Encode
from twinpass.evaluation.models import Model

Vectors = npt.NDArray[np.float32]
Advance = Callable[[int], None]
_BLOCK = 4_096  # texts encoded before they are kept: a run that is stopped loses no more than these


def encode_once(
    model: Model, texts: Iterable[str], *, cache: Cache | None = None, advance: Advance | None = None
) -> Encode:
    """Encode distinct texts, from the cache where it has them; return a function that looks vectors up."""
    distinct = list(dict.fromkeys(texts))
    known = cache.load(model.fingerprint, distinct) if cache and model.fingerprint else {}
    if advance:
        advance(len(known))
    missing = [place for place in range(len(distinct)) if place not in known]
    for start in range(0, len(missing), _BLOCK):
        places = missing[start : start + _BLOCK]
        block = [distinct[place] for place in places]
        vectors = checked_vectors(model, block)
        if cache and model.fingerprint:
            cache.save(model.fingerprint, block, vectors)
        known.update(zip(places, vectors, strict=True))
        if advance:
            advance(len(block))
    # With nothing to encode (a task that brings its own texts) there is nothing to look up either.
    matrix: Vectors = np.stack([known.pop(i) for i in range(len(distinct))]) if distinct else np.zeros((0, 1), "f4")
    row = {text: place for place, text in enumerate(distinct)}
    return lambda wanted: matrix[[row[text] for text in wanted]]


def checked_vectors(model: Model, texts: Sequence[str]) -> Vectors:
    """Encode texts and refuse what cannot be judged: a wrong shape, or values that are not numbers."""
    vectors = np.asarray(model.encode(texts))
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise ModelError(
            f"{model.name} was given {len(texts)} texts and returned an array of shape {vectors.shape}; "
            f"({len(texts)}, dimensions) is wanted."
        )
    if not (np.issubdtype(vectors.dtype, np.floating) or np.issubdtype(vectors.dtype, np.integer)):
        raise ModelError(f"{model.name} returned {vectors.dtype} values; numbers are wanted.")
    wrong = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(wrong):
        raise ModelError(
            f"{model.name} returned NaN or infinity for {len(wrong)} of {len(texts)} texts, the first of them "
            f"{texts[wrong[0]][:80]!r}. Check its weights, or encode in fp32."
        )
    return vectors.astype(np.float32, copy=False)
