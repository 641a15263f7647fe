"""How the rows of each corpus are made of its source files."""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from twinpass.errors import InputError
from twinpass.registry import Registry
from twinpass.text.corpus import Row, open_corpus
from twinpass.text.nli import NLI, sample_rows
from twinpass.text.rows import text_key
from twinpass.text.sources import find_sources, read_lines
from twinpass.text.views import adjoin

Texts = tuple[str, ...]
Files = dict[str, list[Path]]  # by kind
SENTENCE, PAIR, TRIPLET = ("text",), ("sent0", "sent1"), ("sent0", "sent1", "hard_neg")
SEVERAL = ("sent0", "sent1", "hard_negs")  # the last is a list
LABELLED = ("premise", "hypothesis", "label")
CLASSED, GRADED = ("text", "label"), ("sent0", "sent1", "score")
SEED = 42  # which rows a smaller corpus keeps is part of the protocol, not of a run
MAKERS = 3  # raise it when a maker below makes other rows of the same files: it is part of a corpus's file name
RELEASED_TRIPLETS, RELEASED_PARAPHRASES = "nli_for_simcse.csv", "para-nmt-5m-processed.txt"


@dataclass(frozen=True, kw_only=True)
class Material:
    """The source files of a corpus by kind, how many rows to keep of them, and how many were bad, by reason."""

    files: Files
    rows: int | None
    read_nli: Callable[[Sequence[Path]], NLI]
    skipped: Counter[str] = field(default_factory=Counter)

    def read(self, *columns: str, form: str = "", **options: Any) -> Iterator[Row]:
        """Yield the good rows of the first file, with the options of `open_corpus`; bad ones are counted at its end."""
        corpus = open_corpus(f"{form}{self.first}", columns=columns or None, skip_bad_rows=True, **options)
        yield from corpus
        self.skipped.update(corpus.bad_reasons)

    @property
    def first(self) -> Path:
        """The first file of the first kind."""
        return next(iter(self.files.values()))[0]

    def nli(self, kind: str = "nli") -> NLI:
        """Return the NLI text of the files of a kind."""
        nli = self.read_nli(self.files[kind])
        for file in nli.files:
            self.skipped.update(file.skipped)
        return nli

    def sample(self, rows: Iterable[Texts]) -> list[Texts]:
        """Keep at most `self.rows` rows, the same ones every time, in order."""
        return sample_rows(list(rows), self.rows, SEED)


Maker = Callable[[Material], Iterable[Texts]]


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A corpus: the kinds of files it is made of, how, and what its rows are."""

    kinds: tuple[str, ...]
    make: Maker
    columns: tuple[str, ...]
    paper_rows: int  # in the paper (Tables 4 and A.1), for the estimate of cost
    blank_lines: bool = False  # separate documents, so it is read with skip_bad_rows
    optional: tuple[str, ...] = ()  # kinds of files that it takes too, where they are there

    @property
    def suffix(self) -> str:
        """The suffix of the corpus's file: one sentence per line, or one JSON object per pair or triplet."""
        return ".txt" if self.columns == SENTENCE else ".jsonl"

    @property
    def passes(self) -> int:
        """How many sentences a row sends through the encoder in training; a sentence alone is encoded twice."""
        return 2 if self.columns == SENTENCE else sum(column not in ("label", "score") for column in self.columns)


def _sentences(material: Material) -> list[Texts]:
    return material.sample(row.texts for row in material.read("0"))


def _consecutive(material: Material) -> Iterator[Texts]:
    """Yield sentences in the order of their documents, a blank line between two; a smaller corpus is a prefix."""
    before: Row | None = None
    for number, row in enumerate(material.read("0")):
        if material.rows is not None and number >= material.rows:
            continue  # read on: bad rows are counted over the whole file
        if before is not None and not adjoin(before, row):
            yield ("",)
        yield row.texts
        before = row


def _triplets(material: Material) -> list[Texts]:
    """Return the triplets that the authors released if they are there, else triplets made from the same text."""
    return material.sample(_base_triplets(material))


def _base_triplets(material: Material) -> list[Texts]:
    if material.first.name == RELEASED_TRIPLETS:
        return [row.texts for row in material.read(*TRIPLET)]
    return list(material.nli("triplets").triplets(seed=SEED))


