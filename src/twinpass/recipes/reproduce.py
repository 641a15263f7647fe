"""Run a recipe: every row by every seed, what is done already left alone, ours beside the paper's."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from twinpass.encoder.runtime import choose_device
from twinpass.errors import OutputError, TwinpassError
from twinpass.provenance import provenance
from twinpass.recipes.accounts import account_for
from twinpass.recipes.agreement import Agreement, order_agreement
from twinpass.recipes.lab import Lab
from twinpass.recipes.measures import MEASURES, Found
from twinpass.recipes.recipe import ALL, Recipe, Row
from twinpass.recipes.scales import CT_STEPS, Scale, runs_at, scale_run
from twinpass.recipes.store import Busy, describe, key_of
from twinpass.recipes.subjects import Baseline, Fitted, Pooled, Subject, Trained, encoder_of
from twinpass.training.processes import explaining_memory, memory_of


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell: our numbers, one a seed, and the paper's."""

    ours: tuple[float, ...] = ()
    paper: float | None = None

    @property
    def mean(self) -> float | None:
        """The mean over seeds."""
        return statistics.fmean(self.ours) if self.ours else None

    @property
    def deviation(self) -> float | None:
        """The standard deviation over seeds, where there are several."""
        return statistics.stdev(self.ours) if len(self.ours) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        return None if self.mean is None or self.paper is None else self.mean - self.paper


@dataclass(kw_only=True)
class RowOutcome:
    """What came of a row."""

    row: Row
    cells: dict[str, Cell] = field(default_factory=dict)
    more: dict[str, list[Any]] = field(default_factory=dict)  # by column, one a seed
    note: str = ""  # why it has no number of ours, where it has none


@dataclass(kw_only=True)
class Outcome:
    """What came of a recipe."""

    recipe: Recipe
    scale: str
    encoder: str | None
    seeds: tuple[int, ...]
    rows: list[RowOutcome]
    facts: dict[str, Any]

    def agreement(self, column: str) -> Agreement | None:
        """Return whether our numbers of a column order the rows as the paper's do."""
        cells = [row.cells.get(column, Cell()) for row in self.rows]
        return order_agreement([cell.mean for cell in cells], [cell.paper for cell in cells])


def reproduce(recipe: Recipe, lab: Lab, *, seeds: Sequence[int]) -> Outcome:
    """Measure every row that this scale and this data allow."""
    content = lab.encoder_content  # looked at first: an encoder that changed finds no rows of the old one
    rows = _reproduce_rows(recipe, lab, seeds)
    options = {
        "recipe": recipe.name,
        "scale": describe(lab.scale),
        "encoder": lab.encoder,
        "encoder_content": content,
        "seeds": list(seeds),
        "data": str(lab.data),
        "protocol": recipe.protocol,
    }
    return Outcome(
        recipe=recipe,
        scale=lab.scale.name,
        encoder=lab.encoder,
        seeds=tuple(seeds),
        rows=[rows[row.key] for row in recipe.rows],
        facts=provenance(options=options) | {"corpora": account_for(recipe, lab.corpora, lab.scale)},
    )


def _reproduce_rows(recipe: Recipe, lab: Lab, seeds: Sequence[int]) -> dict[str, RowOutcome]:
    """Measure rows in their order; those that another process is at come last, when it may be done with them."""
    found: dict[str, RowOutcome] = {}
    for wait in (False, True):
        for number, row in enumerate(recipe.rows, start=1):
            if row.key in found:
                continue
            lab.log(f"{recipe.name}, row {number} of {len(recipe.rows)}: {row.label}")
            try:
                found[row.key] = _reproduce_row(recipe, row, lab, seeds, wait=wait)
            except Busy:
                lab.log("  another process is at it: later")
    return found


def _reproduce_row(recipe: Recipe, row: Row, lab: Lab, seeds: Sequence[int], *, wait: bool) -> RowOutcome:
    outcome = RowOutcome(row=row, note=row.why_quoted)
    found: dict[str, list[float]] = {}
    for column, subject in recipe.cells(row):
        if not runs_at(lab.scale, encoder_of(subject)):
            outcome.note = "at the paper's scale only: another encoder"
            continue
        try:
            used = seeds_of(subject, seeds)
            measured = [_measure(recipe, row, subject, lab, seed, wait=wait) for seed in used]
        except OutputError:
            raise
        except TwinpassError as error:  # text or a model that is not here, or a run that cannot go on
            outcome.note = str(error)
            lab.log(f"  left out: {error}")
            continue
        outcome.more[column] = [each.more for each in measured]
        for each in measured:
            for place, value in _placed(recipe, row, column, each.values).items():
                found.setdefault(place, []).append(value)
    for column in recipe.columns:
        paper = recipe.published(row.key, column)
        outcome.cells[column] = Cell(ours=tuple(found.get(column, ())), paper=paper)
    return outcome


