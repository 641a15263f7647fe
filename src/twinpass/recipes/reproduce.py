"""Reproduce tables and figures of the paper: every row with every seed, ours beside the paper's.

What is finished is not done again: the same call resumes where it was stopped, and rows that tables share are trained
once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinpass.display import Displayed, Grid
from twinpass.encoder.runtime import check_precision, choose_device
from twinpass.errors import ConfigError, InputError, OutputError, TwinpassError
from twinpass.files import explaining, locked
from twinpass.log import Evaluated, Stepped
from twinpass.progress import Log, Progress, ignore, silent
from twinpass.provenance import provenance
from twinpass.recipes.lab import Lab
from twinpass.recipes.measures import READS, Found, best_setting, measure_once
from twinpass.recipes.model_specs import ModelSpec, Training
from twinpass.recipes.recipe import ALL, Recipe, Row
from twinpass.recipes.released import released as with_released
from twinpass.recipes.report import Cell, Outcome, RowOutcome, number, write_report
from twinpass.recipes.scales import ENCODERS, SCALES, Scale
from twinpass.recipes.smoke_data import make_data, make_encoder
from twinpass.recipes.store import describe
from twinpass.recipes.tables import load_recipes

LINES = 4  # for the steps of a training; a table has dozens of trainings


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
    track: str | None = None,
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
    one at the scale smoke. `steps` makes trainings longer or shorter than the scale does. `track` is the splits of
    STS-B that Figure 2 follows, all (the paper's) or dev, a fifth of the time. `encoder` is used in place of the
    paper's; at the scale paper it is a folder that holds the paper's. With `released`, nothing is trained: the
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
    for name, value, least in (("seeds", seeds, 1), ("steps", steps, 2)):
        if value is not None and value < least:
            raise ConfigError(f"{name} is {value}; expected at least {least}.")
    if released:
        if scale not in (None, "paper"):
            raise ConfigError(f"released checkpoints are evaluated in full, at the scale paper, not at {scale!r}.")
        if precision is not None:
            raise ConfigError("released checkpoints are not trained here, so there is no precision to train in.")
        if track is not None:
            raise ConfigError("released checkpoints are not trained here, so there is nothing to track.")
        chosen = [with_released(recipe) for recipe in chosen]
    if precision is not None:  # now: later, every training would fail for it
        check_precision(precision, choose_device(device))
    size = SCALES[scale or ("paper" if released else "small")]
    size = size if steps is None else size.of_steps(steps)
    size = size if track is None else size.tracking(track)
    generated = data is None
    used = range(seed, seed + (size.seeds if seeds is None else seeds))
    data, encoder = _inputs(size, None if data is None else Path(data), encoder, Path(output), released=released)
    lab = Lab(
        scale=size,
        data=data,
        output=Path(output),
        encoder=encoder,
        device=device,
        precision=precision,
        wordnet=wordnet,
        trust_pickle=trust_pickle,
        released=released,
        log=log,
        on_event=lambda event: _log_training(event, log),
    )
    rows: dict[str, dict[str, RowOutcome]] = {recipe.name: {} for recipe in chosen}
    outcomes: dict[str, Outcome] = {}

    def run(recipe: Recipe) -> None:
        with warnings.catch_warnings():
            if generated:  # the user knows that this is not the real data
                warnings.filterwarnings("ignore", message=".*is not SentEval's copy")
            outcome = run_recipe(recipe, lab, seeds=used, done=rows[recipe.name], progress=progress)
        outcomes[recipe.name] = outcome
        if not outcome.is_measured:  # a table of dashes must not overwrite an earlier report
            log(f"{recipe.name}: no row could be measured, so no report is written")
            return
        log(f"{recipe.name}: written to {write_report(outcome, lab.reports)[0]} and beside it")
        if on_outcome is not None:
            on_outcome(outcome)

    # Other processes may work on the last rows of a table: its turn comes again after the other tables.
    lab.store.share(chosen, run, log=log)
    if not any(outcome.is_measured for outcome in outcomes.values()):
        notes = [row.note for outcome in outcomes.values() for row in outcome.rows if row.note]
        raise InputError(f"no row could be measured. {notes[0] if notes else ''}".strip())
    return Reproduction(tuple(outcomes[recipe.name] for recipe in chosen))


def _inputs(
    scale: Scale, data: Path | None, encoder: str | None, output: Path, *, released: bool
) -> tuple[Path, str | None]:
    """Return the data folder and the encoder, generated at the scale smoke, or say what is missing."""
    if scale.name == "smoke":
        with explaining(output):
            output.mkdir(parents=True, exist_ok=True)
        with locked(output / ".smoke.lock"):  # processes that start together use one copy
            data = data or make_data(output / "smoke-data")
            encoder = encoder or str(make_encoder(output / "tiny-encoder"))
    if data is None:
        needs = "--released needs the evaluation sets" if released else f"the scale {scale.name!r} needs real text"
        raise ConfigError(f"{needs}: pass the folder with --data. docs/reproduce.md lists its files.")
    if not data.is_dir():
        raise ConfigError(f"no folder {data}. Pass the data folder with --data.")
    scale.check_encoder(encoder)
    return data, encoder


def _log_training(event: object, log: Log) -> None:
    """Show how far a training is: its loss now and then, and every score on the dev set."""
    if isinstance(event, Evaluated):
        log(f"  step {event.step}: {event.score:.2f} on STS-B dev")
    elif isinstance(event, Stepped) and (event.step == event.steps or event.step % -(-event.steps // LINES) == 0):
        speed = f"{event.sentences_per_second:.0f} sentences/s"
        left = f", {event.seconds_left:,.0f} s left" if event.step < event.steps else ""
        log(f"  step {event.step} of {event.steps}: loss {event.loss:.4f}, {speed}{left}")


def run_recipe(
    recipe: Recipe,
    lab: Lab,
    *,
    seeds: Sequence[int],
    done: dict[str, RowOutcome] | None = None,
    progress: Progress = silent,
) -> Outcome:
    """Measure every row that the lab's scale and data allow, but for those in `done`, which gains the others."""
    rows = {} if done is None else done
    _run_rows(recipe, lab, seeds, rows, progress)
    options = {
        "recipe": recipe.name,
        "scale": describe(lab.scale),
        "released": lab.released,
        "encoder": lab.encoder,
        "encoder_content": _encoder_contents(recipe, lab),
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
        facts=provenance(options=options)
        | {"corpora": text_facts(recipe, lab), "evaluation": _evaluation_files(recipe, lab)},
    )


