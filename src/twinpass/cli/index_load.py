"""The verb `index load`: an index of what `encode` has encoded before, on this machine or on many."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinpass.cli.console import Console, verb
from twinpass.cli.engine import IndexOptions
from twinpass.provenance import provenance

if TYPE_CHECKING:
    from twinpass.search.encoded import Encoded
    from twinpass.search.index import Block


@verb
def load(
    console: Console,
    place: IndexOptions,
    source: Annotated[Path, typer.Argument(metavar="VECTORS", help="A parquet file or folder that encode wrote.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder of the index.")],
    kind: Annotated[str, typer.Option(help="exact, hnsw, ivf-pq, or auto: by size.")] = "auto",
    unique: Annotated[bool, typer.Option("--unique", help="Leave out a text that is there already.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an index that is there.")] = False,
) -> None:
    """Make an index of texts that were encoded before; no model is loaded."""
    from twinpass.search.encoded import Encoded

    encoded = Encoded(source)
    place.check(output, kind=kind, overwrite=overwrite)
    started = time.perf_counter()
    facts = provenance(data=[encoded.data], options={"kind": kind, "unique": unique})
    with console.progress("indexing", total=len(encoded)) as advance:
        index = place.build(
            output,
            _counted(encoded, advance),
            model=encoded.model,
            kind=kind,
            unique=unique,
            overwrite=overwrite,
            facts=facts,
        )
    found = index.info()
    seconds = time.perf_counter() - started
    console.log(f"{found['rows']:,} of {len(encoded):,} texts -> {found['index']}, {seconds:.1f} s")
    console.result(facts | found | {"left_out": len(encoded) - found["rows"]})


def _counted(encoded: Encoded, advance: Callable[[int], None]) -> Iterator[Block]:
    for block in encoded.blocks():
        yield block
        advance(len(block.texts))
