"""What a classifier is given: vectors of single texts, or of pairs taken together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from twinpass.encoder.any_model import Encode
from twinpass.evaluation.correlation import check_finite

Floats = npt.NDArray[np.float32]


def text_features(encode: Encode, texts: Sequence[tuple[str, ...]]) -> Floats:
    """Return the vectors of single texts (n, d), or |u - v| beside u * v for pairs (n, 2d)."""
    sides = [encode(list(column)) for column in zip(*texts, strict=True)]
    for side in sides:
        check_finite(side)
    if len(sides) == 1:
        return np.asarray(sides[0], dtype=np.float32)
    u, v = sides
    return np.hstack([np.abs(u - v), u * v]).astype(np.float32)
