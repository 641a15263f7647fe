"""Cosines between texts: computed, shown, written."""

from __future__ import annotations

import csv
import io
import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinpass.display import Displayed, Grid
from twinpass.errors import ConfigError, OutputError
from twinpass.files import check_writable, writing

MOST_CELLS = 1 << 28  # a matrix of 1 GiB
SUFFIXES = (".csv", ".npy", ".parquet", ".jsonl")
SHOWN_ROWS, SHOWN_COLUMNS, SHOWN_LETTERS = 20, 8, 40


@dataclass(frozen=True, repr=False)
class Cosines(Displayed):
    """Texts and their cosines: `values` is (n,) for a `pair` or `pairwise`, (n, m) for a `matrix`."""

    kind: str
    left: Sequence[str]
    right: Sequence[str]
    values: NDArray[np.float32]

    def __float__(self) -> float:
        """Return the cosine, where there is only one."""
        return float(self.values.item())

    def grids(self) -> list[Grid]:
        """Return a number, or a table of the first rows and columns."""
        if self.kind == "pair":
            return [Grid(f"{self.values[0]:.4f}", (), ())]
        left, right = self.left[:SHOWN_ROWS], self.right
        shown = [[f"{value:.4f}" for value in np.atleast_1d(row)[:SHOWN_COLUMNS]] for row in self.values[:SHOWN_ROWS]]
        if self.kind == "pairwise":
            rows = [[value, _short(a), _short(b)] for (value,), a, b in zip(shown, left, right, strict=False)]
            return [Grid("", ("cosine", "left", "right"), rows, self._notes(), words=("left", "right"))]
        columns = ("", *map(_short, right[:SHOWN_COLUMNS]))
        return [Grid("", columns, [[_short(a), *row] for a, row in zip(left, shown, strict=True)], self._notes())]

    def to_dict(self) -> dict[str, Any]:
        """Return kind, texts and cosines; a pair's cosine is a number."""
        rounded = self.values.astype(np.float64).round(6).tolist()
        cosine = rounded[0] if self.kind == "pair" else rounded
        return {"kind": self.kind, "left": list(self.left), "right": list(self.right), "cosine": cosine}

    def records(self) -> list[dict[str, Any]]:
        """Return left, right and cosine of every two texts that were compared."""
        aligned = zip(self.left, self.right, strict=self.kind != "matrix")
        pairs = itertools.product(self.left, self.right) if self.kind == "matrix" else aligned
        values = self.values.ravel().tolist()
        return [{"left": a, "right": b, "cosine": value} for (a, b), value in zip(pairs, values, strict=True)]

    def to_csv(self) -> str:
        """Return pairs as rows of left, right and cosine; a matrix with its texts in the first row and column."""
        if self.kind != "matrix":
            return super().to_csv()
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["text", *self.right])
        writer.writerows([text, *row.tolist()] for text, row in zip(self.left, self.values, strict=True))
        return stream.getvalue()

    def write(self, target: str | os.PathLike[str]) -> None:
        """Write a .npy array, a .csv table, or a .parquet or .jsonl row for every two texts, whole or not at all."""
        check_target(target)
        if Path(target).suffix in (".parquet", ".jsonl"):
            from twinpass.text.tables import write_table

            write_table(target, self.records(), columns=("left", "right", "cosine"))
            return
        with writing(target) as aside:
            if Path(target).suffix == ".npy":
                with aside.open("wb") as binary:
                    np.save(binary, self.values)
            else:
                aside.write_text(self.to_csv(), encoding="utf-8", newline="")

    def _notes(self) -> list[str]:
        if len(self.left) <= SHOWN_ROWS and (self.kind != "matrix" or len(self.right) <= SHOWN_COLUMNS):
            return []
        size = " x ".join(f"{length:,}" for length in self.values.shape)
        return [f"the beginning of {size} cosines, mean {self.values.mean():.4f}; all in .values, or with -o or --json"]


def compare(
    encode: Callable[..., NDArray[np.float32]],
    a: str | Sequence[str],
    b: str | Sequence[str] | None = None,
    *,
    pairwise: bool = False,
) -> Cosines:
    """Return the cosines of a pair of texts, of lists text by text (`pairwise`), or of each text with each."""
    single = isinstance(a, str) and isinstance(b, str)
    left = [a] if isinstance(a, str) else list(a)
    right = left if b is None else [b] if isinstance(b, str) else list(b)
    if pairwise and (b is None or len(left) != len(right)):
        raise ConfigError(
            f"pairwise needs two lists of equal length, got {len(left)} and {0 if b is None else len(right)}."
        )
    aligned = single or pairwise
    if not aligned and len(left) * len(right) > MOST_CELLS:
        raise ConfigError(f"a matrix of {len(left):,} x {len(right):,} cosines is too large to hold; take fewer texts.")
    vectors = encode([*left, *right], normalize=True)  # one call, so that a text on both sides is encoded once
    first, second = vectors[: len(left)], vectors[len(left) :]
    values = np.einsum("ij,ij->i", first, second) if aligned else first @ second.T
    kind = "pairwise" if pairwise else "pair" if single else "matrix"
    return Cosines(kind, left, right, np.clip(values, -1, 1))


def check_target(target: str | os.PathLike[str]) -> None:
    """Raise OutputError now if cosines could not be written to this file later."""
    if Path(target).suffix not in SUFFIXES:
        raise OutputError(
            f"cannot write {target}: expected a name that ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}."
        )
    check_writable(target)


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_LETTERS else text[: SHOWN_LETTERS - 1] + "…"
