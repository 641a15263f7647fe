"""The text that recipes train on: the files of a data folder, made into corpora once, and named in the report.

How the rows of each corpus are made is in makers.py.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twinpass.errors import InputError
from twinpass.evaluation.reading import find_root
from twinpass.files import explaining, write_json, writing
from twinpass.progress import Log, ignore
from twinpass.recipes.makers import (
    CORPORA,
    MAKERS,
    RELEASED_PARAPHRASES,
    RELEASED_TRIPLETS,
    Files,
    Material,
    write_rows,
)
from twinpass.recipes.store import key_of
from twinpass.text.nli import NLI, read_nli

_NLI = ("snli_1.0/snli_1.0_train.jsonl multinli_1.0/multinli_1.0_train.jsonl", "nli_pairs.tsv.gz", "nli_pairs.tsv")
# The names under which each kind of file is looked for, released files first.
FILES = {
    "wiki": ("wiki1m_for_simcse.txt", "wiki_1m.txt.gz", "wiki.txt"),
    "nli": _NLI,
    "triplets": (RELEASED_TRIPLETS, *_NLI),
    # Su et al. fit whitening to SNLI's development and test sentences too; they are used where they are there.
    "snli-more": ("snli_1.0/snli_1.0_dev.jsonl snli_1.0/snli_1.0_test.jsonl",),
    "anli": ("anli_v1.0/R1/train.jsonl anli_v1.0/R2/train.jsonl anli_v1.0/R3/train.jsonl", "anli.jsonl"),
    # The paper's 134k pairs are the duplicates of GLUE's training split; Quora's own file has no split.
    "qqp": ("QQP/train.tsv", "quora_duplicate_questions.tsv", "pairs/qqp_6k.tsv"),
    "flickr": ("flickr30k_captions.tsv.gz", "flickr30k_captions.tsv", "results_20130124.token"),
    "paranmt": (RELEASED_PARAPHRASES, "pairs/paranmt_6k.tsv"),
    "glove": ("glove.840B.300d.txt", "glove.6B.300d.txt", "glove_100d_40k.txt.gz", "glove.txt"),
    "senteval": ("senteval", "SentEval/data", "."),
}
# Files of the evaluation sets that are read as text, too, looked for where the evaluation reads them.
IN_SENTEVAL = {
    "trec": "TREC/train_5500.label",
    "stsb-train": "STS/STSBenchmark/sts-train.csv",
    "snli-more": "SNLI/s1.dev SNLI/s2.dev SNLI/s1.test SNLI/s2.test",
}


class Missing(InputError):
    """Text that a row needs is not in the data folder."""


class Corpora:
    """A data folder, and the folder in which corpora made from it are kept."""

    def __init__(self, data: Path, prepared: Path, *, rows: int | None, log: Log = ignore) -> None:
        self.data, self.prepared, self.rows, self.log = data, prepared, rows, log
        self._nli: dict[str, NLI] = {}

    def find(self, kind: str) -> list[Path]:
        """Return the files of a kind; if there are none, the error says which names are looked for."""
        places = [(self.data, names) for names in FILES.get(kind, ())]
        if kind in IN_SENTEVAL:
            places.append((find_root(self.find("senteval")[0]), IN_SENTEVAL[kind]))
        for folder, names in places:
            paths = [folder / name for name in names.split()]
            if all(path.exists() for path in paths):
                return paths
        tried = (str(folder.relative_to(self.data) / names).replace(" ", " with ") for folder, names in places)
        raise Missing(f"no {kind} text in {self.data}: expected {', or '.join(tried)}.")

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
        return files, self.prepared / f"{name}-{self.stamp(_all(files))}{CORPORA[name].suffix}"

    def stamp(self, files: Sequence[Path]) -> str:
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
        stamp = self.stamp(files)
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
