"""Reading inference data as it is released: SNLI, MNLI and ANLI, and tables with a premise, hypothesis and label.

SNLI and MNLI come as .jsonl and as .txt (tabs, with a header), with sentence1, sentence2 and gold_label; ANLI as .jsonl
with context (or premise), hypothesis and label, a letter; the hub's copies have a number there. Any of them may be
packed with gzip or xz.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from twinpass.errors import InputError
from twinpass.text.columns import plain
from twinpass.text.readers import JsonTable
from twinpass.text.rows import BadRows
from twinpass.text.separated import SeparatedTable
from twinpass.text.sources import PACKINGS, find_sources, is_folder
from twinpass.text.streams import Source, read_lines

LABELS = ("entailment", "neutral", "contradiction")
UNDECIDED = "no gold label"
# As SNLI and MNLI spell them, as ANLI does, and as numbered releases do.
LABEL_OF = {name: name for name in LABELS} | {name[0]: name for name in LABELS}
LABEL_OF |= {str(number): name for number, name in enumerate(LABELS)}
_NO_LABEL = {"-", "", "-1"}  # the annotators did not agree
_ROLES = (
    ("a premise", ("sentence1", "premise", "context")),
    ("a hypothesis", ("sentence2", "hypothesis")),
    ("a label", ("gold_label", "label")),
)


class Labelled(NamedTuple):
    """A pair of sentences and what the first implies of the second."""

    premise: str
    hypothesis: str
    label: str


@dataclass
class Tally:
    """What one file held: pairs by label, and rows left out by reason."""

    source: str
    pairs: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)


def read_file(name: str | os.PathLike[str], tally: Tally, *, skip_bad_rows: bool = False) -> Iterator[Labelled]:
    """Yield the labelled pairs of a file (or of the files that match a pattern), counting as they go by."""
    bad = BadRows(skip=skip_bad_rows)
    for source in _find(os.fspath(name)):
        for line, values in _read_values(source, bad):
            where = f"{source.label}:{line}"
            pair = _read_pair(values, where, bad, tally)
            if pair is not None:
                tally.pairs[pair.label] += 1
                yield pair
    tally.skipped.update(bad.reasons)


def _find(name: str) -> list[Source]:
    if is_folder(name):
        raise InputError(f"{name} is a folder. Name the files in it: releases hold the same pairs in several formats.")
    bare = name.lower()
    for packing in PACKINGS:
        bare = bare.removesuffix(packing)
    return find_sources(f"tsv:{name}" if bare.endswith(".txt") else name)


def _read_values(source: Source, bad: BadRows) -> Iterator[tuple[int, Sequence[object]]]:
    """Yield (line, [premise, hypothesis, label]) of every row that can be read."""
    if source.format == "tsv":
        return _read_tabs(source, bad)
    if source.format not in ("csv", "jsonl"):
        raise InputError(f"{source.label}: inference data comes as .jsonl, .txt, .tsv or .csv.")
    seen = BadRows(skip=bad.skip)  # the first rows are read twice, and counted once
    table = JsonTable(source, seen) if source.format == "jsonl" else SeparatedTable(source, seen, True)
    return iter(table.rows(_find_roles(table.names, source.label), bad))


def _read_tabs(source: Source, bad: BadRows) -> Iterator[tuple[int, Sequence[object]]]:
    """Read a tab separated release, whose rows may end before the last columns: annotators differ in number."""
    names: list[str] = []
    wanted: list[int] = []
    for number, text, fault, detail in read_lines(source):
        values = text.rstrip("\r\n").split("\t")
        if not names:
            names, wanted = values, _find_roles(values, source.label)
        elif fault:
            bad.report(f"{source.label}:{number}", fault, detail)
        elif not max(wanted) < len(values) <= len(names):
            detail = f"wanted {len(names)}, found {len(values)}"
            bad.report(f"{source.label}:{number}", "wrong number of columns", detail)
        else:
            yield number, [values[at] for at in wanted]
    if not names:
        raise InputError(f"{source.label} is empty: it has no row to read.")


def _find_roles(names: Sequence[str], file: str) -> list[int]:
    """Return the positions of premise, hypothesis and label by the names that the releases give them."""
    known = [plain(name) for name in names]
    found = []
    for role, called in _ROLES:
        place = next((known.index(name) for name in called if name in known), None)
        if place is None:
            raise InputError(
                f"{file} has no column for {role} ({' or '.join(called)}). Its columns: {', '.join(names)}."
            )
        found.append(place)
    return found


def _read_pair(values: Sequence[object], where: str, bad: BadRows, tally: Tally) -> Labelled | None:
    """Return a row's pair; one without a gold label is counted, one that makes no sense is bad."""
    values = [str(value) if _is_number(value) else value for value in values]
    if not all(isinstance(value, str) for value in values):
        bad.report(where, "not a premise, a hypothesis and a label", "one is missing or no text")
        return None
    premise, hypothesis, label = (str(value).strip() for value in values)
    if label.lower() in _NO_LABEL:
        tally.skipped[UNDECIDED] += 1
        return None
    if label.lower() not in LABEL_OF:
        raise InputError(
            f"{where}: {label!r} is no label. Wanted {', '.join(LABELS)}, a first letter or 0, 1, 2, or - for none."
        )
    if not premise or not hypothesis:
        tally.skipped["empty text"] += 1
        return None
    return Labelled(premise, hypothesis, LABEL_OF[label.lower()])


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
