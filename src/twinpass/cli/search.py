"""The verb `search`: the texts of an index that are nearest to a query."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinpass.cli.console import Console, verb
from twinpass.cli.engine import IndexOptions
from twinpass.cli.indexing import load_model_of
from twinpass.cli.options import DataOptions, ModelOptions
from twinpass.errors import ConfigError
from twinpass.files import check_writable, plain, writing
from twinpass.provenance import provenance

if TYPE_CHECKING:
    from rich.console import RenderableType

    from twinpass.cli.engine import AnyIndex
    from twinpass.encoder.encoder import Encoder
    from twinpass.search.index import Hit

Answer = dict[str, Any]


@verb
def search(
    console: Console,
    chosen: ModelOptions,
    data: DataOptions,
    place: IndexOptions,
    folder: Annotated[Path, typer.Argument(metavar="INDEX", help="The folder of an index.")],
    queries: Annotated[list[str] | None, typer.Argument(metavar="QUERY...", help="What to look for.")] = None,
    source: Annotated[
        str | None, typer.Option("--queries", help="A file of queries; answers are lines of JSON.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Texts to find for each query.")] = 10,
    min_score: Annotated[float | None, typer.Option(min=-1, max=1, help="Leave out what has a lower cosine.")] = None,
    where: Annotated[
        list[str] | None, typer.Option(help="A condition on metadata, such as year>=2020; may be given again.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the answers to this file, as lines of JSON.")
    ] = None,
) -> None:
    """Find the texts of an index that are nearest to a query.

    The model is the one that the index was built with; another is refused.
    """
    if bool(queries) == (source is not None):
        raise ConfigError("wanted queries after the index, or a file of them with --queries, and not both.")
    if any(not query.strip() for query in queries or ()):
        raise ConfigError("a query is empty; an empty text is near to nothing in particular.")
    if output is not None:
        check_writable(output)
    index = place.open(folder)
    _check_conditions(where, index)
    texts = iter(queries or ()) if source is None else data.open(source).texts()
    encoder = load_model_of(index, chosen, console)
    options = {"k": k, "min_score": min_score, "where": where or []}
    found = _answers(index, encoder, texts, options)
    facts = provenance(model=encoder, data=[(str(folder), None)], options=options)
    if output is not None:
        count = _write(output, found)
        console.log(f"{count:,} queries answered -> {output}")
        console.result(facts | {"queries": count, "output": output})
        return
    answers = list(found)
    console.result(facts | {"answers": answers}, human=_lines(answers) if source else _tables(answers))


def _check_conditions(where: list[str] | None, index: AnyIndex) -> None:
    """Refuse a condition that cannot hold before the model is loaded."""
    from twinpass.search.index import Index
    from twinpass.search.where import check_columns, parse

    conditions = parse(where)
    if isinstance(index, Index):
        check_columns(conditions, index.columns)


def _answers(index: AnyIndex, encoder: Encoder, queries: Iterator[str], options: dict[str, Any]) -> Iterator[Answer]:
    """Yield each query with its hits, one window of queries after another."""
    for texts, vectors, _ in encoder.encode_stream(queries, normalize=True):
        hits = index.search(vectors, options["k"], where=options["where"], min_score=options["min_score"])
        for text, found in zip(texts, hits, strict=True):
            yield {"query": text, "hits": [_plain(hit) for hit in found]}


def _plain(hit: Hit) -> dict[str, Any]:
    return {**hit._asdict(), "score": round(hit.score, 6)}


def _write(output: Path, answers: Iterator[Answer]) -> int:
    count = 0
    with writing(output) as aside, aside.open("w", encoding="utf-8") as stream:
        for count, answer in enumerate(answers, start=1):  # noqa: B007 - the last count is the result
            stream.write(_line(answer) + "\n")
    return count


def _lines(answers: list[Answer]) -> str:
    return "\n".join(map(_line, answers))


def _line(answer: Answer) -> str:
    return json.dumps(plain(answer), ensure_ascii=False)


def _tables(answers: list[Answer]) -> RenderableType:
    from rich.console import Group

    return Group(*map(_table, answers))


def _table(answer: Answer) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    columns = list(dict.fromkeys(name for hit in answer["hits"] for name in hit["metadata"]))
    table = Table(title=Text(answer["query"]), title_justify="left", box=box.SIMPLE)
    for name in ("score", "id", "text", *columns):
        table.add_column(Text(name), justify="right" if name in ("score", "id") else "left")
    for hit in answer["hits"]:
        others = [Text(str(hit["metadata"].get(name, ""))) for name in columns]
        table.add_row(f"{hit['score']:.4f}", str(hit["id"]), Text(hit["text"]), *others)
    if not answer["hits"]:
        table.add_row("", "", Text("nothing was found", style="italic"))
    return table
