"""Cosines between texts: computed, shown, written."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.table import Table

from twinpass.errors import ConfigError
from twinpass.files import writing

MOST_CELLS = 1 << 28  # a matrix of 1 GiB
SHOWN_ROWS, SHOWN_COLUMNS, SHOWN_LETTERS = 20, 8, 40


@dataclass(frozen=True)
class Cosines:
    """Texts and their cosines: `values` is (n,) for a pair or pairwise, (n, m) for a matrix."""

    kind: str
    left: Sequence[str]
    right: Sequence[str]
    values: NDArray[np.float32]

    def document(self) -> dict[str, Any]:
        """Return what --json prints."""
        rounded = self.values.astype(np.float64).round(6).tolist()
        cosine = rounded[0] if self.kind == "pair" else rounded
        return {"kind": self.kind, "left": list(self.left), "right": list(self.right), "cosine": cosine}

    def human(self) -> str | Table:
        """Return a number or a table."""
        if self.kind == "pair":
            return f"{self.values[0]:.4f}"
        return self._matrix() if self.kind == "matrix" else self._pairs()

    def write(self, target: Path) -> None:
        """Write a .npy array or a .csv table, whole or not at all."""
        with writing(target) as aside:
            if target.suffix == ".npy":
                with aside.open("wb") as binary:
                    np.save(binary, self.values)
                return
            with aside.open("w", encoding="utf-8", newline="") as stream:
                csv.writer(stream).writerows(self._rows())

    def _rows(self) -> Any:
        if self.kind == "matrix":
            yield ["text", *self.right]
            yield from ([text, *row.tolist()] for text, row in zip(self.left, self.values, strict=True))
        else:
            yield ["left", "right", "cosine"]
            yield from zip(self.left, self.right, self.values.tolist(), strict=True)

    def _matrix(self) -> Table:
        table = Table("", *map(_short, self.right[:SHOWN_COLUMNS]), box=box.SIMPLE, caption=self._caption())
        for text, row in zip(self.left[:SHOWN_ROWS], self.values, strict=False):
            table.add_row(_short(text), *(f"{value:.4f}" for value in row[:SHOWN_COLUMNS]))
        return table

    def _pairs(self) -> Table:
        table = Table("cosine", "left", "right", box=box.SIMPLE, caption=self._caption())
        for left, right, value in zip(self.left[:SHOWN_ROWS], self.right, self.values, strict=False):
            table.add_row(f"{value:.4f}", _short(left), _short(right))
        return table

    def _caption(self) -> str | None:
        hidden = len(self.left) > SHOWN_ROWS or (self.kind == "matrix" and len(self.right) > SHOWN_COLUMNS)
        size = " x ".join(f"{length:,}" for length in self.values.shape)
        return (
            f"the beginning of {size} cosines, mean {self.values.mean():.4f}; all with -o or --json" if hidden else None
        )


def compare(
    encode: Callable[..., NDArray[np.float32]], left: Sequence[str], right: Sequence[str], *, kind: str
) -> Cosines:
    """Return the cosines of left and right: of a `pair`, `pairwise`, or each with each as a `matrix`."""
    if kind == "matrix" and len(left) * len(right) > MOST_CELLS:
        raise ConfigError(f"a matrix of {len(left):,} x {len(right):,} cosines is too large to hold; take fewer texts.")
    if kind == "pair":
        left, right = left[:1], right[1:]
    vectors = encode([*left, *right], normalize=True)  # one call, so that a text on both sides is encoded once
    first, second = vectors[: len(left)], vectors[len(left) :]
    values = first @ second.T if kind == "matrix" else np.einsum("ij,ij->i", first, second)
    return Cosines(kind, left, right, np.clip(values, -1, 1))


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_LETTERS else text[: SHOWN_LETTERS - 1] + "…"