def _with_hypotheses(material: Material, labels: str) -> Iterator[tuple[Texts, list[str]]]:
    """Yield the same triplets, each with all hypotheses of its premise that have one of some labels.

    Premises are compared by letters and digits, because the released triplets and raw NLI differ in spaces. One that is
    not in the NLI text keeps its contradiction and is counted; if most are not, it is another text than the triplets'.
    """
    # First the sample, then the look-up: these are the rows of the reference, and only their negatives differ.
    rows, known = _triplets(material), defaultdict[bytes, list[str]](list)
    for premise, hypotheses in material.nli().hypotheses(labels).items():
        known[text_key(premise)] += hypotheses
    missing = sum(text_key(premise) not in known for premise, *_ in rows)
    if 2 * missing > len(rows):
        raise InputError(
            f"of {len(rows):,} triplets of {material.first.name}, the premises of {missing:,} are not in "
            f"{' and '.join(path.name for path in material.files['nli'])}. Expected the NLI text they were made from."
        )
    if missing:
        material.skipped["premise not in the NLI text: kept with its own contradiction"] += missing
    for row in rows:
        yield row, known.get(text_key(row[0])) or [row[2]]


def _triplets_with_neutral(material: Material) -> list[Texts]:
    """Return the same triplets, with hard negatives drawn from the contradictions and neutral hypotheses together."""
    random = np.random.default_rng(SEED)
    return [
        (premise, entailed, found[int(random.integers(len(found)))])
        for (premise, entailed, _), found in _with_hypotheses(material, "both")
    ]


def _triplets_with_all(material: Material) -> list[Texts]:
    """Return the same triplets, each with every other contradiction of its premise as a further hard negative."""
    return [
        (premise, entailed, *dict.fromkeys([drawn, *found]))
        for (premise, entailed, drawn), found in _with_hypotheses(material, "contradiction")
    ]


def _triplets_with_anli(material: Material) -> list[Texts]:
    """Return the same triplets, and those made from ANLI; of a smaller sample, the same share of both."""
    base, anli = _base_triplets(material), list(material.nli("anli").triplets(seed=SEED))
    whole, kept = len(base) + len(anli), material.sample(base)
    if material.rows is None or whole <= material.rows:
        return [*base, *anli]
    of_base = round(material.rows * len(base) / whole)
    return [*sample_rows(kept, of_base, SEED), *sample_rows(anli, material.rows - of_base, SEED)]


def _nli_pairs(material: Material, *, label: str) -> list[Texts]:
    return material.sample(material.nli().pairs(label))


def _nli_sentences(material: Material) -> list[Texts]:
    """Return distinct sentences of the NLI text, of all labels equally, with SNLI's other splits where they are."""
    every = material.nli().pairs("all")
    pairs = material.sample(every)
    more = material.files.get("snli-more", [])
    if more and more[0].suffix == ".jsonl":
        others = [text for pair in material.nli("snli-more").pairs("all") for text in pair]
    else:  # SentEval's copy: one sentence a line
        lines = (line.strip() for path in more for line in path.read_text("utf-8").split("\n"))
        others = [line for line in lines if line]
    # The same share of both: a small sample must not consist of what is only added to the whole.
    others = sample_rows(others, round(len(others) * len(pairs) / max(1, len(every))), SEED)
    texts = dict.fromkeys([*(text for pair in pairs for text in pair), *others])
    return material.sample((text,) for text in texts)


def _labelled(material: Material) -> list[Texts]:
    """Return premise, hypothesis and label, for the softmax objective."""
    nli = material.nli()
    labels = ("entailment", "neutral", "contradiction")
    return material.sample((*pair, label) for label in labels for pair in nli.pairs(label))


def _questions(material: Material) -> list[Texts]:
    rows = material.read("question1", "question2", score="is_duplicate")
    return material.sample(tuple(map(unquote, row.texts)) for row in rows if row.score == 1)


_QUOTED = re.compile(r'"(?:[^"]|"")*"')


def unquote(field: str) -> str:
    """Return a field without CSV's quotes around it; one that is not quoted stays as it is."""
    # Quora's file, and GLUE's that was cut from it, quote a field that holds quotes and double them in it, while our
    # reader of tab-separated files keeps quotes as they are. It is undone field by field: read as CSV, a stray quote
    # would swallow the rows after it. The few questions that span several lines are skipped as bad rows.
    return field[1:-1].replace('""', '"') if _QUOTED.fullmatch(field) else field


def _caption_pairs(material: Material) -> list[Texts]:
    """Return every two captions of every image: ten pairs for five captions."""
    images = read_captions(material.first).values()
    return material.sample(pair for captions in images for pair in combinations(captions, 2))