def _encoder_contents(recipe: Recipe, lab: Lab) -> dict[str, str]:
    """Return the hash of each encoder that the recipe's rows were made with."""
    parts = [part for model in recipe.models(lab.scale) for part in model.parts()]
    names = [lab.encoder or ""]
    if not lab.scale.own_encoder:
        used = {part.encoder for part in parts}
        names = [str(Path(lab.encoder) / name) if lab.encoder else name for name in ENCODERS if name in used]
    return {name: lab.contents[name] for name in names if name in lab.contents}


def _evaluation_files(recipe: Recipe, lab: Lab) -> dict[str, str]:
    """Return the SHA-256 of each evaluation file that the recipe's measures read."""
    measures = dict.fromkeys([recipe.measure, *(row.measure for row in recipe.rows if row.measure)])
    found: dict[str, str] = {}
    for tasks in dict.fromkeys(READS.get(name, "STS-B") for name in measures):
        with contextlib.suppress(TwinpassError):  # a row without its evaluation set says why
            found |= lab.evaluation_content(tasks)
    return found


def _run_rows(recipe: Recipe, lab: Lab, seeds: Sequence[int], found: dict[str, RowOutcome], progress: Progress) -> None:
    """Measure rows in their order; those that another process works on come last, when it may be done with them."""
    left = [(place, row) for place, row in enumerate(recipe.rows, start=1) if row.key not in found]
    with progress(f"rows of {recipe.name}", total=len(left)) as advance:

        def run(numbered: tuple[int, Row]) -> None:
            place, row = numbered
            lab.log(f"{recipe.name}, row {place} of {len(recipe.rows)}: {row.label}")
            found[row.key] = _run_row(recipe, row, lab, seeds)
            advance(1)

        lab.store.share(left, run, log=lab.log)


