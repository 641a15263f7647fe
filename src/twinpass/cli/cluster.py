"""The verb `cluster`: texts in groups by what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinpass.cli.console import Console, verb
from twinpass.cli.indexing import index_of
from twinpass.cli.options import DataOptions, ModelOptions
from twinpass.files import check_writable, plain, writing

if TYPE_CHECKING:
    from rich.console import RenderableType

    from twinpass.search.clusters import Clustering
    from twinpass.search.index import Index

BLOCK = 4_096


@verb
def cluster(
    console: Console,
    chosen: ModelOptions,
    data: DataOptions,
    names: Annotated[
        list[str], typer.Argument(metavar="[MODEL] TEXTS|INDEX", help="Texts as for encode, or an index.")
    ],
    k: Annotated[int, typer.Option("-k", min=1, help="How many clusters.")],
    representatives: Annotated[
        int, typer.Option(min=1, help="Texts to show of each cluster: those nearest to its centre.")
    ] = 3,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write every text with its cluster, as lines of JSON.")
    ] = None,
) -> None:
    """Sort texts into groups by what they say: k-means on the directions of their vectors."""
    from twinpass.search.clusters import cluster as find_clusters

    if output is not None:
        check_writable(output)
    with index_of(names, chosen, data, console) as index:
        found = find_clusters(index, k, seed=console.seed, representatives=representatives)
        document = _document(index, found, console.seed)
        if output is not None:
            _write(index, found, output)
            document["output"] = output
            console.log(f"{len(index):,} texts in {k} clusters -> {output}")
    console.result(document, human=_table(document))


def _document(index: Index, found: Clustering, seed: int) -> dict[str, Any]:
    return {
        "texts": len(index),
        "seed": seed,
        "model": index.model,
        "mean_cosine": float(found.cosines.mean()),
        "clusters": [
            {
                "cluster": label,
                "size": each.size,
                "cohesion": each.cohesion,
                "representatives": [
                    {"id": hit.id, "text": hit.text, "cosine": round(hit.score, 6)} for hit in each.representatives
                ],
            }
            for label, each in enumerate(found.clusters)
        ],
    }


def _write(index: Index, found: Clustering, output: Path) -> None:
    with writing(output) as aside, aside.open("w", encoding="utf-8") as stream:
        for start in range(0, len(found.ids), BLOCK):
            rows = slice(start, start + BLOCK)
            entries = index.entries(found.ids[rows])
            for entry, label, cosine in zip(entries, found.labels[rows], found.cosines[rows], strict=True):
                place = {"id": entry.id, "cluster": int(label), "cosine": round(float(cosine), 6)}
                line = {**place, "text": entry.text, "metadata": entry.metadata}
                stream.write(json.dumps(plain(line), ensure_ascii=False) + "\n")


def _table(found: dict[str, Any]) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table("cluster", "texts", "cohesion", "nearest to its centre", box=box.SIMPLE, show_lines=True)
    for each in found["clusters"]:
        texts = Text("\n".join(hit["text"] for hit in each["representatives"]))
        table.add_row(str(each["cluster"]), f"{each['size']:,}", f"{each['cohesion']:.3f}", texts)
    return table