def read_captions(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Return each image's captions, in the order of the file.

    The file is the released one (`image.jpg#0`, a tab, a caption), or a tab-separated table with one image per row
    and its captions in the columns cap1, cap2 and so on.
    """
    (source,) = find_sources(f"tsv:{os.fspath(path)}")
    image, columns, expected = 0, [1], "an image, a tab and a caption"
    found: dict[str, list[str]] = {}
    for number, text, fault, _ in read_lines(source):
        values = text.rstrip("\r\n").split("\t")
        if number == 1 and "image" in values:
            image = values.index("image")
            columns = [place for place, column in enumerate(values) if column.startswith("cap")]
            expected = f"{len(values)} tab-separated columns, as in the first row"
            if not columns:
                raise InputError(
                    f"{source.label} has no column of captions (cap1, cap2 ...). Its columns: {', '.join(values)}."
                )
            continue
        if fault or len(values) <= max(columns):
            raise InputError(f"{source.label}:{number}: {fault or 'too few columns'}. Expected {expected}.")
        captions = [values[place].strip() for place in columns]
        found.setdefault(values[image].partition("#")[0], []).extend(filter(None, captions))
    return found


def _paraphrases(material: Material) -> list[Texts]:
    # The released file has two tab-separated columns without a header, whatever its suffix.
    released = material.first.name == RELEASED_PARAPHRASES
    rows = material.read("0", "1", form="tsv:", header=False) if released else material.read()
    return material.sample(row.texts for row in rows)


def _classed_questions(material: Material) -> list[Texts]:
    """Return TREC's questions with their classes: what stands before the colon of COARSE:fine."""
    rows: list[Texts] = []
    for line in filter(str.strip, material.first.read_text("latin-1").split("\n")):
        label, _, question = line.strip().partition(" ")
        coarse, colon, _ = label.partition(":")
        if colon and question:
            rows.append((question, coarse))
        else:
            material.skipped["no class before a question"] += 1
    return material.sample(rows)


def _graded_pairs(material: Material) -> list[Texts]:
    """Return the pairs of STS-B's training split with their scores."""
    return material.sample((*row.texts, f"{row.score:g}") for row in material.read(pairs=True))


CORPORA: Registry[Corpus] = Registry("corpus")


def _add(name: str, make: Maker, columns: Texts, *kinds: str, rows: int = 314_000, **more: Any) -> None:
    CORPORA.add(name, Corpus(kinds=kinds, make=make, columns=columns, paper_rows=rows, **more))


_add("wiki", _sentences, SENTENCE, "wiki", rows=1_000_000)
_add("wiki-documents", _consecutive, SENTENCE, "wiki", rows=1_000_000, blank_lines=True)
_add("nli-triplets", _triplets, TRIPLET, "triplets", rows=275_601)
_add("nli-triplets-both", _triplets_with_neutral, TRIPLET, "triplets", "nli", rows=275_601)
_add("nli-triplets-all", _triplets_with_all, SEVERAL, "triplets", "nli", rows=275_601)
_add("nli-triplets-anli", _triplets_with_anli, TRIPLET, "triplets", "anli", rows=328_000)
for _label in ("entailment", "neutral", "contradiction"):
    _add(f"nli-{_label}", partial(_nli_pairs, label=_label), PAIR, "nli")
_add("nli-all", partial(_nli_pairs, label="all"), PAIR, "nli", rows=942_000)
_add("nli-labelled", _labelled, LABELLED, "nli", rows=942_000)
_add("nli-sentences", _nli_sentences, SENTENCE, "nli", rows=942_000, optional=("snli-more",))
_add("nli-training-sentences", _nli_sentences, SENTENCE, "nli", rows=942_000)  # IS-BERT's
_add("qqp", _questions, PAIR, "qqp", rows=134_000)
_add("flickr", _caption_pairs, PAIR, "flickr", rows=318_000)
_add("paranmt", _paraphrases, PAIR, "paranmt", rows=5_000_000)
_add("trec", _classed_questions, CLASSED, "trec", rows=5_452)
_add("stsb-train", _graded_pairs, GRADED, "stsb-train", rows=5_749)


def write_rows(path: Path, rows: Iterable[Texts], columns: Texts) -> int:
    """Write sentences one per line, pairs and triplets as JSON objects with the names that readers know; count them."""
    count = 0
    with path.open("w", encoding="utf-8") as stream:
        for row in rows:
            if len(row) != len(columns) and not (columns == SEVERAL and len(row) > 3):
                raise InputError(
                    f"expected {len(columns)} texts ({', '.join(columns)}), got {len(row)}: {row!r}. "
                    "Check the columns of the source file."
                )
            values = (*row[:2], row[2:]) if columns == SEVERAL else row
            line = json.dumps(dict(zip(columns, values, strict=True)), ensure_ascii=False)
            stream.write((re.sub(r"\s+", " ", row[0]) if len(row) == 1 else line) + "\n")
            count += row != ("",)
    return count
