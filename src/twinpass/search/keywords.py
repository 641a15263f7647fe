"""Keyword search: the words of a segment's texts, with the rows that have them, and BM25 over all segments.

terms.arrow      the distinct words, ascending, and for each where its postings end
postings.u32     for each word, ascending by row: the row in the segment, and how often the word occurs there
lengths.u32      number of words of each row

Only counts are stored. BM25 is computed when a query asks, from the texts that are there at that moment, so additions
and removals change all scores as if the index had been built anew. Libraries that store scores, such as bm25s, would
have to compute all of them again.
"""

from __future__ import annotations

import re
import tempfile
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinpass.search.checksums import Mapped
from twinpass.search.manifest import LENGTHS, POSTINGS, TERMS

# Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond, 2009; the values of Lucene.
K1, B = 1.2, 0.75
CHUNK = 1 << 20  # postings that are sorted together
MAX_WORDS = 1_024  # different words of one query that are looked for: as many as a query of Lucene may have
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # written without spaces: every character is a word
_WORD = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+")
# Putting combining marks in order takes time that grows with the square of their number: minutes for a text of nothing
# else. So a joiner that is no part of a word goes after every 30 of them (Unicode Standard Annex #15, Stream-Safe Text
# Format). No mark is a letter, apart from the two of halfwidth katakana.
_MARKS = re.compile(r"(?:[\uff9e\uff9f]|[^\w\s\x00-\u02ff]){30}")
_JOINER = "\u034f"
_RECORD = np.dtype([("term", "<u4"), ("row", "<u4"), ("count", "<u4")])

Rows = NDArray[np.int64]


def words_of(text: str) -> list[str]:
    """Return the words of a text: letters, digits and _, without regard to upper and lower case."""
    return _WORD.findall(_folded(text))


def query_words(query: str) -> Counter[str]:
    """Return how often each word occurs in a query, up to its first 1,024 different words; what follows is not used."""
    counts: Counter[str] = Counter()
    for found in _WORD.finditer(_folded(query)):
        if len(counts) == MAX_WORDS and found[0] not in counts:
            break
        counts[found[0]] += 1
    return counts


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", _MARKS.sub(lambda run: run[0] + _JOINER, text)).casefold()


class KeywordWriter:
    """Writes the words of texts, in memory that grows with the distinct words only."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._vocabulary: dict[str, int] = {}
        self._rows = 0
        self._lengths = (folder / LENGTHS).open("wb")
        self._aside = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by __exit__

    def add(self, texts: Sequence[str]) -> None:
        """Add the words of texts, a row each."""
        lengths, records = np.empty(len(texts), "<u4"), []
        for place, text in enumerate(texts):
            words = words_of(text)
            lengths[place] = len(words)
            for word, count in Counter(words).items():
                term = self._vocabulary.setdefault(word, len(self._vocabulary))
                records.append((term, self._rows + place, count))
        self._lengths.write(lengths.tobytes())
        self._aside.write(np.array(records, _RECORD).tobytes())
        self._rows += len(texts)

    def _finish(self) -> None:
        import pyarrow as pa

        terms = sorted(self._vocabulary)
        position = np.empty(len(terms), np.int64)  # of a term by its place in the vocabulary
        position[[self._vocabulary[term] for term in terms]] = np.arange(len(terms))
        texts = np.zeros(len(terms), np.int64)  # that have each term
        for chunk in self._chunks():
            texts += np.bincount(position[chunk["term"]], minlength=len(terms))
        ends = np.cumsum(texts)
        columns = {"term": pa.array(terms, pa.large_string()), "end": pa.array(ends, pa.int64())}
        with (self._folder / TERMS).open("wb") as stream:
            batch = pa.record_batch(list(columns.values()), list(columns))
            with pa.ipc.new_file(stream, batch.schema) as table:
                table.write_batch(batch)
        self._write_postings(position, ends - texts, int(texts.sum()))

    def _write_postings(self, position: NDArray[np.int64], free: NDArray[np.int64], total: int) -> None:
        """Write each posting to the next free place of its term."""
        path = self._folder / POSTINGS
        with path.open("wb") as stream:  # in full: a disk that is full is an error here, but a signal in a memory map
            for start in range(0, total, CHUNK):
                stream.write(bytes(8 * min(CHUNK, total - start)))
        if not total:  # an empty file cannot be mapped
            return
        postings = np.memmap(path, "<u4", "r+", shape=(total, 2))
        for chunk in self._chunks():
            terms = position[chunk["term"]]
            order = np.argsort(terms, kind="stable")  # rows stay ascending
            terms, chunk = terms[order], chunk[order]
            first = np.flatnonzero(np.diff(terms, prepend=-1))  # of each term in this chunk
            counts = np.diff(first, append=len(terms))
            places = np.repeat(free[terms[first]] - first, counts) + np.arange(len(terms))
            postings[places, 0], postings[places, 1] = chunk["row"], chunk["count"]
            free[terms[first]] += counts
        postings.flush()

    def _chunks(self) -> Iterator[Any]:
        self._aside.seek(0)
        while content := self._aside.read(CHUNK * _RECORD.itemsize):
            yield np.frombuffer(content, _RECORD)

    def __enter__(self) -> KeywordWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._lengths, self._aside:
            if kind is None:
                self._finish()


class Keywords:
    """The words of a segment to read; its files stay on the disk, and are checked before they are used."""

    def __init__(self, files: Mapping[str, Mapped]) -> None:
        self._files = files

    @cached_property
    def lengths(self) -> NDArray[np.uint32]:
        """Number of words of each row."""
        self._files[LENGTHS].check()
        return self._files[LENGTHS].bytes.view("<u4")

    @cached_property
    def _terms(self) -> Any:
        import pyarrow as pa

        self._files[TERMS].check()
        return pa.ipc.open_file(pa.py_buffer(self._files[TERMS].bytes)).get_batch(0)

    def postings(self, word: str) -> tuple[Rows, Rows]:
        """Return the rows that have a word, ascending, and how often each has it."""
        terms, ends = self._terms.columns
        place = bisect_left(range(len(terms)), word, key=lambda place: terms[place].as_py())
        if place == len(terms) or terms[place].as_py() != word:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        start, end = ends[place - 1].as_py() if place else 0, ends[place].as_py()
        file = self._files[POSTINGS]
        file.check(8 * start, 8 * end)
        found = file.bytes[8 * start : 8 * end].view("<u4").reshape(-1, 2)
        return found[:, 0].astype(np.int64), found[:, 1].astype(np.int64)


def weight(texts: int, having: int) -> float:
    """Return the weight of a word that `having` of the texts have, as Lucene computes it: never negative."""
    return float(np.log(1 + (texts - having + 0.5) / (having + 0.5)))


def saturated(counts: Rows, lengths: Rows, average: float) -> NDArray[np.float64]:
    """Return how much a word that occurs `counts` times adds to texts of these lengths: less for each repetition."""
    added: NDArray[np.float64] = counts / (counts + K1 * (1 - B + B * lengths / average))
    return added
