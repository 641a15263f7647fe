"""The verb `cluster`: texts in groups by what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twinpass.cli.console import Console, verb
from twinpass.cli.index import MilvusOptions, index_of
from twinpass.cli.options import DataOptions, ModelOptions, only
from twinpass.files import refuse_own_input
from twinpass.text.sources import input_files


@verb
def cluster(
    console: Console,
    chosen: ModelOptions,
    data: DataOptions,
    place: MilvusOptions,
    names: Annotated[list[str], typer.Argument(metavar="TEXTS|INDEX", help="Texts as for encode, or an index.")],
    k: Annotated[
        int | None, typer.Option("-k", min=1, help="Number of clusters (default: 2 to 30, by the mean silhouette).")
    ] = None,
    representatives: Annotated[
        int, typer.Option(min=1, help="Texts to show of each cluster: those nearest to its centre.")
    ] = 3,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write every text with its cluster to a .csv, .parquet or .jsonl file."),
    ] = None,
) -> None:
    """Group texts by meaning: spherical k-means on their vectors.

    Each cluster is shown with its most typical words and the texts nearest to its centre.
    """
    from twinpass.text.tables import check_table

    named = only(names, "cluster", "file of texts or one index")
    if output is not None:
        check_table(output)  # before anything is encoded
        refuse_own_input(output, input_files(named))
    index = index_of(console, chosen, data, place, named)
    found = index.cluster(k, seed=console.seed, representatives=representatives, output=output)
    if output is not None:
        console.log(f"{len(found.ids):,} texts in {len(found.clusters)} clusters -> {output}")
    console.show(found, **({"output": output} if output else {}))
