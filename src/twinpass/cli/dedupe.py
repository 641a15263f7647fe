"""The verb `dedupe`: texts that say nearly the same, and the texts without them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twinpass.cli.console import Console, verb
from twinpass.cli.index import MilvusOptions, index_of
from twinpass.cli.options import DataOptions, ModelOptions, only
from twinpass.display import counted
from twinpass.files import refuse_own_input
from twinpass.text.sources import input_files


@verb
def dedupe(
    console: Console,
    chosen: ModelOptions,
    data: DataOptions,
    place: MilvusOptions,
    names: Annotated[list[str], typer.Argument(metavar="TEXTS|INDEX", help="Texts as for encode, or an index.")],
    threshold: Annotated[float, typer.Option(help="Treat texts as duplicates at or above this cosine.")] = 0.9,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the texts that are kept to a .txt, .csv, .parquet or .jsonl file."),
    ] = None,
) -> None:
    """List texts that say nearly the same.

    Texts are taken in order: the first is kept, and each later text that reaches the threshold with a kept one joins
    that one's group. So every duplicate has a kept text near it, and no two kept texts are near each other.
    """
    from twinpass.search.duplicates import check_output

    named = only(names, "dedupe", "file of texts or one index")
    if output is not None:
        check_output(output)  # before anything is encoded
        refuse_own_input(output, input_files(named))
    found = index_of(console, chosen, data, place, named).dedupe(threshold, output=output)
    how = "" if found.exact else ", among nearest neighbours"
    target = f" -> {output}" if output else ""
    console.log(
        f"{counted(found.texts, 'text')}: {found.kept:,} kept, {found.duplicates:,} near one of them "
        f"(cosine {threshold} or more{how}), {counted(len(found.groups), 'group')}{target}"
    )
    console.show(found, **({"output": output} if output else {}))
