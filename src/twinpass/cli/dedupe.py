"""The verb `dedupe`: texts that say nearly the same, and what is left without them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinpass.cli.console import Console, verb
from twinpass.cli.indexing import index_of
from twinpass.cli.options import DataOptions, ModelOptions
from twinpass.errors import OutputError
from twinpass.files import check_writable, plain, writing

if TYPE_CHECKING:
    from rich.console import RenderableType

    from twinpass.search.duplicates import Group
    from twinpass.search.index import Index

SUFFIXES = (".txt", ".jsonl")
SHOWN_GROUPS, SHOWN_OTHERS = 20, 5
BLOCK = 4_096


@verb
def dedupe(
    console: Console,
    chosen: ModelOptions,
    data: DataOptions,
    names: Annotated[
        list[str], typer.Argument(metavar="[MODEL] TEXTS|INDEX", help="Texts as for encode, or an index.")
    ],
    threshold: Annotated[float, typer.Option(help="The cosine from which on two texts are the same.")] = 0.9,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write what is left to a .txt or .jsonl file.")
    ] = None,
) -> None:
    """List texts that say nearly the same.

    Texts are taken in order: the first is kept, and each that is as near to a kept one as the threshold says goes
    into that one's group. So every text left out has a kept one near it, and no two kept ones are near.
    """
    from twinpass.search.duplicates import near_duplicates

    if output is not None:
        _check_output(output)
    with index_of(names, chosen, data, console) as index:
        groups = near_duplicates(index, threshold)
        document = _document(index, groups, threshold)
        if output is not None:
            _write(index, groups, output)
            document["output"] = output
    console.log(_sentence(document, output))
    console.result(document, human=_table(document) if groups else "no two texts are that near")


def _check_output(output: Path) -> None:
    if output.suffix not in SUFFIXES:
        raise OutputError(f"cannot write {output}: wanted a name that ends in {' or '.join(SUFFIXES)}.")
    check_writable(output)


def _document(index: Index, groups: list[Group], threshold: float) -> dict[str, Any]:
    left_out = sum(len(group.others) for group in groups)
    return {
        "threshold": threshold,
        "exact": index.exact,
        "model": index.model,
        "texts": len(index),
        "kept": len(index) - left_out,
        "left_out": left_out,
        "groups": [_described(index, group) for group in groups],
    }


def _described(index: Index, group: Group) -> dict[str, Any]:
    first, *others = index.entries([group.kept, *group.others])
    return {
        "kept": {"id": first.id, "text": first.text},
        "others": [
            {"id": other.id, "text": other.text, "cosine": round(cosine, 6)}
            for other, cosine in zip(others, group.cosines, strict=True)
        ],
    }


def _write(index: Index, groups: list[Group], output: Path) -> None:
    gone = {other for group in groups for other in group.others}
    with writing(output) as aside, aside.open("w", encoding="utf-8") as stream:
        for entry in _entries(index, [each for each in index.ids().tolist() if each not in gone]):
            if output.suffix == ".jsonl":
                kept = {"id": entry.id, **entry.metadata, "text": entry.text}
                stream.write(json.dumps(plain(kept), ensure_ascii=False) + "\n")
            else:
                stream.write(" ".join(entry.text.splitlines()) + "\n")  # one text a line


def _entries(index: Index, ids: list[int]) -> Iterator[Any]:
    rest = iter(ids)
    while some := list(islice(rest, BLOCK)):
        yield from index.entries(some)


def _sentence(found: dict[str, Any], output: Path | None) -> str:
    how = "" if found["exact"] else ", among nearest neighbours"
    target = f" -> {output}" if output else ""
    return (
        f"{found['texts']:,} texts: {found['kept']:,} kept, {found['left_out']:,} near one of them "
        f"(cosine {found['threshold']} or more{how}), {len(found['groups']):,} groups{target}"
    )


def _table(found: dict[str, Any]) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    groups = found["groups"]
    more = len(groups) - SHOWN_GROUPS
    caption = f"{more:,} more groups; all with --json" if more > 0 else None
    table = Table("cosine", "id", "text", box=box.SIMPLE, caption=caption)
    for group in groups[:SHOWN_GROUPS]:
        table.add_row("kept", str(group["kept"]["id"]), Text(group["kept"]["text"]))
        for other in group["others"][:SHOWN_OTHERS]:
            table.add_row(f"{other['cosine']:.4f}", str(other["id"]), Text(f"  {other['text']}"))
        if len(group["others"]) > SHOWN_OTHERS:
            table.add_row("", "", Text(f"  and {len(group['others']) - SHOWN_OTHERS:,} more"))
        table.add_section()
    return table
