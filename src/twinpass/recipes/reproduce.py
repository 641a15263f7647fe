"""Reproduce tables and figures of the paper: every row with every seed, ours beside the paper's.

What is finished is not done again: the same call resumes where it was stopped, and rows that tables share are trained
once.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinpass.display import Displayed, Grid
from twinpass.encoder.runtime import check_precision, choose_device
from twinpass.errors import ConfigError, InputError, OutputError, TwinpassError
from twinpass.log import Stepped
from twinpass.progress import Log, Progress, ignore, silent
from twinpass.provenance import provenance
from twinpass.recipes.lab import Lab
from twinpass.recipes.measures import MEASURES, PROTOCOL, Found, best_setting
from twinpass.recipes.recipe import ALL, ModelSpec, Recipe, Row, Training
from twinpass.recipes.released import Released
from twinpass.recipes.released import released as with_released
from twinpass.recipes.report import Cell, Outcome, RowOutcome, write_report
from twinpass.recipes.scales import SCALES, Scale
from twinpass.recipes.smoke_data import make_data, make_encoder
from twinpass.recipes.store import Busy, describe, key_of
from twinpass.recipes.tables import load_recipes
from twinpass.training.processes import explaining_memory, memory_of

STEPS_BETWEEN_LINES = 250  # of a training; a table has dozens of them


@dataclass(frozen=True, repr=False)
class Reproduction(Displayed):
    """What came of one or more recipes."""

    outcomes: tuple[Outcome, ...]

    def __getitem__(self, name: str) -> Outcome:
        return {outcome.recipe.name: outcome for outcome in self.outcomes}[name]

    def grids(self) -> list[Grid]:
        """Return the tables of every recipe."""
        return [grid for outcome in self.outcomes for grid in outcome.grids()]

    def to_dict(self) -> dict[str, Any]:
        """Return every recipe as plain data."""
        return {"recipes": [outcome.to_dict() for outcome in self.outcomes]}

    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary per cell of every table."""
        return [record for outcome in self.outcomes for record in outcome.records()]


def reproduce(
    *names: str,
    scale: str | None = None,
    released: bool = False,
    seeds: int | None = None,
    seed: int = 42,
    steps: int | None = None,
    encoder: str | None = None,
    data: str | Path | None = None,
    output: str | Path = "reproduction",
    wordnet: str | None = None,
    trust_pickle: bool = False,
    device: str = "auto",
    precision: str | None = None,
    progress: Progress = silent,
    log: Log = ignore,
    on_outcome: Callable[[Outcome], None] | None = None,
) -> Reproduction:
    """Run tables and figures of the paper (table-1 ... figure-g1), and write a report of each.

    `scale` is paper, small (two CPU cores, the default) or smoke (seconds, with generated text and a tiny encoder
    unless `data` and `encoder` are given). The seeds are `seed` and those after it, `seeds` in all: three by default,
    one at the scale smoke. `steps` makes trainings longer or shorter than the scale does. `encoder` is used in place
    of the paper's; at the scale paper it is a folder that holds the paper's. With `released`, nothing is trained: the
    checkpoints that authors released are evaluated, from the hub or from `encoder`, a folder that holds them under
    their hub names (`trust_pickle` for those without safetensors). `precision` is the number format of the trainings:
    fp32 by default, and at the scale paper bf16 or fp16 on a GPU; models are evaluated in fp32. `data` is the folder of
    training text and evaluation sets (docs/reproduce.md), `output` keeps models, scores and reports. `on_outcome` is
    called after each recipe of which at least one row could be measured; if none could, an InputError says why.
    """
    recipes = load_recipes()
    chosen = [recipes[name] for name in names]
    if not chosen:
        raise ConfigError(f"no table or figure was named. Known: {', '.join(recipes)}.")
    if released:
        if scale not in (None, "paper"):
            raise ConfigError(f"released checkpoints are evaluated in full, at the scale paper, not at {scale!r}.")
        if precision is not None:
            raise ConfigError("released checkpoints are not trained here, so there is no precision to train in.")
        chosen = [with_released(recipe) for recipe in chosen]
    if precision is not None:  # now: later, every training would fail for it
        check_precision(precision, choose_device(device))
    size = SCALES[scale or ("paper" if released else "small")]
    size = size if steps is None else size.of_steps(steps)
    generated = data is None
    count = size.seeds if seeds is None else seeds
    data, encoder = _inputs(size, None if data is None else Path(data), encoder, Path(output))
    lab = Lab(
        scale=size,
        data=data,
        output=Path(output),
        encoder=encoder,
        device=device,
        precision=precision,
        wordnet=wordnet,
        trust_pickle=trust_pickle,
        log=log,
        on_event=lambda event: _log_step(event, log),
    )
    outcomes = []
    for recipe in chosen:
        with warnings.catch_warnings():
            if generated:  # the user knows that this is not the real data
                warnings.filterwarnings("ignore", message=".*is not SentEval's copy")
            outcome = run_recipe(recipe, lab, seeds=range(seed, seed + count), progress=progress)
        outcomes.append(outcome)
        if not outcome.is_measured:  # a table of dashes must not overwrite an earlier report
            log(f"{recipe.name}: no row could be measured, so no report is written")
            continue
        log(f"{recipe.name}: written to {write_report(outcome, lab.reports)[0]} and beside it")
        if on_outcome is not None:
            on_outcome(outcome)
    if not any(outcome.is_measured for outcome in outcomes):
        notes = [row.note for outcome in outcomes for row in outcome.rows if row.note]
        raise InputError(f"no row could be measured. {notes[0] if notes else ''}".strip())
    return Reproduction(tuple(outcomes))


