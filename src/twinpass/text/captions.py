"""Pairs of captions of one image (Table 4, Flickr30k): any two of them count as meaning the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import combinations

import numpy as np

from twinpass.errors import InputError
from twinpass.text.sources import find_sources, read_lines


def caption_pairs(path: str | os.PathLike[str], *, seed: int = 42, most: int | None = None) -> list[tuple[str, str]]:
    """Return every two captions of every image (ten for five captions), or a sample of so many, in order.

    The file is the released one (`image.jpg#0`, a tab, a caption) or a table of one image a row, its captions in
    the columns cap1, cap2 and so on.
    """
    pairs = [pair for captions in read_captions(path).values() for pair in combinations(captions, 2)]
    if most is None or most >= len(pairs):
        return pairs
    kept = np.random.default_rng(seed).choice(len(pairs), size=most, replace=False)
    return [pairs[place] for place in np.sort(kept)]


def read_captions(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Return each image's captions, in the order of the file."""
    found: dict[str, list[str]] = {}
    for image, captions in _rows(os.fspath(path)):
        found.setdefault(image, []).extend(captions)
    return found


def _rows(name: str) -> Iterator[tuple[str, list[str]]]:
    (source,) = find_sources(f"tsv:{name}")
    columns: list[int] | None = None
    image = 0
    for number, text, fault, _ in read_lines(source):
        values = text.rstrip("\r\n").split("\t")
        if number == 1 and "image" in values:
            image = values.index("image")
            columns = [place for place, column in enumerate(values) if column.startswith("cap")]
            if not columns:
                raise InputError(
                    f"{source.label} has no column of captions (cap1, cap2 ...). Its columns: {', '.join(values)}."
                )
            continue
        table = columns is not None
        if fault or len(values) < (2 if columns is None else max(columns) + 1):
            raise InputError(
                f"{source.label}:{number}: {fault or 'too few columns'}. Wanted an image and "
                f"{'captions under the names of the first row' if table else 'a caption, a tab between them'}."
            )
        captions = [values[place].strip() for place in columns] if columns else [values[1].strip()]
        yield values[image].partition("#")[0], [caption for caption in captions if caption]
