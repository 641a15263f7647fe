"""The text that recipes train on: the files of a data folder, made into corpora once, and named in the report."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from twinpass.errors import InputError
from twinpass.evaluation.reading import find_root
from twinpass.files import explaining, write_json, writing
from twinpass.progress import Log, ignore
from twinpass.recipes.store import key_of
from twinpass.registry import Registry
from twinpass.text.corpus import Row, open_corpus
from twinpass.text.nli import NLI, read_nli, sample_rows
from twinpass.text.sources import find_sources, read_lines
from twinpass.text.views import adjoin

Texts = tuple[str, ...]
Files = dict[str, list[Path]]  # by kind
SENTENCE, PAIR, TRIPLET = ("text",), ("sent0", "sent1"), ("sent0", "sent1", "hard_neg")
SEVERAL = ("sent0", "sent1", "hard_negs")  # the last is a list
LABELLED = ("premise", "hypothesis", "label")
CLASSED, GRADED = ("text", "label"), ("sent0", "sent1", "score")
SEED = 42  # which rows a smaller corpus keeps is part of the protocol, not of a run
MAKERS = 2  # raise it when a maker below makes other rows of the same files: it is part of a corpus's file name
RELEASED_TRIPLETS, RELEASED_PARAPHRASES = "nli_for_simcse.csv", "para-nmt-5m-processed.txt"
_NLI = ("snli_1.0/snli_1.0_train.jsonl multinli_1.0/multinli_1.0_train.jsonl", "nli_pairs.tsv.gz", "nli_pairs.tsv")
# The names under which each kind of file is looked for, released files first.
FILES = {
    "wiki": ("wiki1m_for_simcse.txt", "wiki_1m.txt.gz", "wiki.txt"),
    "nli": _NLI,
    "triplets": (RELEASED_TRIPLETS, *_NLI),
    # Su et al. fit whitening to SNLI's development and test sentences too; they are used where they are there.
    "snli-more": (
        "snli_1.0/snli_1.0_dev.jsonl snli_1.0/snli_1.0_test.jsonl",
        "senteval/downstream/SNLI/s1.dev senteval/downstream/SNLI/s2.dev "
        "senteval/downstream/SNLI/s1.test senteval/downstream/SNLI/s2.test",
    ),
    "anli": ("anli_v1.0/R1/train.jsonl anli_v1.0/R2/train.jsonl anli_v1.0/R3/train.jsonl", "anli.jsonl"),
    # The paper's 134k pairs are the duplicates of GLUE's training split; Quora's own file has no split.
    "qqp": ("QQP/train.tsv", "quora_duplicate_questions.tsv", "pairs/qqp_6k.tsv"),
    "flickr": ("flickr30k_captions.tsv.gz", "flickr30k_captions.tsv", "results_20130124.token"),
    "paranmt": (RELEASED_PARAPHRASES, "pairs/paranmt_6k.tsv"),
    "glove": ("glove.840B.300d.txt", "glove.6B.300d.txt", "glove_100d_40k.txt.gz", "glove.txt"),
    "senteval": ("senteval", "SentEval/data", "."),
}
# Training splits of evaluation sets, looked for where the evaluation reads them.
SPLITS = {"trec": "TREC/train_5500.label", "stsb-train": "STS/STSBenchmark/sts-train.csv"}


class Missing(InputError):
    """Text that a row needs is not in the data folder."""


class Corpora:
    """A data folder, and the folder in which corpora made from it are kept."""

    def __init__(self, data: Path, prepared: Path, *, rows: int | None, log: Log = ignore) -> None:
        self.data, self.prepared, self.rows, self.log = data, prepared, rows, log
        self._nli: dict[str, NLI] = {}

    def find(self, kind: str) -> list[Path]:
        """Return the files of a kind; if there are none, the error says which names are looked for."""
        if kind in SPLITS:
            path = find_root(self.find("senteval")[0]) / SPLITS[kind]
            if not path.is_file():
                raise Missing(f"no {kind} text in {self.data}: expected {path}, one of SentEval's files.")
            return [path]
        for names in FILES[kind]:
            paths = [self.data / name for name in names.split()]
            if all(path.exists() for path in paths):
                return paths
        known = ", or ".join(names.replace(" ", " with ") for names in FILES[kind])
        raise Missing(f"no {kind} text in {self.data}: expected {known}.")

    def sized(self, rows: int | None) -> Corpora:
        """Return the same text with at most this many rows of each corpus."""
        if rows == self.rows:
            return self
        name = "all-rows" if rows is None else f"{rows}-rows"
        other = Corpora(self.data, self.prepared / name, rows=rows, log=self.log)
        other._nli = self._nli  # files that were read once serve every size
        return other

    def prepare(self, name: str, *, most: int | None = None) -> Path:
        """Return the file of a corpus, or of a sample of at most `most` rows; it is written if it is not there yet.

        Its name has a hash of its source files: if one of them changes, or a better one is added, the name changes.
        """
        if most is not None and (self.rows is None or most < self.rows):
            return self.sized(most).prepare(name)
        files, path = self._place(name)
        if not (path.is_file() and _facts_of(path).is_file()):
            self._make(name, files, path)
        return path

    def facts(self, name: str) -> dict[str, Any] | None:
        """Return the source files of a prepared corpus, its rows, and the rows skipped; None if it is not prepared."""
        try:
            path = _facts_of(self._place(name)[1])
        except Missing:
            return None
        found: dict[str, Any] | None = json.loads(path.read_text("utf-8")) if path.is_file() else None
        return found

    def file_facts(self, kind: str) -> dict[str, Any] | None:
        """Return the same of files that are read as they are."""
        try:
            return {"sources": self._names(self.find(kind)), "rows": None, "skipped": {}}
        except Missing:
            return None

    def _names(self, files: Sequence[Path]) -> list[str]:
        return [path.relative_to(self.data).as_posix() for path in files]

    def _place(self, name: str) -> tuple[Files, Path]:
        """Return a corpus's source files by kind, and the file in which it is prepared."""
        files = {kind: self.find(kind) for kind in CORPORA[name].kinds}
        for kind in CORPORA[name].optional:
            with contextlib.suppress(Missing):
                files[kind] = self.find(kind)
        return files, self.prepared / f"{name}-{self._stamp(_all(files))}{CORPORA[name].suffix}"

    def _stamp(self, files: Sequence[Path]) -> str:
        """Return a hash of files' names, sizes and times; hashing gigabytes of content would take too long."""
        states = [path.stat() for path in files]
        sizes = [[state.st_size, state.st_mtime_ns] for state in states]
        return key_of([MAKERS, self._names(files), sizes])[:8]

    def _make(self, name: str, files: Files, path: Path) -> None:
        with explaining(self.prepared):
            self.prepared.mkdir(parents=True, exist_ok=True)
        corpus, material = CORPORA[name], Material(files=files, rows=self.rows, read_nli=self._read_nli)
        rows = list(corpus.make(material))
        with writing(path) as aside:
            count = write_rows(aside, rows, corpus.columns)
        facts = {"sources": self._names(_all(files)), "rows": count, "skipped": dict(material.skipped)}
        write_json(_facts_of(path), facts)  # last: a corpus without it is made again
        self.log(f"  prepared {describe_text(name, facts)}")

    def _read_nli(self, files: Sequence[Path]) -> NLI:
        stamp = self._stamp(files)
        if stamp not in self._nli:
            self._nli[stamp] = read_nli(files, skip_bad_rows=True)
        return self._nli[stamp]


