"""The verb `reproduce`: a table or figure of the paper, ours beside theirs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from twinpass.cli.completion import PRECISIONS, RECIPES, SCALES, values
from twinpass.cli.console import Console, verb
from twinpass.errors import ConfigError


@dataclass(frozen=True)
class Arithmetic:
    """How trainings compute. A group of its own: `verb` prepares the processor for the precision of a group."""

    precision: Annotated[
        str | None,
        typer.Option(
            autocompletion=values(PRECISIONS[:3]),  # int8 is for encoding only
            help="Number format of the trainings: fp32, bf16 or fp16. Default: fp32; at scale paper what the GPU has.",
        ),
    ] = None


@verb
def reproduce(
    console: Console,
    arithmetic: Arithmetic,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            autocompletion=values(RECIPES),
            help="table-1 ... table-e1, figure-2 ... figure-g1, in-text, after-simcse, more-kinds.",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every table and figure.")] = False,
    scale: Annotated[
        str | None,
        typer.Option(autocompletion=values(SCALES), help="paper, small (2 cores) or smoke (seconds). Default: small."),
    ] = None,
    released: Annotated[
        bool, typer.Option("--released", help="Train nothing: evaluate the checkpoints that authors released.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of seeds, from --seed on. Default: 3, at scale smoke 1.")
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(min=2, help="Training steps, of at most 64 rows each; not at scale paper. Default: 120, smoke 2."),
    ] = None,
    track: Annotated[
        str | None,
        typer.Option(
            autocompletion=values(("all", "dev")),
            help="Splits of STS-B that figure-2 follows: all, as in the paper, or dev, in a fifth of the time. "
            "Default: all.",
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="Encoder to use in place of the paper's; at scale paper, a folder that holds the paper's; with "
            "--released, a folder that holds the checkpoints, too."
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of training text and evaluation sets (docs/reproduce.md).")
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for models, scores and reports; reused to resume.")
    ] = Path("reproduction"),
    wordnet: Annotated[str | None, typer.Option(help="WordNet's folder, for synonyms.")] = None,
    trust_pickle: Annotated[
        bool, typer.Option("--trust-pickle", help="Load released checkpoints that are stored as pickle.")
    ] = False,
) -> None:
    """Run a table or figure of the paper and print ours beside theirs.

    Without a name, list all of them with their cost. What is finished is not done again: the same command resumes
    where it was stopped, and rows that tables share are trained once.
    """
    from twinpass.recipes.released import TABLES
    from twinpass.recipes.reproduce import list_recipes
    from twinpass.recipes.reproduce import reproduce as run

    if names and everything:
        raise ConfigError(f"expected names or --all, got both ({', '.join(names)} and --all). Leave one out.")
    if not names and not everything:
        if released:
            raise ConfigError(f"--released takes --all, or names: {', '.join(TABLES)}.")
        console.show(list_recipes(scale or "small", steps=steps, track=track))
        return
    found = run(
        *((TABLES if released else list_recipes().costs) if everything else names or []),
        scale=scale,
        released=released,
        seeds=seeds,
        seed=console.seed,
        steps=steps,
        track=track,
        encoder=encoder,
        data=data,
        output=output,
        wordnet=wordnet,
        trust_pickle=trust_pickle,
        device=console.device,
        precision=arithmetic.precision,
        progress=console.progress,
        log=console.log,
        on_outcome=None if console.json else console.show,
    )
    if console.json:
        console.show(found)
