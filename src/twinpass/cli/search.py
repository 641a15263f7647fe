"""The verb `search`: the texts of an index that are nearest to a query."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from twinpass.cli.console import Console, verb
from twinpass.cli.index import Folder, MilvusOptions, Where, open_index
from twinpass.cli.options import DataOptions, ModelOptions
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
    queries: Annotated[list[str] | None, typer.Argument(metavar="QUERY...", help="What to search for.")] = None,
    source: Annotated[
        str | None, typer.Option("--queries", help="A file of queries; answers are printed as JSON lines.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Texts to find for each query.")] = 10,
    min_score: Annotated[float | None, typer.Option(min=-1, max=1, help="Skip texts with a lower cosine.")] = None,
    where: Where = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the answers to a .csv, .parquet or .jsonl file.")
    ] = None,
) -> None:
    """Find the texts of an index that are nearest to a query.

    The model is the one that the index was built with; a different one is refused.
    """
    from twinpass.search.results import Answers, write_answers
    from twinpass.text.tables import check_table, json_line

    if bool(queries) == (source is not None):
        raise ConfigError("expected queries after the index, or a file of queries with --queries, not both.")
    if output is not None:
        check_table(output)
        refuse_own_input(output, [] if source is None else input_files(source))
    index = open_index(console, chosen, place, folder)
    options: dict[str, Any] = {"k": k, "min_score": min_score, "where": where or []}
    found = index.answers(data.open(source).texts() if source is not None else queries or [], **options)
    facts = provenance(model=index.encoder, data=[(str(folder), None)], options=options)
    if output is not None:
        count = write_answers(output, found)
        console.log(f"{count:,} queries answered -> {output}")
        console.result(facts | {"queries": count, "output": output})
        return
    answers = Answers(list(found))
    if source is None:
        console.show(answers, **facts)
    else:
        console.result(facts | answers.to_dict(), human="\n".join(json_line(hits.to_dict()) for hits in answers))
