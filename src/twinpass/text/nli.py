"""Training text from inference data: pairs of one label (Table 4), and triplets with a hard negative (section 4).

A triplet is a premise, a hypothesis that follows from it, and one that contradicts it. Every entailment pair whose
premise has a contradiction makes one triplet, with one of the contradictions drawn at random.

SNLI and MNLI are released as .jsonl and as .txt (tab-separated, with a header), with sentence1, sentence2 and
gold_label; ANLI as .jsonl with context (or premise), hypothesis and label, a letter; the hub's copies have a number
there. Each may be compressed with gzip or xz.
"""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from twinpass.display import Displayed, Grid
from twinpass.errors import ConfigError, InputError, OutputError
from twinpass.files import check_writable, refuse_own_input, sha256, writing
from twinpass.provenance import provenance
from twinpass.registry import suggest
from twinpass.text.columns import plain
from twinpass.text.formats import JsonTable, SeparatedTable, report_width, split_at_tabs
from twinpass.text.rows import BadRows, without_blanks
from twinpass.text.sources import Source, find_sources, format_of, input_files, is_folder
from twinpass.text.tables import write_table

Pair = tuple[str, str]
Triplet = tuple[str, str, str]
T = TypeVar("T")

LABELS = ("entailment", "neutral", "contradiction")
# What a hard negative may be; "both" draws from the two together (Table 7).
NEGATIVES = {"contradiction": ("contradiction",), "neutral": ("neutral",), "both": ("contradiction", "neutral")}
PAIRS = {label: (label,) for label in LABELS} | {"all": LABELS}
# Labels as SNLI and MNLI spell them, as ANLI does, and as numbered releases do.
LABEL_OF = {name: name for name in LABELS} | {name[0]: name for name in LABELS}
LABEL_OF |= {str(number): name for number, name in enumerate(LABELS)}
UNDECIDED = "no gold label"
_NO_LABEL = {"-", "", "-1"}  # the annotators did not agree
_ROLES = (
    ("a premise", ("sentence1", "premise", "context")),
    ("a hypothesis", ("sentence2", "hypothesis")),
    ("a label", ("gold_label", "label")),
)
HEADER = ("sent0", "sent1", "hard_neg")
SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")


@dataclass
class Tally:
    """What one file held: pairs by label, and skipped rows by reason."""

    source: str
    pairs: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    triplets: int | None = None  # made of its entailments, unless pairs were asked for


class NLI(NamedTuple):
    """Labelled pairs in the order in which they were read, and what each file held."""

    labelled: Mapping[str, Sequence[Pair]]
    files: Sequence[Tally]

    @property
    def counts(self) -> dict[str, int]:
        """Number of pairs by label, and of skipped rows, over all files."""
        counts = {label: len(self.labelled[label]) for label in LABELS}
        return counts | {"skipped": sum(file.skipped.total() for file in self.files)}

    def pairs(self, label: str = "entailment", *, sample: int | None = None, seed: int = 42) -> list[Pair]:
        """Return the (premise, hypothesis) pairs of one label, or of all; or a sample of at most this many."""
        labels = _labels(label, "pairs", PAIRS)
        return sample_rows([pair for name in labels for pair in self.labelled[name]], sample, seed)

    def triplets(self, *, negatives: str = "contradiction", sample: int | None = None, seed: int = 42) -> list[Triplet]:
        """Return (premise, entailment, hard negative) for every entailment whose premise has a negative."""
        of_premise = self.hypotheses(negatives)
        random = np.random.default_rng(seed)
        made = [
            (premise, entailed, found[int(random.integers(len(found)))])
            for premise, entailed in self.labelled["entailment"]
            if (found := of_premise.get(premise))
        ]
        return sample_rows(made, sample, seed)

    def triplets_by_file(self, *, negatives: str = "contradiction") -> list[int]:
        """Return how many triplets each file's entailments make; their negatives may come from another file."""
        of_premise, entailments = self.hypotheses(negatives), iter(self.labelled["entailment"])
        return [
            sum(premise in of_premise for premise, _ in islice(entailments, file.pairs["entailment"]))
            for file in self.files
        ]

    def hypotheses(self, negatives: str = "contradiction") -> dict[str, list[str]]:
        """Return the hypotheses that can be a hard negative, by premise."""
        found: dict[str, list[str]] = {}
        for label in _labels(negatives, "negatives", NEGATIVES):
            for premise, hypothesis in self.labelled[label]:
                found.setdefault(premise, []).append(hypothesis)
        return found


