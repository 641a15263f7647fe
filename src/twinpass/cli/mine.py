"""The verb `mine`: pairs in, the same pairs with hard negatives out."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from twinpass.cli.console import Console, verb
from twinpass.cli.options import DataOptions, ModelOptions
from twinpass.errors import ConfigError


@verb
def mine(
    console: Console,
    chosen: ModelOptions,
    data: DataOptions,
    pairs: Annotated[
        str, typer.Argument(metavar="PAIRS", help="Two text columns, query and positive: a file, - or docs-pairs:.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="A .jsonl, .csv or .parquet file that train reads.")],
    candidates: Annotated[
        str | None,
        typer.Option("--from", help="Take negatives from this index or file instead of the pairs' second texts."),
    ] = None,
    negatives: Annotated[int, typer.Option("--negatives", "-n", min=1, help="Negatives per row, at most.")] = 1,
    ranks: Annotated[
        str, typer.Option(help="Ranks to take them from; 1 is the nearest text that is not a positive.")
    ] = "1-50",
    margin: Annotated[
        float, typer.Option(help="A negative's cosine is at least this much below the positive's.")
    ] = 0.0,
    relative_margin: Annotated[
        float, typer.Option(help="The same, as a share of the positive's cosine: 0.05 allows at most 95 % of it.")
    ] = 0.05,
    min_score: Annotated[float | None, typer.Option(help="The lowest cosine of a negative with its query.")] = None,
    max_score: Annotated[float | None, typer.Option(help="The highest cosine of a negative with its query.")] = None,
    choose: Annotated[str, typer.Option(help="nearest, or random: drawn from the ranks by --seed.")] = "nearest",
    dev: Annotated[
        str | None, typer.Option(help="docs: leaves out the held-out pairs, on which train --dev docs: scores.")
    ] = None,
) -> None:
    """Find hard negatives for pairs: texts that the model finds near the query and that are not its positive.

    A text too near to be safe (within the margins of the positive) may be a true answer that nobody marked, so it is
    left out. So are the query itself, all its positives, and texts that differ from them only in case or punctuation.
    """
    from twinpass.workflows.mine import mine as find_negatives

    console.show(
        find_negatives(
            pairs,
            output=output,
            model=chosen.model,
            candidates=candidates,
            negatives=negatives,
            ranks=_ranks(ranks),
            margin=margin,
            relative_margin=relative_margin,
            min_score=min_score,
            max_score=max_score,
            choose=choose,
            dev=dev,
            seed=console.seed,
            progress=console.progress,
            log=console.log,
            **asdict(data),
            **chosen.loading(console),
        )
    )


def _ranks(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    if not (first.isdecimal() and dash and last.isdecimal()):
        raise ConfigError(f"--ranks is {text!r}; expected the first and the last, such as 1-50.")
    return int(first), int(last)
