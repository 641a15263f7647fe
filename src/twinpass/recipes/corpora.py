"""The text that recipes train on, found under one data folder and prepared once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from twinpass.errors import InputError
from twinpass.files import writing
from twinpass.registry import Registry
from twinpass.text.captions import caption_pairs
from twinpass.text.corpus import Row, open_corpus
from twinpass.text.nli import NLI, read_nli, sample_rows
from twinpass.text.positives import adjoin

Texts = tuple[str, ...]
TEXTS, LABELLED = ("sent0", "sent1", "hard_neg"), ("premise", "hypothesis", "label")
SINGLE = {"wiki", "wiki-documents", "nli-sentences"}  # corpora of one sentence a row
SEED = 42  # which rows a smaller corpus keeps is part of the protocol, not of a run
RELEASED_TRIPLETS = "nli_for_simcse.csv"
# Under which names each kind of text is looked for, the released ones first.
FILES = {
    "wiki": ("wiki1m_for_simcse.txt", "wiki_1m.txt.gz", "wiki.txt"),
    "nli": (
        "snli_1.0/snli_1.0_train.jsonl multinli_1.0/multinli_1.0_train.jsonl",
        "nli_pairs.tsv.gz",
        "nli_pairs.tsv",
    ),
    "anli": ("anli_v1.0/R1/train.jsonl anli_v1.0/R2/train.jsonl anli_v1.0/R3/train.jsonl", "anli.jsonl"),
    "qqp": ("quora_duplicate_questions.tsv", "pairs/qqp_6k.tsv"),
    "flickr": ("flickr30k_captions.tsv.gz", "flickr30k_captions.tsv", "results_20130124.token"),
    "paranmt": ("para-nmt-5m-processed.txt", "pairs/paranmt_6k.tsv"),
    "glove": ("glove.840B.300d.txt", "glove.6B.300d.txt", "glove_100d_40k.txt.gz", "glove.txt"),
    "senteval": ("senteval", "SentEval/data", "."),
}


class Missing(InputError):
    """Text that a row needs is not in the data folder."""


class Corpora:
    """The data folder, and the folder in which corpora are prepared."""

    def __init__(self, data: Path, prepared: Path, *, rows: int | None) -> None:
        self.data, self.prepared, self.rows = data, prepared, rows
        self._read: dict[tuple[str, ...], NLI] = {}

    def find(self, kind: str) -> list[Path]:
        """Return the files of a kind of text, or say under which names they are looked for."""
        for names in FILES[kind]:
            paths = [self.data / name for name in names.split()]
            if all(path.exists() for path in paths):
                return paths
        known = ", or ".join(names.replace(" ", " with ") for names in FILES[kind])
        raise Missing(f"no {kind} text in {self.data}: it is looked for as {known}.")

    def prepare(self, name: str, *, most: int | None = None) -> Path:
        """Return the file of a training corpus, or of a sample of so many rows, written once."""
        if most is not None and (self.rows is None or most < self.rows):
            return Corpora(self.data, self.prepared / f"{most}-rows", rows=most).prepare(name)
        path = self.prepared / (f"{name}.txt" if name in SINGLE else f"{name}.jsonl")
        if not path.is_file():
            self.prepared.mkdir(parents=True, exist_ok=True)
            rows = CORPORA[name](self)
            with writing(path) as aside:
                _write(aside, rows, LABELLED if name == "nli-labelled" else TEXTS)
        return path

    def nli_sentences(self, most: int | None) -> list[str]:
        """Return distinct sentences of the NLI text, of every label alike, for a layer to be fitted to."""
        pairs = self.nli().pairs("all", sample=most, seed=SEED)
        return sample_rows(list(dict.fromkeys(text for pair in pairs for text in pair)), most, SEED)

    def nli(self, *more: str) -> NLI:
        """Return the NLI text, with other kinds of it if need be, read once."""
        if more not in self._read:
            self._read[more] = read_nli([path for kind in ("nli", *more) for path in self.find(kind)])
        return self._read[more]

    def sample(self, rows: list[Texts]) -> list[Texts]:
        """Keep as many rows as the scale asks for, the same ones every time, in order."""
        return sample_rows(rows, self.rows, SEED)


def _sentences(corpora: Corpora) -> list[Texts]:
    return corpora.sample([row.texts for row in _lines(corpora)])


def _consecutive(corpora: Corpora) -> Iterable[Texts]:
    """Sentences in the order of their documents, a blank line between two; a smaller corpus is a shorter one."""
    before: Row | None = None
    for row in islice(_lines(corpora), corpora.rows):
        if before is not None and not adjoin(before, row):
            yield ("",)
        yield row.texts
        before = row


def _lines(corpora: Corpora) -> Iterator[Row]:
    (path,) = corpora.find("wiki")
    return iter(open_corpus(path, columns=["0"], skip_bad_rows=True))


def _released_triplets(corpora: Corpora) -> list[Texts]:
    """The triplets that the authors released, where they are at hand; else ones made of the same text."""
    path = corpora.data / RELEASED_TRIPLETS
    if not path.is_file():
        return _triplets(corpora, negatives="contradiction")
    return corpora.sample([row.texts for row in open_corpus(path, columns=TEXTS)])


def _triplets(corpora: Corpora, *, negatives: str, anli: bool = False) -> list[Texts]:
    nli = corpora.nli(*(["anli"] if anli else []))
    return corpora.sample([*nli.triplets(negatives=negatives, seed=SEED)])


def _nli_pairs(corpora: Corpora, *, label: str) -> list[Texts]:
    return corpora.sample([*corpora.nli().pairs(label)])


def _nli_sentences(corpora: Corpora) -> list[Texts]:
    return [(text,) for text in corpora.nli_sentences(corpora.rows)]


def _labelled(corpora: Corpora) -> list[Texts]:
    """Premise, hypothesis and label, for the softmax objective."""
    nli = corpora.nli()
    labels = ("entailment", "neutral", "contradiction")
    return corpora.sample([(*pair, label) for label in labels for pair in nli.pairs(label)])


def _questions(corpora: Corpora) -> list[Texts]:
    (path,) = corpora.find("qqp")
    found = open_corpus(path, columns=["question1", "question2"], score="is_duplicate", skip_bad_rows=True)
    return corpora.sample([row.texts for row in found if row.score == 1])


def _captions(corpora: Corpora) -> list[Texts]:
    (path,) = corpora.find("flickr")
    return corpora.sample([*caption_pairs(path, seed=SEED)])


def _paraphrases(corpora: Corpora) -> list[Texts]:
    (path,) = corpora.find("paranmt")
    return corpora.sample([row.texts[:2] for row in open_corpus(path, skip_bad_rows=True)])


CORPORA: Registry[Callable[[Corpora], Iterable[Texts]]] = Registry("corpus")
CORPORA.add("wiki", _sentences)
CORPORA.add("wiki-documents", _consecutive)
CORPORA.add("nli-triplets", _released_triplets)
CORPORA.add("nli-triplets-both", partial(_triplets, negatives="both"))
CORPORA.add("nli-triplets-anli", partial(_triplets, negatives="contradiction", anli=True))
for _label in ("entailment", "neutral", "contradiction", "all"):
    CORPORA.add(f"nli-{_label}", partial(_nli_pairs, label=_label))
CORPORA.add("nli-labelled", _labelled)
CORPORA.add("nli-sentences", _nli_sentences)
CORPORA.add("qqp", _questions)
CORPORA.add("flickr", _captions)
CORPORA.add("paranmt", _paraphrases)


def _write(path: Path, rows: Iterable[Texts], names: tuple[str, ...]) -> None:
    """Write single sentences a line each, and pairs or triplets as objects with the names that readers know."""
    with path.open("w", encoding="utf-8") as stream:
        for row in rows:
            line = json.dumps(dict(zip(names, row, strict=False)), ensure_ascii=False)
            stream.write((re.sub(r"\s+", " ", row[0]) if len(row) == 1 else line) + "\n")