def _placed(recipe: Recipe, row: Row, column: str, values: dict[str, float]) -> dict[str, float]:
    """Return a measure's numbers by the columns they stand in."""
    if row.pick is not None:
        return {next(iter(recipe.columns)): values[row.pick]}
    if column != ALL:  # a measure of one number fills the column that the subject stands behind
        return {column: next(iter(values.values()))}
    return {name: value for name, value in values.items() if name in recipe.columns}


def _measure(recipe: Recipe, row: Row, subject: Subject, lab: Lab, seed: int, *, wait: bool) -> Found:
    """Measure a subject, or find that it was measured before."""
    name = row.measure or recipe.measure
    key = key_of(
        {"subject": lab.key(subject, seed), "measure": name, "data": str(lab.data), "judged": lab.scale.judged_rows}
    )
    with lab.store.locked(key, wait=wait):
        known = lab.store.read_score(key)
        if known is not None:
            # A file has null for what is not a number.
            values = {name: math.nan if value is None else value for name, value in known["values"].items()}
            return Found(values, known["more"])
        with explaining_memory(lambda: f"{memory_of(choose_device(lab.device))} ran out. Try it on another."):
            found = MEASURES[name](lab, subject, seed)
        facts = provenance(options={"subject": describe(subject), "measure": name, "seed": seed})
        lab.store.write_score(key, facts | dataclasses.asdict(found))
    lab.log("  " + ", ".join(f"{column} {value:.2f}" for column, value in found.values.items()))
    return found


def seeds_of(subject: Subject, seeds: Sequence[int]) -> Sequence[int]:
    """Return the seeds that make a difference: nothing is drawn at random where nothing is trained."""
    if isinstance(subject, (Trained, Baseline)):
        return seeds
    if isinstance(subject, Pooled):
        return seeds_of(subject.of, seeds)
    if isinstance(subject, Fitted):
        return seeds if subject.layer == "flow" else seeds_of(subject.of, seeds)
    return seeds[:1]


@dataclass(frozen=True)
class Cost:
    """What a recipe takes: trainings, sentences through the encoder in them, hours by the scale's rate."""

    trainings: int
    passes: int
    hours: float | None


def estimate(recipe: Recipe, scale: Scale) -> Cost:
    """Estimate one seed of a recipe; equal trainings are counted once."""
    subjects = {_identity(s, scale): s for row in recipe.rows for s in _trainings(row, scale)}
    each = recipe.trainings_per_subject
    passes = each * sum(_passes(subject, scale) for subject in subjects.values())
    rate = scale.passes_per_second
    return Cost(each * len(subjects), passes, None if rate is None else passes / rate / 3600)


def _identity(subject: Subject, scale: Scale) -> str:
    """Return what tells trainings apart at a scale: two may differ in nothing but what it makes smaller."""
    if not isinstance(subject, Trained):
        return key_of(describe(subject))
    run = scale_run(
        subject.run,
        scale,
        encoder="one" if scale.own_encoder else None,
        seed=0,
        device="auto",
        keeps_batch=subject.keeps_batch,
    )
    return key_of([describe(run), subject.corpus, _rows_of(subject, scale)])


def _trainings(row: Row, scale: Scale) -> Iterator[Subject]:
    for subject in row.subjects.values():
        inner: Subject | None = subject
        while inner is not None and runs_at(scale, encoder_of(subject)):
            if isinstance(inner, (Trained, Baseline)):
                yield inner
            inner = inner.of if isinstance(inner, (Fitted, Pooled)) else getattr(inner, "start", None)


# Rows of the paper's training corpora (Tables 4 and A.1), for the estimate.
_ROWS = {"wiki": 1_000_000, "wiki-documents": 1_000_000, "nli-triplets": 275_601, "qqp": 134_000, "flickr": 318_000}
_ROWS |= {"paranmt": 5_000_000, "nli-all": 942_000, "nli-labelled": 942_000, "nli-sentences": 942_000}


def _rows_of(subject: Trained | Baseline, scale: Scale) -> int:
    """Return how many rows of the paper's corpora it learns from."""
    most = subject.most if isinstance(subject, Trained) else None
    limits = [_ROWS.get(subject.corpus, 314_000), scale.rows, most]
    return min(limit for limit in limits if limit is not None)


def _passes(subject: Subject, scale: Scale) -> int:
    if isinstance(subject, Baseline) and subject.baseline == "ct" and scale.steps is None:
        return CT_STEPS * 2 * (1 + 8)  # two anchors a step, each with eight candidates
    rows = _rows_of(subject, scale) if isinstance(subject, (Trained, Baseline)) else 0
    if scale.steps is not None:
        rows = scale.steps * (scale.batch_size or 1)
    epochs = subject.run.epochs if isinstance(subject, Trained) and scale.steps is None else 1
    return rows * epochs * (3 if isinstance(subject, Trained) and "triplets" in subject.corpus else 2)
