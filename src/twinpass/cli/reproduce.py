"""The verb `reproduce`: a table or figure of the paper, ours beside theirs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinpass.cli.console import Console, verb
from twinpass.errors import ConfigError, InputError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from twinpass.recipes.recipe import Recipe
    from twinpass.recipes.reproduce import Outcome
    from twinpass.registry import Registry


@verb
def reproduce(
    console: Console,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="table-1 ... table-e1, figure-2 ... figure-g1.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every table and figure.")] = False,
    scale: Annotated[str, typer.Option(help="paper, small (2 cores) or smoke (seconds).")] = "small",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, from --seed on.")] = 1,
    encoder: Annotated[
        str | None,
        typer.Option(help="The encoder in the paper's place; at the paper's scale, a folder that holds its encoders."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="The folder of training text and evaluation sets (docs/reproduce.md).")
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for models, scores and reports; kept, so that it resumes.")
    ] = Path("reproduction"),
    wordnet: Annotated[str | None, typer.Option(help="WordNet's folder, for synonyms.")] = None,
) -> None:
    """Run a table or figure of the paper and print ours beside theirs.

    Without a name, the list of them with what each costs. What is finished is not done again: the same command goes on
    where it was stopped, and rows that tables share are trained once.
    """
    from twinpass.recipes.report import to_document, write_report
    from twinpass.recipes.reproduce import reproduce as run_recipe
    from twinpass.recipes.tables import load_recipes

    recipes = load_recipes()
    if not names and not everything:
        document, table = _list(recipes, scale)
        console.result(document, human=table)
        return
    chosen = [recipes[name] for name in (recipes if everything else names or [])]
    lab = _open_lab(console, scale=scale, encoder=encoder, data=data, output=output, wordnet=wordnet)
    outcomes = []
    for recipe in chosen:
        outcome = run_recipe(recipe, lab, seeds=range(console.seed, console.seed + seeds))
        outcomes.append(outcome)
        if not _measured(outcome):  # a table of dashes must not stand in the place of an earlier report
            console.log(f"{recipe.name}: no row could be measured, so no report is written")
            continue
        written = write_report(outcome, lab.reports)
        console.log(f"{recipe.name}: written to {written[0]} and beside it")
        if not console.json:
            console.result({}, human=_picture(outcome))
    _check_measured(outcomes)
    if console.json:
        console.result({"recipes": [to_document(outcome) for outcome in outcomes]})


def _open_lab(
    console: Console, *, scale: str, encoder: str | None, data: Path | None, output: Path, wordnet: str | None
) -> Any:
    from twinpass.encoder.load import find_folder
    from twinpass.recipes.lab import Lab
    from twinpass.recipes.made_up import make_data, make_encoder
    from twinpass.recipes.scales import SCALES

    size = SCALES[scale]
    if size.name == "smoke":
        data = data or make_data(output / "made-up-data")
        encoder = encoder or str(make_encoder(output / "made-up-encoder"))
    if data is None:
        raise ConfigError(
            f"the scale {scale!r} wants real text: name its folder with --data. docs/reproduce.md says what it holds."
        )
    if not data.is_dir():
        raise ConfigError(f"no folder {data}. Name the folder of the data with --data.")
    if size.own_encoder:  # refused before any row is tried: each would be left out for it
        find_folder(size.need_encoder(encoder))
    elif encoder is not None and not Path(encoder).is_dir():
        raise ConfigError(
            f"no folder {encoder}. At the scale {scale!r} --encoder names a folder in which the paper's encoders lie "
            "under their names on the hub; without it they are fetched from there."
        )
    return Lab(
        scale=size,
        data=data,
        output=output,
        encoder=encoder,
        device=console.device,
        wordnet=wordnet,
        log=console.log,
        on_event=_show_steps(console),
    )


def _check_measured(outcomes: list[Outcome]) -> None:
    """Fail where not a single row could be measured: a table of dashes is no success."""
    if not any(map(_measured, outcomes)):
        notes = [row.note for outcome in outcomes for row in outcome.rows if row.note]
        raise InputError(f"no row could be measured. {notes[0] if notes else ''}".strip())


def _measured(outcome: Outcome) -> bool:
    return any(cell.ours for row in outcome.rows for cell in row.cells.values())


def _show_steps(console: Console) -> Any:
    """Say now and then how a training goes; a table has dozens of them, so one line each is enough."""

    def show(event: Any) -> None:
        if type(event).__name__ == "Stepped" and (event.step == event.steps or event.step % 250 == 0):
            console.log(
                f"  step {event.step} of {event.steps}: loss {event.loss:.4f}, "
                f"{event.sentences_per_second:.0f} sentences/s"
            )

    return show


def _list(recipes: Registry[Recipe], scale: str) -> tuple[dict[str, Any], Table]:
    """List the recipes with what one seed of each costs at a scale."""
    from dataclasses import asdict

    from rich.table import Table

    from twinpass.recipes.reproduce import estimate
    from twinpass.recipes.scales import SCALES

    size = SCALES[scale]
    costs = {name: estimate(recipes[name], size) for name in recipes}
    table = Table(title=f"one seed at the scale {size.name}: {size.says}", title_justify="left")
    for heading in ("name", "what", "rows", "trainings", "sentences encoded in them", "about"):
        table.add_column(heading, justify="left" if heading in ("name", "what") else "right")
    for name, cost in costs.items():
        recipe = recipes[name]
        table.add_row(
            name,
            recipe.title,
            str(len(recipe.rows)),
            str(cost.trainings),
            f"{cost.passes:,}",
            "by your GPU" if cost.hours is None else _time(cost.hours),
        )
    found = [{"name": n, "title": recipes[n].title, **asdict(cost)} for n, cost in costs.items()]
    return {"scale": size.name, "recipes": found}, table


def _time(hours: float) -> str:
    minutes = hours * 60
    return f"{hours:.1f} h" if hours >= 1 else f"{minutes:.0f} min" if minutes >= 1 else "seconds"


def _picture(outcome: Outcome) -> RenderableType:
    from rich.console import Group
    from rich.table import Table

    from twinpass.recipes.report import headings, lines, notes

    table = Table(title=f"{outcome.recipe.name}: {outcome.recipe.title}", title_justify="left")
    for place, heading in enumerate(headings(outcome)):
        table.add_column(heading, justify="right" if place else "left")
    for line in lines(outcome):
        table.add_row(*line)
    return Group(table, *notes(outcome), *_answers(outcome), "")


def _answers(outcome: Outcome) -> list[str]:
    """Return what was retrieved, where a table is made of texts."""
    if outcome.recipe.measure != "retrieval":
        return []
    from twinpass.recipes.tables.table_8 import PAPER_ANSWERS

    found = []
    for row in outcome.rows:
        for query, answers in (next(iter(row.more.values()))[0] if row.more else {}).items():
            found.append(f"\n{row.row.label}, query: {query}")
            printed = PAPER_ANSWERS[query][row.row.key]
            for place, (answer, theirs) in enumerate(zip(answers, printed, strict=False), start=1):
                found.append(f"  #{place} {answer['cosine']:.3f} {answer['text']}   [paper: {theirs}]")
    return found
