"""The text that recipes train on, found under one data folder and prepared once for the files that lie there."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twinpass.errors import InputError
from twinpass.files import explaining, write_json, writing
from twinpass.recipes.accounts import say
from twinpass.recipes.makers import CORPORA, RELEASED_PARAPHRASES, RELEASED_TRIPLETS, Material, write_rows
from twinpass.recipes.store import key_of
from twinpass.text.nli import NLI, read_nli

_NLI = ("snli_1.0/snli_1.0_train.jsonl multinli_1.0/multinli_1.0_train.jsonl", "nli_pairs.tsv.gz", "nli_pairs.tsv")
# Under which names each kind of text is looked for, the released ones first.
FILES = {
    "wiki": ("wiki1m_for_simcse.txt", "wiki_1m.txt.gz", "wiki.txt"),
    "nli": _NLI,
    "triplets": (RELEASED_TRIPLETS, *_NLI),
    "anli": ("anli_v1.0/R1/train.jsonl anli_v1.0/R2/train.jsonl anli_v1.0/R3/train.jsonl", "anli.jsonl"),
    # The paper's 134k pairs are the duplicates of GLUE's training split; Quora's own file has no split.
    "qqp": ("QQP/train.tsv", "quora_duplicate_questions.tsv", "pairs/qqp_6k.tsv"),
    "flickr": ("flickr30k_captions.tsv.gz", "flickr30k_captions.tsv", "results_20130124.token"),
    "paranmt": (RELEASED_PARAPHRASES, "pairs/paranmt_6k.tsv"),
    "glove": ("glove.840B.300d.txt", "glove.6B.300d.txt", "glove_100d_40k.txt.gz", "glove.txt"),
    "senteval": ("senteval", "SentEval/data", "."),
}


class Missing(InputError):
    """Text that a row needs is not in the data folder."""


class Corpora:
    """The data folder, and the folder in which corpora are prepared."""

    def __init__(
        self, data: Path, prepared: Path, *, rows: int | None, log: Callable[[str], None] = lambda line: None
    ) -> None:
        self.data, self.prepared, self.rows, self.log = data, prepared, rows, log
        self._read: dict[str, NLI] = {}

    def find(self, kind: str) -> list[Path]:
        """Return the files of a kind of text, or say under which names they are looked for."""
        for names in FILES[kind]:
            paths = [self.data / name for name in names.split()]
            if all(path.exists() for path in paths):
                return paths
        known = ", or ".join(names.replace(" ", " with ") for names in FILES[kind])
        raise Missing(f"no {kind} text in {self.data}: it is looked for as {known}.")

    def sized(self, rows: int | None) -> Corpora:
        """Return the same text with so many rows of each corpus."""
        if rows == self.rows:
            return self
        folder = self.prepared / ("all-rows" if rows is None else f"{rows}-rows")
        other = Corpora(self.data, folder, rows=rows, log=self.log)
        other._read = self._read  # what is read once serves every size
        return other

    def prepare(self, name: str, *, most: int | None = None) -> Path:
        """Return the file of a training corpus, or of a sample of so many rows; it is written where there is none yet.

        Its name holds what its source files are: where one of them changes, or a better one is added, it is another.
        """
        if most is not None and (self.rows is None or most < self.rows):
            return self.sized(most).prepare(name)
        files, path = self._place(name)
        if not (path.is_file() and _account(path).is_file()):
            self._make(name, files, path)
        return path

    def account(self, name: str) -> dict[str, Any] | None:
        """Return what a corpus was prepared of, how many rows it has and how many were bad; None if it was not."""
        try:
            path = _account(self._place(name)[1])
        except Missing:
            return None
        found: dict[str, Any] | None = json.loads(path.read_text("utf-8")) if path.is_file() else None
        return found

    def names(self, files: Sequence[Path]) -> list[str]:
        """Return files' names as they stand in the data folder."""
        return [path.relative_to(self.data).as_posix() for path in files]

    def _place(self, name: str) -> tuple[list[Path], Path]:
        """Return a corpus's source files, and the file in which it is prepared."""
        files = [path for kind in CORPORA[name].kinds for path in self.find(kind)]
        return files, self.prepared / f"{name}-{self._stamp(files)}{CORPORA[name].suffix}"

    def _stamp(self, files: Sequence[Path]) -> str:
        """Return a short name for files as they are now; reading gigabytes to see a change would take too long."""
        states = [path.stat() for path in files]
        sizes = [[state.st_size, state.st_mtime_ns] for state in states]
        return key_of([self.names(files), sizes])[:8]

    def _make(self, name: str, files: list[Path], path: Path) -> None:
        with explaining(self.prepared):
            self.prepared.mkdir(parents=True, exist_ok=True)
        making, material = CORPORA[name], Material(files=files, rows=self.rows, read_nli=self._read_nli)
        rows = list(making.make(material))
        with writing(path) as aside:
            count = write_rows(aside, rows, making.columns)
        account = {"sources": self.names(files), "rows": count, "left_out": dict(material.left_out)}
        write_json(_account(path), account)  # comes last: a corpus without it is made again
        self.log(f"  prepared {say(name, account)}")

    def _read_nli(self, files: Sequence[Path]) -> NLI:
        stamp = self._stamp(files)
        if stamp not in self._read:
            self._read[stamp] = read_nli(files, skip_bad_rows=True)
        return self._read[stamp]


def _account(path: Path) -> Path:
    return path.with_suffix(".json")
