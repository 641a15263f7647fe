"""The verb `index`: build, add, remove, compact, info."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from twinpass.cli.console import Console, verb
from twinpass.cli.engine import IndexOptions
from twinpass.cli.index_load import load
from twinpass.cli.indexing import blocks, load_model_of, model_entry
from twinpass.cli.options import DataOptions, ModelOptions, exactly
from twinpass.errors import ConfigError
from twinpass.provenance import provenance

Folder = Annotated[Path, typer.Argument(metavar="INDEX", help="The folder of an index.")]
Unique = Annotated[bool, typer.Option("--unique", help="Leave out a text that is there already.")]


@verb
def build(
    console: Console,
    chosen: ModelOptions,
    data: DataOptions,
    place: IndexOptions,
    names: Annotated[
        list[str], typer.Argument(metavar="[MODEL] TEXTS", help="Texts: a file, folder, pattern, - for stdin, or docs:")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder of the index.")],
    kind: Annotated[str, typer.Option(help="exact, hnsw, ivf-pq, or auto: by size.")] = "auto",
    unique: Unique = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an index that is there.")] = False,
) -> None:
    """Make an index of texts.

    It keeps the texts, their vectors and all other columns of the file, and knows its model. Stopped at any moment,
    what was there before is unchanged. With a single name, it is the texts and the model is minilm.
    """
    name, rest = chosen.named(names, least=1)
    exactly(rest, 1, "TEXTS after the model")
    place.check(output, kind=kind, overwrite=overwrite)
    started = time.perf_counter()
    corpus = data.open(rest[0])
    _, total, fingerprint = corpus.survey()
    encoder = chosen.load(name, console)
    options = console.described() | chosen.described() | data.described() | {"kind": kind, "unique": unique}
    facts = provenance(model=encoder, data=[(corpus.source, fingerprint)], options=options)
    with console.progress("encoding", total=total) as advance:
        index = place.build(
            output,
            blocks(encoder, corpus, advance),
            model=model_entry(encoder, chosen),
            kind=kind,
            unique=unique,
            overwrite=overwrite,
            facts=facts,
        )
    found = index.info()
    found |= {"bad_rows": corpus.bad_rows, "left_out": total - len(index)}
    console.log(_built(found, time.perf_counter() - started))
    console.result(facts | found)


@verb
def add(
    console: Console,
    chosen: ModelOptions,
    data: DataOptions,
    place: IndexOptions,
    folder: Folder,
    texts: Annotated[str, typer.Argument(metavar="TEXTS", help="What to add, as for build.")],
    unique: Unique = False,
) -> None:
    """Add texts to an index, all or nothing."""
    index = place.open(folder)
    corpus = data.open(texts)
    _, total, fingerprint = corpus.survey()
    encoder = load_model_of(index, chosen, console)
    facts = provenance(data=[(corpus.source, fingerprint)], options=data.described() | {"unique": unique})
    with console.progress("encoding", total=total) as advance:
        written = index.add(blocks(encoder, corpus, advance), unique=unique, facts=facts)
    found = {"added": written.rows, "left_out": written.left_out, "rows": len(index)}
    console.log(f"{written.rows:,} texts added, {written.left_out:,} left out -> {folder}: {len(index):,} texts")
    console.result(facts | found)


@verb
def remove(
    console: Console,
    data: DataOptions,
    place: IndexOptions,
    folder: Folder,
    ids: Annotated[str | None, typer.Option(help="Ids as search shows them, with commas between.")] = None,
    where: Annotated[
        list[str] | None, typer.Option(help="A condition on metadata, such as year<2020; may be given again.")
    ] = None,
    texts: Annotated[str | None, typer.Option(help="A file of the texts to remove.")] = None,
) -> None:
    """Remove texts from an index: by id, by metadata, or the texts of a file."""
    index = place.open(folder)
    removed = index.remove(
        ids=None if ids is None else _numbers(ids),
        where=where or None,
        texts=None if texts is None else list(data.open(texts).texts()),
    )
    console.log(f"{removed:,} texts removed -> {folder}: {len(index):,} texts")
    console.result({"removed": removed, "rows": len(index)})


@verb
def compact(console: Console, folder: Folder) -> None:
    """Join the segments of an index into one, and give back the room of removed texts."""
    from twinpass.search.index import Index

    index = Index.open(folder)
    index.compact()
    found = index.info()
    console.result(found, human=_described(found))


@verb
def info(console: Console, place: IndexOptions, folder: Folder) -> None:
    """Show what an index holds and what made it."""
    found = place.open(folder).info()
    console.result(found, human=_described(found))


index = {"build": build, "load": load, "add": add, "remove": remove, "compact": compact, "info": info}


def _numbers(ids: str) -> list[int]:
    try:
        return [int(number) for number in ids.split(",")]
    except ValueError:
        raise ConfigError(f"--ids is {ids!r}; wanted numbers with commas between, such as 3,17.") from None


def _built(found: dict[str, Any], seconds: float) -> str:
    again = found["rows"] - found.get("distinct", found["rows"])
    notes = [f"{found['distinct']:,} distinct"] if again else []
    notes += [f"{found['left_out']:,} repeats left out"] if found["left_out"] else []
    notes += [f"{found['bad_rows']:,} bad rows left out"] if found["bad_rows"] else []
    counted = f"{found['rows']:,} texts" + (f" ({', '.join(notes)})" if notes else "")
    return f"{counted} -> {found['index']}: {_searched(found['segments'][0])}, {seconds:.1f} s"


def _searched(segment: dict[str, Any]) -> str:
    if segment["kind"] == "exact":
        return "searched exactly"
    if "recall_at_10" not in segment:  # Milvus made it, and has nothing exact beside it to compare with
        return f"{segment['kind']}, recall not measured"
    return f"{segment['kind']}, recall@10 {segment['recall_at_10']:.3f} on {segment['sample']} of its texts"


def _described(found: dict[str, Any]) -> str:
    model, latest = found["model"], found["history"][-1]
    counted = f"{found['rows']:,}" + (f" ({found['distinct']:,} distinct)" if "distinct" in found else "")
    lines = {
        "texts": f"{counted}, {found['removed']:,} removed but not yet gone",
        "model": f"{model['name']} ({model['fingerprint'][:12]}), {found['dimensions']} dimensions",
        "columns": ", ".join(found["columns"]) or "none",
        "kind": found["kind"],
        **({"on disk": f"{found['bytes'] / 1e6:,.1f} MB"} if "bytes" in found else {"kept by": found["server"]}),
        "last change": f"{latest['what']} of {latest['rows']:,} texts, {latest['when']}",
    }
    for number, segment in enumerate(found["segments"], start=1):
        lines[f"segment {number}"] = f"{segment['rows']:,} texts, {_searched(segment)}"
    return "\n".join(f"{name:<12} {value}" for name, value in lines.items())
