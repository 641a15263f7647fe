"""The rows of several files that one run learns from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from twinpass.config import Run
from twinpass.text.rows import Row, Rows


class PartRows(NamedTuple):
    """One part of a mixture: its name, its share of the steps, the run it would be alone, and its rows."""

    name: str
    share: Fraction
    run: Run
    rows: Rows


class Mixture:
    """The parts of a mixture; read as one corpus, one part comes after the other."""

    def __init__(self, parts: Sequence[PartRows]) -> None:
        self.parts = parts
        self.source = " + ".join(part.name for part in parts)
        self.width = max(part.rows.width for part in parts)

    def __iter__(self) -> Iterator[Row]:
        return (row for part in self.parts for row in part.rows)

    @cached_property
    def fingerprints(self) -> list[str]:
        """The SHA-256 of each part's content."""
        return [part.rows.fingerprint() for part in self.parts]

    def fingerprint(self) -> str:
        """Return a SHA-256 of the content of all parts."""
        return hashlib.sha256("\n".join(self.fingerprints).encode()).hexdigest()


def parts_in(rows: Rows, run: Run) -> list[PartRows]:
    """Return the parts of a mixture, or any other rows as the only part."""
    return list(rows.parts) if isinstance(rows, Mixture) else [PartRows(rows.source, Fraction(1), run, rows)]


def fingerprints(rows: Rows, whole: str) -> list[tuple[str, str]]:
    """Return the name and fingerprint of each part; `whole` is the fingerprint of all rows."""
    if not isinstance(rows, Mixture):
        return [(rows.source, whole)]
    return [(part.name, found) for part, found in zip(rows.parts, rows.fingerprints, strict=True)]