def _inputs(scale: Scale, data: Path | None, encoder: str | None, output: Path) -> tuple[Path, str | None]:
    """Return the data folder and the encoder, generated at the scale smoke, or say what is missing."""
    if scale.name == "smoke":
        data = data or make_data(output / "smoke-data")
        encoder = encoder or str(make_encoder(output / "tiny-encoder"))
    if data is None:
        raise ConfigError(
            f"the scale {scale.name!r} needs real text: pass its folder with --data. docs/reproduce.md lists its files."
        )
    if not data.is_dir():
        raise ConfigError(f"no folder {data}. Pass the data folder with --data.")
    scale.check_encoder(encoder)
    return data, encoder


def _log_step(event: object, log: Log) -> None:
    if isinstance(event, Stepped) and (event.step == event.steps or event.step % STEPS_BETWEEN_LINES == 0):
        speed = f"{event.sentences_per_second:.0f} sentences/s"
        log(f"  step {event.step} of {event.steps}: loss {event.loss:.4f}, {speed}")


def run_recipe(recipe: Recipe, lab: Lab, *, seeds: Sequence[int], progress: Progress = silent) -> Outcome:
    """Measure every row that the lab's scale and data allow."""
    content = lab.encoder_content  # first: with an encoder that changed, no rows of the old one must be found
    rows = _run_rows(recipe, lab, seeds, progress)
    options = {
        "recipe": recipe.name,
        "scale": describe(lab.scale),
        "encoder": lab.encoder,
        "encoder_content": content,
        "precision": lab.precision,
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
        facts=provenance(options=options) | {"corpora": text_facts(recipe, lab)},
    )


def _run_rows(recipe: Recipe, lab: Lab, seeds: Sequence[int], progress: Progress) -> dict[str, RowOutcome]:
    """Measure rows in their order; those that another process works on come last, when it may be done with them."""
    found: dict[str, RowOutcome] = {}
    with progress(f"rows of {recipe.name}", total=len(recipe.rows)) as advance:
        for wait in (False, True):
            for place, row in enumerate(recipe.rows, start=1):
                if row.key in found:
                    continue
                lab.log(f"{recipe.name}, row {place} of {len(recipe.rows)}: {row.label}")
                try:
                    found[row.key] = _run_row(recipe, row, lab, seeds, wait=wait)
                    advance(1)
                except Busy:
                    lab.log("  another process works on it: postponed")
    return found


def _run_row(recipe: Recipe, row: Row, lab: Lab, seeds: Sequence[int], *, wait: bool) -> RowOutcome:
    outcome = RowOutcome(row=row, note=row.why_quoted)
    found: dict[str, list[float]] = {}
    for column, model in row.models.items():
        if not lab.scale.runs(model.encoder):
            outcome.note = "only at the paper's scale: another encoder"
            continue
        try:
            used = seeds if model.is_random else seeds[:1]
            measured = [_measure(recipe, row, model, lab, seed, wait=wait) for seed in used]
        except OutputError:
            raise
        except TwinpassError as error:  # text or a model that is not here, or a run that failed
            outcome.note = str(error)
            lab.log(f"  skipped: {error}")
            continue
        outcome.more[column] = [each.more for each in measured]
        outcome.checkpoints += [part.stated(lab) for part in model.parts() if isinstance(part, Released)]
        values = [each.values for each in measured]
        if (row.measure or recipe.measure) == "grid":  # one setting for all seeds: the mean of several is none
            values = [best_setting([each.more for each in measured])]
        for each in values:
            for place, value in _by_column(recipe, row, column, each).items():
                found.setdefault(place, []).append(value)
    for column in recipe.columns:
        paper = recipe.published(row, column)
        outcome.cells[column] = Cell(ours=tuple(found.get(column, ())), paper=paper)
    return outcome


