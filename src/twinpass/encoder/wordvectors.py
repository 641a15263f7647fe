"""Word vectors in GloVe's or word2vec's text format: a sentence is the average of its known words."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from twinpass.errors import ModelError
from twinpass.files import sha256

Vectors = npt.NDArray[np.float32]
_PIECES = re.compile(r"\w+|[^\w\s]")


class WordVectors:
    """A table of word vectors; unknown words are ignored."""

    def __init__(self, words: dict[str, int], vectors: Vectors, *, name: str, fingerprint: str) -> None:
        self.words = words
        self.vectors = vectors
        self.name = name
        self.fingerprint = fingerprint

    @classmethod
    def load(cls, path: str | Path) -> WordVectors:
        """Read lines of a word and its numbers, plain or gzipped; a first line of two counts is skipped."""
        path = Path(path)
        try:
            with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
                words, rows = _parse(stream, path)
            return cls(words, np.stack(rows), name=str(path), fingerprint=sha256(path))
        except (OSError, EOFError, UnicodeDecodeError) as error:
            raise ModelError(f"{path} cannot be read as word vectors: {error}.") from error

    @property
    def dimensions(self) -> int:
        """The length of a vector."""
        return int(self.vectors.shape[1])

    def encode(self, texts: Iterable[str]) -> Vectors:
        """Return the mean of each text's word vectors (n, dimensions); zeros where no word is known."""
        rows = [self.rows(text) for text in texts]
        encoded = np.zeros((len(rows), self.dimensions), dtype=np.float32)
        for place, known in enumerate(rows):
            if known:
                encoded[place] = self.vectors[known].mean(axis=0)
        return encoded

    def rows(self, text: str) -> list[int]:
        """Return the rows of a text's known words in the table, in order."""
        found: list[int] = []
        for token in text.split():
            whole = self._find(token)
            # Text that was not tokenised holds "dog." and "it's": if such a token is unknown, its pieces may be known.
            pieces = [whole] if whole is not None else map(self._find, _PIECES.findall(token))
            found.extend(row for row in pieces if row is not None)
        return found

    def _find(self, word: str) -> int | None:
        return self.words.get(word, self.words.get(word.lower()))


def _parse(stream: Iterable[bytes], path: Path) -> tuple[dict[str, int], list[Vectors]]:
    words: dict[str, int] = {}
    rows: list[Vectors] = []
    for number, line in enumerate(stream, start=1):
        if number == 1 and re.fullmatch(rb"\d+ \d+\s*", line):
            continue
        # A word may hold spaces, so the numbers are counted from the right once their count is known.
        parts = line.decode("utf-8").rstrip().rsplit(" ", len(rows[0])) if rows else line.decode().split()
        vector = _numbers(parts[1:])
        if vector is None or not len(vector) or (rows and len(vector) != len(rows[0])):
            numbers = f"{len(rows[0])} numbers" if rows else "numbers"
            raise ModelError(f"{path}:{number}: expected a word and {numbers}, separated by spaces.")
        if parts[0] not in words:
            words[parts[0]] = len(rows)
            rows.append(vector)
    if not rows:
        raise ModelError(f"{path} is empty: expected lines of a word and its numbers.")
    return words, rows


def _numbers(fields: list[str]) -> Vectors | None:
    try:
        vector = np.array(fields, dtype=np.float32)
    except ValueError:
        return None
    return vector if np.isfinite(vector).all() else None
