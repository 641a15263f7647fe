"""Training text from inference data: pairs of one label (Table 4), and triplets with a hard negative (section 4).

A triplet is a premise, a hypothesis that follows from it, and one that contradicts it. Every entailment pair whose
premise has a contradiction makes one triplet, with one of the contradictions drawn at random.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from twinpass.errors import ConfigError
from twinpass.registry import suggest
from twinpass.text.nli_files import LABELS, Tally, read_file

Pair = tuple[str, str]
Triplet = tuple[str, str, str]
T = TypeVar("T")

# What a hard negative may be; "both" draws from the two together (Table 7).
NEGATIVES = {"contradiction": ("contradiction",), "neutral": ("neutral",), "both": ("contradiction", "neutral")}
PAIRS = {label: (label,) for label in LABELS} | {"all": LABELS}


class NLI(NamedTuple):
    """Labelled pairs in the order in which they were read, and what each file held."""

    labelled: Mapping[str, Sequence[Pair]]
    files: Sequence[Tally]

    @property
    def counts(self) -> dict[str, int]:
        """Number of pairs by label, and of rows that were left out, over all files."""
        counts = {label: len(self.labelled[label]) for label in LABELS}
        return counts | {"skipped": sum(file.skipped.total() for file in self.files)}

    def pairs(self, label: str = "entailment", *, sample: int | None = None, seed: int = 42) -> list[Pair]:
        """Return the (premise, hypothesis) pairs of one label, or of all; or a sample of so many."""
        labels = choose(label, "pairs", PAIRS)
        return sample_rows([pair for name in labels for pair in self.labelled[name]], sample, seed)

    def triplets(self, *, negatives: str = "contradiction", sample: int | None = None, seed: int = 42) -> list[Triplet]:
        """Return (premise, entailment, hard negative) for every entailment whose premise has a negative."""
        of_premise = self._negatives(negatives)
        random = np.random.default_rng(seed)
        made = [
            (premise, entailed, found[int(random.integers(len(found)))])
            for premise, entailed in self.labelled["entailment"]
            if (found := of_premise.get(premise))
        ]
        return sample_rows(made, sample, seed)

    def triplets_by_file(self, *, negatives: str = "contradiction") -> list[int]:
        """Return how many triplets each file's entailments make; their negatives may be another file's."""
        of_premise, counts, start = self._negatives(negatives), [], 0
        for file in self.files:
            end = start + file.pairs["entailment"]
            own = self.labelled["entailment"][start:end]
            counts.append(sum(premise in of_premise for premise, _ in own))
            start = end
        return counts

    def _negatives(self, kind: str) -> dict[str, list[str]]:
        """Return the hypotheses that can be a hard negative, by premise."""
        found: dict[str, list[str]] = {}
        for label in choose(kind, "negatives", NEGATIVES):
            for premise, hypothesis in self.labelled[label]:
                found.setdefault(premise, []).append(hypothesis)
        return found


def read_nli(paths: Iterable[str | os.PathLike[str]], *, skip_bad_rows: bool = False) -> NLI:
    """Read files of SNLI, MNLI, ANLI, or tables with a premise, a hypothesis and a label."""
    labelled: dict[str, list[Pair]] = {label: [] for label in LABELS}
    premises: dict[str, str] = {}  # a premise stands in several pairs: it is held once
    files = [Tally(os.fspath(path)) for path in paths]
    for tally in files:
        for premise, hypothesis, label in read_file(tally.source, tally, skip_bad_rows=skip_bad_rows):
            labelled[label].append((premises.setdefault(premise, premise), hypothesis))
    return NLI(labelled, files)


def choose(name: str, what: str, known: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the labels behind a name of NEGATIVES or PAIRS; an unknown one gets a suggestion."""
    if name not in known:
        raise ConfigError(f"{what} are one of {', '.join(known)}; got {name!r}.{suggest(name, known)}")
    return known[name]


def sample_rows(rows: list[T], count: int | None, seed: int) -> list[T]:
    """Return so many of the rows, drawn at random and left in order; all where there are not more."""
    if count is None or count >= len(rows):
        return rows
    kept = np.random.default_rng(seed).choice(len(rows), size=count, replace=False)
    return [rows[place] for place in np.sort(kept)]