def _run_row(recipe: Recipe, row: Row, lab: Lab, seeds: Sequence[int]) -> RowOutcome:
    outcome = RowOutcome(row=row, note=row.why_quoted)
    measured: dict[str, dict[int, Found]] = {}
    checkpoints: dict[str, list[str]] = {}
    for column, model in row.models.items():
        if lab.scale.runs(model.encoder):
            measured[column] = {}
        else:
            outcome.note = "only at the paper's scale: another encoder"

    def measure(place: tuple[str, int]) -> None:
        column, seed = place
        if column not in measured:  # another seed of it has failed
            return
        try:
            model = row.models[column]
            measured[column][seed] = _measure(recipe, row, model, lab, seed)
            checkpoints[column] = [stated for part in model.parts() if (stated := part.stated(lab))]
        except OutputError:
            raise
        except TwinpassError as error:  # text or a model that is not here, or a run that failed
            outcome.note = str(error)
            lab.log(f"  skipped: {error}")
            del measured[column]

    used = {column: seeds if row.models[column].is_random else seeds[:1] for column in measured}
    lab.store.share([(column, seed) for column in used for seed in used[column]], measure)
    numbers: dict[str, list[float]] = {}
    for column, of_seeds in measured.items():
        found = [of_seeds[seed] for seed in used[column]]
        outcome.more[column] = [each.more for each in found]
        outcome.checkpoints += checkpoints[column]
        values = [each.values for each in found]
        if (row.measure or recipe.measure) == "grid":  # one setting for all seeds: the mean of several is none
            values = [best_setting(outcome.more[column])]
        for each in values:
            for place, value in _by_column(recipe, row, column, each).items():
                numbers.setdefault(place, []).append(value)
    for column in recipe.columns:
        paper = recipe.published(row, column)
        outcome.cells[column] = Cell(ours=tuple(numbers.get(column, ())), paper=paper)
    return outcome


def _by_column(recipe: Recipe, row: Row, column: str, values: dict[str, float]) -> dict[str, float]:
    """Return a measure's numbers by the columns they belong to."""
    if row.pick is not None:
        return {next(iter(recipe.columns)): values[row.pick]}
    if column != ALL:  # a measure of one number fills the column of its model
        return {column: next(iter(values.values()))}
    return {name: value for name, value in values.items() if name in recipe.columns}


def _measure(recipe: Recipe, row: Row, model: ModelSpec, lab: Lab, seed: int) -> Found:
    """Measure what a row is about, and show it."""
    found = measure_once(lab, row.measure or recipe.measure, model, seed)
    lab.log(
        "  " + ", ".join(f"{column} {number(value, counts=recipe.counts)}" for column, value in found.values.items())
    )
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
    trainings = [part for part in parts if isinstance(part, Training) and scale.runs(part.encoder)]
    passes = {part.identity(scale): part.passes(scale) for part in trainings}
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
        of = f" (of {self.scale.seeds} by default)" if self.scale.seeds > 1 else ""
        title = f"one seed{of} at the scale {self.scale.name}: {self.scale.about}"
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


def list_recipes(scale: str = "small", *, steps: int | None = None, track: str | None = None) -> Listing:
    """Return every table and figure that `reproduce` knows, with the cost of one seed at a scale."""
    size, recipes = SCALES[scale], load_recipes()
    size = size if steps is None else size.of_steps(steps)
    size = size if track is None else size.tracking(track)
    return Listing(size, {name: estimate(recipes[name], size) for name in recipes})