@dataclass(frozen=True, repr=False)
class Triplets(Displayed):
    """What `triplets` wrote, and what each file it read held."""

    output: Path
    rows: int
    sha256: str
    counts: Mapping[str, int]
    files: Sequence[Tally]
    options: Mapping[str, Any]

    def grids(self) -> list[Grid]:
        """Return the counts of each file as a table."""
        made = "triplets" if self.options["pairs"] is None else "pairs"
        title = f"{_spoken(self.counts)} -> {self.output}: {self.rows:,} {made}"
        rows = [[f"{value:,}" if isinstance(value, int) else value for value in row.values()] for row in self.records()]
        return [Grid(title, list(self.records()[0]), rows)]

    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary of counts per file."""
        return [
            {"file": file.source}
            | {label: file.pairs[label] for label in LABELS}
            | {"skipped": file.skipped.total()}
            | ({} if file.triplets is None else {"triplets": file.triplets})
            for file in self.files
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the counts, the options and the versions as JSON can hold them."""
        return provenance(options=self.options) | super().to_dict()


def triplets(
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    negatives: str = "contradiction",
    pairs: str | None = None,
    sample: int | None = None,
    skip_bad_rows: bool = False,
    seed: int = 42,
) -> Triplets:
    """Read SNLI, MNLI, ANLI or tables with a label, and write triplets to a .csv, .tsv, .jsonl or .parquet file.

    Every entailment pair whose premise also has a hard negative (`negatives`: contradiction, neutral or both) becomes
    a row; with `pairs` (entailment, neutral, contradiction or all) the pairs of that label are written instead.
    `sample` keeps at most this many rows, drawn at random, in order.
    """
    output = Path(output)
    _check(output, negatives=negatives, pairs=pairs, sample=sample)
    files = [files] if isinstance(files, (str, os.PathLike)) else [*files]
    refuse_own_input(output, [path for name in files for path in input_files(name)])
    nli = read_nli(files, skip_bad_rows=skip_bad_rows)
    rows: Sequence[Sequence[str]] = (
        nli.triplets(negatives=negatives, sample=sample, seed=seed)
        if pairs is None
        else nli.pairs(pairs, sample=sample, seed=seed)
    )
    if not rows:
        named = ", ".join(file.source for file in nli.files)
        other = "contradiction or a neutral pair" if negatives == "both" else f"{negatives} pair"
        needed = f"no premise has both an entailment and a {other}" if pairs is None else f"no pair is labelled {pairs}"
        raise InputError(f"{named}: nothing to write ({_spoken(nli.counts)}): {needed}.")
    _write(output, rows)
    options = {"negatives": negatives, "pairs": pairs, "sample": sample, "skip_bad_rows": skip_bad_rows, "seed": seed}
    if pairs is None:
        for file, made in zip(nli.files, nli.triplets_by_file(negatives=negatives), strict=True):
            file.triplets = made
    return Triplets(output, len(rows), sha256(output), nli.counts, nli.files, options)


def read_nli(paths: Iterable[str | os.PathLike[str]], *, skip_bad_rows: bool = False) -> NLI:
    """Read files of SNLI, MNLI, ANLI, or tables with a premise, a hypothesis and a label."""
    labelled: dict[str, list[Pair]] = {label: [] for label in LABELS}
    premises: dict[str, str] = {}  # a premise occurs in several pairs: it is stored once
    files = [Tally(os.fspath(path)) for path in paths]
    for tally in files:
        for premise, hypothesis, label in _read_file(tally, BadRows(skip=skip_bad_rows)):
            labelled[label].append((premises.setdefault(premise, premise), hypothesis))
    return NLI(labelled, files)


def sample_rows(rows: list[T], count: int | None, seed: int) -> list[T]:
    """Return at most this many of the rows, drawn at random, in order."""
    if count is None or count >= len(rows):
        return rows
    kept = np.random.default_rng(seed).choice(len(rows), size=count, replace=False)
    return [rows[place] for place in np.sort(kept)]


