"""How each training corpus is made of its source files."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from twinpass.errors import InputError
from twinpass.registry import Registry
from twinpass.text.captions import caption_pairs
from twinpass.text.corpus import Row, open_corpus
from twinpass.text.nli import NLI, sample_rows
from twinpass.text.views import adjoin

Texts = tuple[str, ...]
SENTENCE, PAIR, TRIPLET = ("text",), ("sent0", "sent1"), ("sent0", "sent1", "hard_neg")
LABELLED = ("premise", "hypothesis", "label")
SEED = 42  # which rows a smaller corpus keeps is part of the protocol, not of a run
RELEASED_TRIPLETS, RELEASED_PARAPHRASES = "nli_for_simcse.csv", "para-nmt-5m-processed.txt"
QUOTED = re.compile(r'"(?:[^"]|"")*"')


@dataclass(frozen=True, kw_only=True)
class Material:
    """The source files of a corpus, how many rows are wanted of them, and how many were bad, by reason."""

    files: Sequence[Path]
    rows: int | None
    read_nli: Callable[[Sequence[Path]], NLI]
    left_out: Counter[str] = field(default_factory=Counter)

    def read(
        self,
        source: str | Path,
        *,
        columns: Sequence[str] | None = None,
        score: str | None = None,
        header: bool | None = None,
    ) -> Iterator[Row]:
        """Yield the rows of a file that are not bad, and count the others when it ends."""
        corpus = open_corpus(source, columns=columns, score=score, header=header, skip_bad_rows=True)
        yield from corpus
        self.left_out.update(corpus.bad_reasons)

    def nli(self) -> NLI:
        """Return the NLI text of the files."""
        nli = self.read_nli(self.files)
        for file in nli.files:
            self.left_out.update(file.skipped)
        return nli

    def sample(self, rows: list[Texts]) -> list[Texts]:
        """Keep as many rows as are wanted, the same ones every time, in order."""
        return sample_rows(rows, self.rows, SEED)


Maker = Callable[[Material], Iterable[Texts]]


@dataclass(frozen=True, kw_only=True)
class Making:
    """The kinds of text that a corpus is made of, how, and under which names its texts are written."""

    kinds: tuple[str, ...]
    make: Maker
    columns: tuple[str, ...]
    parted: bool = False  # a blank line stands between documents: to be read with skip_bad_rows

    @property
    def suffix(self) -> str:
        """The ending of the corpus file's name: sentences stand one a line, pairs and triplets as objects."""
        return ".txt" if self.columns == SENTENCE else ".jsonl"


def _sentences(material: Material) -> list[Texts]:
    return material.sample([row.texts for row in _lines(material)])


def _consecutive(material: Material) -> Iterator[Texts]:
    """Sentences in the order of their documents, a blank line between two; a smaller corpus is a shorter one."""
    before: Row | None = None
    for number, row in enumerate(_lines(material)):
        if material.rows is not None and number >= material.rows:
            continue  # read to the end all the same: bad rows are counted over the whole file
        if before is not None and not adjoin(before, row):
            yield ("",)
        yield row.texts
        before = row


def _lines(material: Material) -> Iterator[Row]:
    (path,) = material.files
    return material.read(path, columns=["0"])


def _released_triplets(material: Material) -> list[Texts]:
    """The triplets that the authors released, where they are at hand; else ones made of the same text."""
    path = material.files[0]
    if path.name != RELEASED_TRIPLETS:
        return _triplets(material, negatives="contradiction")
    return material.sample([row.texts for row in material.read(path, columns=TRIPLET)])


def _triplets(material: Material, *, negatives: str) -> list[Texts]:
    return material.sample([*material.nli().triplets(negatives=negatives, seed=SEED)])


def _nli_pairs(material: Material, *, label: str) -> list[Texts]:
    return material.sample([*material.nli().pairs(label)])


def _nli_sentences(material: Material) -> list[Texts]:
    """Distinct sentences of the NLI text, of every label alike."""
    pairs = material.nli().pairs("all", sample=material.rows, seed=SEED)
    return material.sample([(text,) for text in dict.fromkeys(text for pair in pairs for text in pair)])


def _labelled(material: Material) -> list[Texts]:
    """Premise, hypothesis and label, for the softmax objective."""
    nli = material.nli()
    labels = ("entailment", "neutral", "contradiction")
    return material.sample([(*pair, label) for label in labels for pair in nli.pairs(label)])


def _questions(material: Material) -> list[Texts]:
    (path,) = material.files
    rows = material.read(path, columns=["question1", "question2"], score="is_duplicate")
    return material.sample([tuple(map(unquote, row.texts)) for row in rows if row.score == 1])


def unquote(field: str) -> str:
    """Return a field as it was before it was quoted as in CSV; one that is not quoted so stays as it is."""
    # Quora's file, and GLUE's that was cut from it, quote a field that holds quotes and double them in it, where our
    # reader of tab separated files takes a quote for a quote. It is undone field by field: read as CSV, a stray quote
    # would swallow the rows after it. The few questions that run over several lines are left out as bad rows.
    return field[1:-1].replace('""', '"') if QUOTED.fullmatch(field) else field


def _captions(material: Material) -> list[Texts]:
    (path,) = material.files
    return material.sample([*caption_pairs(path, seed=SEED)])


def _paraphrases(material: Material) -> list[Texts]:
    (path,) = material.files
    if path.name == RELEASED_PARAPHRASES:  # whatever its suffix: two columns, a tab between them, no header
        rows = material.read(f"tsv:{path}", columns=["0", "1"], header=False)
    else:
        rows = material.read(path)
    return material.sample([row.texts for row in rows])


CORPORA: Registry[Making] = Registry("corpus")


def _add(name: str, make: Maker, columns: tuple[str, ...], *kinds: str, parted: bool = False) -> None:
    CORPORA.add(name, Making(kinds=kinds, make=make, columns=columns, parted=parted))


_add("wiki", _sentences, SENTENCE, "wiki")
_add("wiki-documents", _consecutive, SENTENCE, "wiki", parted=True)
_add("nli-triplets", _released_triplets, TRIPLET, "triplets")
_add("nli-triplets-both", partial(_triplets, negatives="both"), TRIPLET, "nli")
_add("nli-triplets-anli", partial(_triplets, negatives="contradiction"), TRIPLET, "nli", "anli")
for _label in ("entailment", "neutral", "contradiction", "all"):
    _add(f"nli-{_label}", partial(_nli_pairs, label=_label), PAIR, "nli")
_add("nli-labelled", _labelled, LABELLED, "nli")
_add("nli-sentences", _nli_sentences, SENTENCE, "nli")
_add("qqp", _questions, PAIR, "qqp")
_add("flickr", _captions, PAIR, "flickr")
_add("paranmt", _paraphrases, PAIR, "paranmt")


def write_rows(path: Path, rows: Iterable[Texts], columns: tuple[str, ...]) -> int:
    """Write sentences a line each, and pairs or triplets as objects with the names that readers know; count them."""
    count = 0
    with path.open("w", encoding="utf-8") as stream:
        for row in rows:
            if len(row) != len(columns):
                raise InputError(
                    f"a row has {len(row)} text(s), and {len(columns)} are wanted ({', '.join(columns)}): {row!r}. "
                    "Look at the columns of the file that it comes from."
                )
            line = json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False)
            stream.write((re.sub(r"\s+", " ", row[0]) if len(row) == 1 else line) + "\n")
            count += row != ("",)
    return count
