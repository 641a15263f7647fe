"""The verb `cluster`: texts in groups by what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twinpass.cli.console import Console, verb
from twinpass.cli.index import MilvusOptions, index_of
from twinpass.cli.options import DataOptions, ModelOptions
from twinpass.files import refuse_own_input
from twinpass.text.sources import input_files


@verb
def cluster(
    console: Console,
    chosen: ModelOptions,
    data: DataOptions,
    place: MilvusOptions,
    names: Annotated[
        list[str], typer.Argument(metavar="[MODEL] TEXTS|INDEX", help="Texts as for encode, or an index.")
    ],
    k: Annotated[int, typer.Option("-k", min=1, help="Number of clusters.")],
    representatives: Annotated[
        int, typer.Option(min=1, help="Texts to show of each cluster: those nearest to its centre.")
    ] = 3,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write every text with its cluster to a .csv, .parquet or .jsonl file."),
    ] = None,
) -> None:
    """Sort texts into groups by what they say: k-means on the directions of their vectors."""
    from twinpass.text.tables import check_table

    if output is not None:
        check_table(output)  # before anything is encoded
        refuse_own_input(output, input_files(names[-1]))
    index = index_of(console, chosen, data, place, names)
    found = index.cluster(k, seed=console.seed, representatives=representatives, output=output)
    if output is not None:
        console.log(f"{len(found.ids):,} texts in {k} clusters -> {output}")
    console.show(found, **({"output": output} if output else {}))