def _all(files: Files) -> list[Path]:
    """Return the files of all kinds, each once."""
    return list(dict.fromkeys(path for kind in files.values() for path in kind))


def _facts_of(path: Path) -> Path:
    return path.with_suffix(".facts.json")


def describe_text(name: str, facts: dict[str, Any]) -> str:
    """Say in a line which files a text comes from, its rows, and the rows skipped."""
    rows, skipped = facts["rows"], facts["skipped"]
    line = f"{name}: " + ("" if rows is None else f"{rows:,} rows of ") + " and ".join(facts["sources"])
    reasons = ", ".join(f"{count:,} ({reason})" for reason, count in skipped.items())
    return line + (f"; skipped {reasons}" if reasons else "")


# --- how each corpus is made of its source files ---


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


def _triplets_with_neutral(material: Material) -> list[Texts]:
    """Return the same triplets, with hard negatives drawn from the contradictions and neutral hypotheses together."""
    # First the sample, then the draw: these are the rows of the reference, and only their negatives differ.
    rows, random = _triplets(material), np.random.default_rng(SEED)
    negatives = material.nli().hypotheses("both")
    drawn: list[Texts] = []
    for premise, entailed, contradiction in rows:
        found = negatives.get(premise) or [contradiction]
        drawn.append((premise, entailed, found[int(random.integers(len(found)))]))
    return drawn


def _triplets_with_anli(material: Material) -> list[Texts]:
    """Return the same triplets, and those made from ANLI."""
    return material.sample([*_base_triplets(material), *material.nli("anli").triplets(seed=SEED)])


def _triplets_with_all(material: Material) -> list[Texts]:
    """Return the same triplets, each with every other contradiction of its premise as a further hard negative."""
    contradictions = material.nli().hypotheses("contradiction")
    return [
        (premise, entailed, *dict.fromkeys([drawn, *contradictions.get(premise, ())]))
        for premise, entailed, drawn in _triplets(material)
    ]


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