def _by_column(recipe: Recipe, row: Row, column: str, values: dict[str, float]) -> dict[str, float]:
    """Return a measure's numbers by the columns they belong to."""
    if row.pick is not None:
        return {next(iter(recipe.columns)): values[row.pick]}
    if column != ALL:  # a measure of one number fills the column of its model
        return {column: next(iter(values.values()))}
    return {name: value for name, value in values.items() if name in recipe.columns}


def _measure(recipe: Recipe, row: Row, model: ModelSpec, lab: Lab, seed: int, *, wait: bool) -> Found:
    """Measure a model, or find that it was measured before."""
    name = row.measure or recipe.measure
    scale, subject = lab.scale, model.key(lab, seed)
    judged: dict[str, Any] = {"data": str(lab.data), "rows": scale.evaluated_rows, "captions": scale.captions}
    key = key_of({"subject": subject, "measure": name, "protocol": PROTOCOL} | judged)
    with lab.store.locked(key, wait=wait):
        known = lab.store.read_score(key)
        if known is not None:
            # JSON has null for NaN.
            values = {name: math.nan if value is None else value for name, value in known["values"].items()}
            return Found(values, known["more"])
        with explaining_memory(lambda: f"{memory_of(choose_device(lab.device))} ran out. Try another machine."):
            found = MEASURES[name](lab, model, seed)
        facts = provenance(options={"model": describe(model), "measure": name, "seed": seed})
        lab.store.write_score(key, facts | dataclasses.asdict(found))
    lab.log("  " + ", ".join(f"{column} {value:.2f}" for column, value in found.values.items()))
    return found


def text_facts(recipe: Recipe, lab: Lab) -> dict[str, dict[str, Any]]:
    """Return, for each text that the recipe's rows use at this scale, its files, its rows and the rows skipped."""
    parts = [part for model in recipe.models(lab.scale) for part in model.parts()]
    found: dict[str, dict[str, Any] | None] = {}
    for name, rows in dict.fromkeys(use for part in parts for use in part.corpora(lab.scale)):
        title = name if rows == lab.scale.rows else f"{name}, at most {rows:,}"
        found[title] = lab.corpora.sized(rows).facts(name)
    for kind in [*(kind for part in parts for kind in part.files), *["flickr"] * (recipe.measure == "retrieval")]:
        found[kind] = lab.corpora.file_facts(kind)
    return {name: facts for name, facts in found.items() if facts is not None}  # a row without its text says why


@dataclass(frozen=True)
class Cost:
    """What a recipe takes: trainings, sentences through the encoder in them, hours at the scale's rate."""

    trainings: int
    passes: int
    hours: float | None

    @property
    def time(self) -> str:
        """The hours in words."""
        if self.hours is None:
            return "depends on the GPU"
        minutes = self.hours * 60
        return f"{self.hours:.1f} h" if self.hours >= 1 else f"{minutes:.0f} min" if minutes >= 1 else "seconds"


def estimate(recipe: Recipe, scale: Scale) -> Cost:
    """Estimate one seed of a recipe; equal trainings are counted once."""
    parts = [part for model in recipe.models(scale) for part in model.parts()]
    passes = {part.identity(scale): part.passes(scale) for part in parts if isinstance(part, Training)}
    total, rate = recipe.trainings_per_model * sum(passes.values()), scale.passes_per_second
    return Cost(recipe.trainings_per_model * len(passes), total, None if rate is None else total / rate / 3600)


@dataclass(frozen=True, repr=False)
class Listing(Displayed):
    """Every table and figure, with the cost of one seed at a scale."""

    scale: Scale
    costs: dict[str, Cost]

    def grids(self) -> list[Grid]:
        """Return one table."""
        recipes = load_recipes()
        rows = [
            [
                name,
                recipes[name].title,
                str(len(recipes[name].rows)),
                str(cost.trainings),
                f"{cost.passes:,}",
                cost.time,
            ]
            for name, cost in self.costs.items()
        ]
        title = f"one seed at the scale {self.scale.name}: {self.scale.about}"
        columns = ["name", "what", "rows", "trainings", "sentences encoded in training", "time"]
        return [Grid(title=title, columns=columns, rows=rows, words=("what",))]

    def to_dict(self) -> dict[str, Any]:
        """Return the scale's name and the records."""
        return {"scale": self.scale.name, "recipes": self.records()}

    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary per recipe."""
        recipes = load_recipes()
        return [
            {"name": name, "title": recipes[name].title, "rows": len(recipes[name].rows), **dataclasses.asdict(cost)}
            for name, cost in self.costs.items()
        ]


def list_recipes(scale: str = "small") -> Listing:
    """Return every table and figure that `reproduce` knows, with the cost of one seed at a scale."""
    size, recipes = SCALES[scale], load_recipes()
    return Listing(size, {name: estimate(recipes[name], size) for name in recipes})
