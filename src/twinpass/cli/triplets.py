"""The verb `triplets`: inference data in, training triplets with hard negatives out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twinpass.cli.console import Console, verb


@verb
def triplets(
    console: Console,
    files: Annotated[
        list[str], typer.Argument(metavar="FILES...", help="SNLI, MNLI or ANLI as released, or tables with a label.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="A .csv, .tsv, .jsonl or .parquet file.")],
    negatives: Annotated[
        str, typer.Option(help="What a hard negative is: contradiction, neutral or both.")
    ] = "contradiction",
    pairs: Annotated[
        str | None, typer.Option(help="Write pairs instead: entailment, neutral, contradiction or all.")
    ] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="Keep at most N rows, drawn at random, in order.")] = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Skip and count rows that cannot be read.")
    ] = False,
) -> None:
    """Make training triplets from NLI data.

    Every entailment pair whose premise also has a contradiction becomes a row: premise, entailment, contradiction.
    If there are several contradictions, one is drawn. Train on it with: twinpass train nli.csv --preset sup-base.
    """
    from twinpass.text import nli

    made = nli.triplets(
        files, output, negatives=negatives, pairs=pairs, sample=sample, skip_bad_rows=skip_bad_rows, seed=console.seed
    )
    console.show(made)