def _labels(name: str, what: str, known: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the labels behind a name of NEGATIVES or PAIRS; an unknown one gets a suggestion."""
    if name not in known:
        raise ConfigError(f"expected {what} to be one of {', '.join(known)}, got {name!r}.{suggest(name, known)}")
    return known[name]


def _spoken(counts: Mapping[str, int]) -> str:
    kinds = ", ".join(f"{counts[label]:,} {label}" for label in LABELS)
    return f"{kinds} pairs, {counts['skipped']:,} rows skipped"


def _check(output: Path, *, negatives: str, pairs: str | None, sample: int | None) -> None:
    """Refuse wrong options before anything is read."""
    if sample is not None and sample < 1:
        raise ConfigError(f"expected a sample of at least 1 row, got {sample}.")
    _labels(negatives, "negatives", NEGATIVES)
    if pairs is not None:
        _labels(pairs, "pairs", PAIRS)
        if negatives != "contradiction":
            raise ConfigError("pairs have no hard negative: pass --negatives or --pairs, not both.")
    if output.suffix not in SUFFIXES:
        raise OutputError(f"expected a file name that ends in {', '.join(SUFFIXES)}, got {output}.")
    check_writable(output)


def _write(output: Path, rows: Sequence[Sequence[str]]) -> None:
    header = HEADER[: len(rows[0])]
    if output.suffix == ".parquet":
        write_table(output, (dict(zip(header, row, strict=True)) for row in rows), columns=header)
        return
    with writing(output) as aside, aside.open("w", encoding="utf-8", newline="") as stream:
        if output.suffix == ".csv":
            usual = csv.writer(stream, lineterminator="\n")
            quoting = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_ALL)
            for row in [header, *rows]:  # before Python 3.13 a carriage return alone does not get a text its quotes
                (quoting if any("\r" in text for text in row) else usual).writerow(row)
        elif output.suffix == ".tsv":  # the format has no way to write a tab or line end inside a text
            stream.writelines("\t".join(" ".join(t.split()) for t in row) + "\n" for row in [header, *rows])
        else:
            documents = (dict(zip(header, row, strict=True)) for row in rows)
            stream.writelines(json.dumps(document, ensure_ascii=False) + "\n" for document in documents)


def _read_file(tally: Tally, bad: BadRows) -> Iterator[tuple[str, str, str]]:
    """Yield the (premise, hypothesis, label) of a file, or of the files that match a pattern, and count them."""
    for source in _find(tally.source):
        for line, values in _read_values(source, bad):
            pair = _read_pair(values, f"{source.label}:{line}", bad, tally)
            if pair is not None:
                tally.pairs[pair[2]] += 1
                yield pair
    tally.skipped.update(bad.reasons)


def _find(name: str) -> list[Source]:
    if is_folder(name):
        raise InputError(f"{name} is a folder. Name the files in it: releases hold the same pairs in several formats.")
    return find_sources(f"tsv:{name}" if format_of(Path(name))[0] == "txt" else name)


def _read_values(source: Source, bad: BadRows) -> Iterator[tuple[int, Sequence[object]]]:
    """Yield (line, [premise, hypothesis, label]) of every row that can be read."""
    if source.format == "tsv":
        return _read_tabs(source, bad)
    if source.format not in ("csv", "scsv", "jsonl"):
        raise InputError(f"expected inference data as .jsonl, .txt, .tsv or .csv, got {source.label}.")
    seen = BadRows(skip=bad.skip)  # the first rows are read twice, and counted once
    table = JsonTable(source, seen) if source.format == "jsonl" else SeparatedTable(source, seen, True)
    return iter(table.rows(_find_roles(table.names, source.label), bad))


def _read_tabs(source: Source, bad: BadRows) -> Iterator[tuple[int, Sequence[object]]]:
    """Read a tab-separated release, whose rows may lack the last columns: the number of annotators differs."""
    lines = without_blanks(source.label, split_at_tabs(source, bad), bad)
    names = [str(name) for name in next(lines, (0, ()))[1]]
    wanted = _find_roles(names, source.label)
    for number, values in lines:
        if max(wanted) < len(values) <= len(names):
            yield number, [values[at] for at in wanted]
        else:
            report_width(bad, f"{source.label}:{number}", len(names), len(values), "tab")


def _find_roles(names: Sequence[str], file: str) -> list[int]:
    """Return the positions of premise, hypothesis and label by the names that the releases give them."""
    if not names:
        raise InputError(f"{file} is empty: it has no row to read.")
    known, found = [plain(name) for name in names], []
    for role, called in _ROLES:
        places = [known.index(name) for name in called if name in known]
        if not places:
            listed = ", ".join(names)
            raise InputError(f"{file} has no column for {role} ({' or '.join(called)}). Its columns: {listed}.")
        found.append(places[0])
    return found


def _read_pair(values: Sequence[object], where: str, bad: BadRows, tally: Tally) -> tuple[str, str, str] | None:
    """Return a row's pair; a row without a gold label is counted, one that makes no sense is bad."""
    if not all(isinstance(value, (str, int)) and not isinstance(value, bool) for value in values):
        message = "expected a premise, a hypothesis and a label, got a row in which one is missing or not text"
        bad.report(where, "not a premise, a hypothesis and a label", message)
        return None
    premise, hypothesis, label = (str(value).strip() for value in values)
    if label.lower() in _NO_LABEL:
        tally.skipped[UNDECIDED] += 1
    elif label.lower() not in LABEL_OF:
        raise InputError(
            f"expected a label ({', '.join(LABELS)}, a first letter, 0, 1, 2, or - for none), got {label!r} ({where})."
        )
    elif not premise or not hypothesis:
        tally.skipped["empty text"] += 1
    else:
        return premise, hypothesis, LABEL_OF[label.lower()]
    return None
