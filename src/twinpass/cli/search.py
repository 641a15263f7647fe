"""The verb `search`: the texts of an index that are nearest to a query."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from twinpass.cli.completion import values
from twinpass.cli.console import Console, verb
from twinpass.cli.index import Folder, MilvusOptions, Where, open_index
from twinpass.cli.options import DataOptions, ModelOptions
from twinpass.display import counted
from twinpass.errors import ConfigError
from twinpass.files import refuse_own_input
from twinpass.provenance import provenance
from twinpass.text.sources import input_files


@verb
def search(
    console: Console,
    chosen: ModelOptions,
    data: DataOptions,
    place: MilvusOptions,
    folder: Folder,
    queries: Annotated[
        list[str] | None, typer.Argument(metavar="QUERY...", help="What to search for; - reads queries from stdin.")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--queries", help="A file of queries, or -; results are printed as JSON lines.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Texts to find for each query.")] = 10,
    mode: Annotated[
        str,
        typer.Option(
            autocompletion=values(("dense", "keyword", "hybrid")),
            help="dense: by meaning; keyword: by words (BM25), without the model; hybrid: both.",
        ),
    ] = "dense",
    min_score: Annotated[float | None, typer.Option(help="Skip texts with a lower score; a cosine if dense.")] = None,
    where: Where = None,
    group: Annotated[
        bool | None, typer.Option("--group/--no-group", help="Show equal texts once, with their number (default).")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the results to a .csv, .parquet or .jsonl file.")
    ] = None,
) -> None:
    """Find the texts of an index that are nearest to a query.

    The model is the one that the index was built with; a different one is refused. Of many queries, from a file or
    stdin, each result is a line of JSON.
    """
    from twinpass.search.results import Results, write_results
    from twinpass.text.tables import check_table, json_line

    if queries == ["-"] and source is None:
        queries, source = None, "-"
    if bool(queries) == (source is not None):
        got = "both" if queries else "neither"
        raise ConfigError(f"expected queries after the index, or a file of queries with --queries; got {got}.")
    if output is not None:
        check_table(output)
        refuse_own_input(output, [] if source is None else input_files(source))
    index = open_index(console, chosen, place, folder)
    options: dict[str, Any] = {"k": k, "mode": mode, "min_score": min_score, "where": where or [], "group": group}
    found = index.results(data.open(source, console).texts() if source is not None else queries or [], **options)
    model = None if mode == "keyword" else index.encoder  # words need no model
    facts = provenance(model=model, data=[(str(folder), None)], options=options)
    if output is not None:
        count = write_results(output, found)
        console.log(f"{counted(count, 'query', 'queries')} answered -> {output}")
        console.result(facts | {"queries": count, "output": output})
        return
    if source is None:
        console.show(Results(list(found)), **facts)
    elif console.json:
        console.result(facts | Results(list(found)).to_dict())
    else:
        for hits in found:
            console.result({}, human=json_line(hits.to_dict()))
