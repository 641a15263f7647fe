"""Word vectors in GloVe's or word2vec's text format: a sentence is the average of its known words.

The average may leave out English stop words and punctuation: the GloVe row that papers quote from SBERT's comes from a
tokenizer that does so, and scores far higher than the average of all words.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from twinpass.errors import ConfigError, ModelError
from twinpass.files import sha256

Vectors = npt.NDArray[np.float32]
_PIECES = re.compile(r"\w+|[^\w\s]")
POOLERS = {"avg": "the average of all known words", "avg_content": "the same without English stop words"}

# Words of English grammar: articles, pronouns, prepositions, conjunctions, auxiliary verbs, and adverbs of degree or
# time that modify almost anything; with the pieces that tokenizers make of contractions.
STOP_WORDS = frozenset(
    """
    a an the this that these those such same other another each every either neither both all any some no none not
    i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers
    herself it its itself they them their theirs themselves one ones who whom whose which what whatever whoever
    of in on at by to from with without within into onto upon about above across after against along among around as
    before behind below beneath beside besides between beyond down during for inside near off out outside over per
    since through throughout till toward towards under until up via than
    and or but nor so yet if unless although though because while whereas whether when whenever where wherever why how
    am is are was were be been being have has had having do does did doing done will would shall should can could may
    might must ought cannot
    again also almost already always anyway away back even ever far further furthermore hence here however indeed
    instead just later least less many meanwhile more moreover most much namely never nevertheless next now nowhere
    often once only otherwise own perhaps quite rather really several seem seemed seems somehow sometimes somewhere
    still then there thereafter thereby therefore thus together too very well yes
    anyone anything anywhere everyone everything everywhere nobody nothing someone something few first last
    didn doesn isn aren wasn weren hasn hadn couldn wouldn shouldn mustn needn
    s t d m ll re ve n't 's 't 'd 'm 'll 're 've
    """.split()  # noqa: SIM905 - words, to be read
)


def stop_words_hash() -> str:
    """Return a short hash of the stop words: vectors without them are other vectors if the list changes."""
    return hashlib.sha256(" ".join(sorted(STOP_WORDS)).encode()).hexdigest()[:8]


class WordVectors:
    """A table of word vectors; unknown words are ignored."""

    def __init__(
        self, words: dict[str, int], vectors: Vectors, *, name: str, fingerprint: str, pooler: str = "avg"
    ) -> None:
        if pooler not in POOLERS:
            known = "; ".join(f"{name}: {about}" for name, about in POOLERS.items())
            raise ConfigError(f"word vectors have no pooler named {pooler!r}. Known: {known}.")
        self.words = words
        self.vectors = vectors
        self.name = name
        self.pooler = pooler
        self.fingerprint = fingerprint if pooler == "avg" else f"{fingerprint}-{pooler}-{stop_words_hash()}"

    @classmethod
    def load(cls, path: str | Path, *, pooler: str = "avg") -> WordVectors:
        """Read lines of a word and its numbers, plain or gzipped; a first line of two counts is skipped."""
        path = Path(path)
        try:
            with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
                words, rows = _parse(stream, path)
            return cls(words, np.stack(rows), name=str(path), fingerprint=sha256(path), pooler=pooler)
        except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
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
            # Text that was not tokenised holds "dog." and "it's": if such a token is unknown, its pieces may be known.
            pieces = [token] if self._find(token) is not None else _PIECES.findall(token)
            found.extend(row for piece in pieces if self._counts(piece) and (row := self._find(piece)) is not None)
        return found

    def _counts(self, word: str) -> bool:
        """Tell whether a word belongs to the average."""
        return self.pooler == "avg" or (word.lower() not in STOP_WORDS and any(map(str.isalnum, word)))

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
