"""The verb `analyze`: what models do to a space, as numbers, figures and one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twinpass.cli.console import Console, command_line, verb
from twinpass.cli.options import DEFAULT_MODEL, CacheOption, DataOptions, ModelOptions


@verb
def analyze(
    console: Console,
    chosen: ModelOptions,
    reading: DataOptions,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]...",
            help="Models as in `evaluate`; MODEL#pooler=avg,layers=3,whiten,label=NAME for variants.",
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="Folder of the report; or a .csv, .parquet or .jsonl file for the numbers only."
        ),
    ] = Path("report"),
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            help="Scored pairs (STS-B's layout, csv, jsonl), pairs, sentences, or STS-B's folder: its three splits.",
        ),
    ] = None,
    runs: Annotated[
        bool,
        typer.Option(
            "--runs", help="The MODELs are training runs: draw alignment and uniformity over their steps (Figure 2)."
        ),
    ] = False,
    sample: Annotated[
        int | None, typer.Option(min=2, help="Sample at most N sentences of --data. Default: 10,000, or all of STS-B.")
    ] = None,
    neighbours: Annotated[int, typer.Option(min=0, help="Number of neighbours to show (0: none).")] = 3,
    query: Annotated[list[str] | None, typer.Option(help="Show this sentence's neighbours; repeatable.")] = None,
    corpus: Annotated[str | None, typer.Option(help="Search neighbours in this text instead of --data.")] = None,
    results: Annotated[
        list[Path] | None,
        typer.Option(help="A file of `evaluate -o FILE.json`: its Avg. STS colours Figure 3; repeatable."),
    ] = None,
    cache: CacheOption = True,
) -> None:
    """Analyze the sentence vectors of models: alignment, uniformity, spectrum, densities, neighbours.

    The report is a folder: index.html (one page that opens from disk), figures/ (SVG and PNG, light and dark) and
    analysis.json with all numbers.
    """
    from twinpass.analysis.analyze import analyze as analyze_models

    found = analyze_models(
        chosen.models(names) or DEFAULT_MODEL,
        data=data,
        output=output,
        sample=sample,
        neighbours=neighbours,
        query=query or (),
        corpus=corpus,
        results=results or (),
        runs=runs,
        **vars(reading),
        cache=cache,
        seed=console.seed,
        progress=console.progress,
        log=console.log,
        command=command_line(),
        **chosen.loading(console),
    )
    console.show(found)
