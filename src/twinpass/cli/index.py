"""The verb `index`: build, load, add, remove, compact, info, verify; and what the other verbs on an index share."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinpass.cli.console import Console, verb
from twinpass.cli.options import DataOptions, ModelOptions, exactly
from twinpass.errors import ConfigError

if TYPE_CHECKING:
    from twinpass.search.index import Index
    from twinpass.search.results import Info

Folder = Annotated[Path, typer.Argument(metavar="INDEX", help="The folder of an index.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="The folder of the index.")]
Kind = Annotated[str, typer.Option(help="exact, hnsw, ivf-pq, or auto: by size.")]
Unique = Annotated[bool, typer.Option("--unique", help="Skip a text that is there already.")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILTER",
        help="A filter on metadata, such as 'year >= 2020 and not author in (ann, bob)'; several must all hold.",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing index.")]


@dataclass(frozen=True)
class MilvusOptions:
    """Where Milvus keeps the index; without it, an index is a folder."""

    milvus: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="INDEX is a collection on this Milvus: http://HOST:19530, or a local path to a .db (extra [milvus]).",
        ),
    ] = None
    milvus_token: Annotated[
        str | None, typer.Option(envvar="MILVUS_TOKEN", help="user:password or API key of the Milvus server.")
    ] = None


@verb
def build(
    console: Console,
    chosen: ModelOptions,
    data: DataOptions,
    place: MilvusOptions,
    names: Annotated[
        list[str], typer.Argument(metavar="[MODEL] TEXTS", help="Texts: a file, folder, pattern, - for stdin, or docs:")
    ],
    output: Output,
    kind: Kind = "auto",
    unique: Unique = False,
    overwrite: Overwrite = False,
) -> None:
    """Make an index of texts.

    It stores the texts, their vectors and all other columns of the file, and remembers its model. If it is stopped,
    what was there before is unchanged. A single name is the texts; the model is then minilm.
    """
    from twinpass.search.index import Index

    name, rest = chosen.named(names, least=1)
    exactly(rest, 1, "TEXTS after the model")
    started = time.perf_counter()
    options = {"kind": kind, "unique": unique, "overwrite": overwrite, **asdict(place)}
    index = Index.build(output, rest[0], **options, **encoding(console, chosen, data, name))
    _report(console, index.info(), time.perf_counter() - started)


@verb
def load(
    console: Console,
    place: MilvusOptions,
    source: Annotated[Path, typer.Argument(metavar="VECTORS", help="A parquet file or folder that encode wrote.")],
    output: Output,
    kind: Kind = "auto",
    unique: Unique = False,
    overwrite: Overwrite = False,
) -> None:
    """Make an index of texts that were encoded before; no model is loaded."""
    from twinpass.search.index import Index

    started = time.perf_counter()
    options = {"kind": kind, "unique": unique, "overwrite": overwrite, **asdict(place)}
    index = Index.load_vectors(output, source, progress=console.progress, **options)
    _report(console, index.info(), time.perf_counter() - started)


@verb
def add(
    console: Console,
    chosen: ModelOptions,
    data: DataOptions,
    place: MilvusOptions,
    folder: Folder,
    texts: Annotated[str, typer.Argument(metavar="TEXTS", help="What to add, as for build.")],
    unique: Unique = False,
) -> None:
    """Add texts to an index, all or nothing."""
    index = open_index(console, chosen, place, folder)
    added = index.add(texts, unique=unique, progress=console.progress, **asdict(data))
    console.log(f"{added.added:,} texts added, {added.skipped:,} skipped -> {folder}: {len(index):,} texts")
    console.result(added.to_dict() | {"rows": len(index)})


@verb
def remove(
    console: Console,
    data: DataOptions,
    place: MilvusOptions,
    folder: Folder,
    ids: Annotated[str | None, typer.Option(help="Ids as search shows them, comma-separated.")] = None,
    where: Where = None,
    texts: Annotated[str | None, typer.Option(help="A file of the texts to remove.")] = None,
) -> None:
    """Remove texts from an index: by id, by metadata, or the texts of a file."""
    from twinpass.search.index import Index

    index = Index.open(folder, **asdict(place))
    removed = index.remove(
        ids=None if ids is None else _numbers(ids),
        where=where or None,
        texts=None if texts is None else list(data.open(texts).texts()),
    )
    console.log(f"{removed:,} texts removed -> {folder}: {len(index):,} texts")
    console.result({"removed": removed, "rows": len(index)})


@verb
def compact(console: Console, folder: Folder) -> None:
    """Join the segments of an index into one, and free the space of removed texts."""
    from twinpass.search.index import Index

    index = Index.open(folder)
    index.compact()
    console.show(index.info())


@verb
def info(console: Console, place: MilvusOptions, folder: Folder) -> None:
    """Show what an index holds and what made it."""
    from twinpass.search.index import Index

    console.show(Index.open(folder, **asdict(place)).info())


@verb
def verify(console: Console, place: MilvusOptions, folder: Folder) -> None:
    """Compare every file of an index with the checksum of when it was written.

    If a file is damaged, it is named and the exit code is 2.
    """
    from twinpass.search.index import Index

    found = Index.verify(folder, **asdict(place))
    console.show(found)
    found.check()


index = {"build": build, "load": load, "add": add, "remove": remove, "compact": compact, "info": info, "verify": verify}


def encoding(console: Console, chosen: ModelOptions, data: DataOptions, model: str) -> dict[str, Any]:
    """Return how to read and encode texts, as Index.build takes it."""
    shown = {"progress": console.progress, "log": console.log}
    return {"encoder": model, **asdict(data), **shown, **chosen.loading(console)}


def open_index(console: Console, chosen: ModelOptions, place: MilvusOptions, name: Path | str) -> Index:
    """Open an index that loads its model, if it needs it, with the chosen options."""
    from twinpass.search.index import Index

    return Index.open(name, encoder=chosen.model, log=console.log, **asdict(place), **chosen.loading(console))


def index_of(
    console: Console, chosen: ModelOptions, data: DataOptions, place: MilvusOptions, names: list[str]
) -> Index:
    """Open the index that is named, or make a temporary one of texts."""
    from twinpass.search.index import Index

    if place.milvus is not None or Index.exists(names[-1]):
        if len(names) > 1 or chosen.model is not None:
            raise ConfigError(f"{names[-1]} is an index and has its vectors already: omit the model.")
        return Index.open(names[0], **asdict(place))
    name, rest = chosen.named(names, least=1)
    exactly(rest, 1, "texts or an index")
    return Index.build(None, rest[0], **encoding(console, chosen, data, name))


def _numbers(ids: str) -> list[int]:
    try:
        return [int(number) for number in ids.split(",")]
    except ValueError:
        raise ConfigError(f"--ids is {ids!r}; expected comma-separated numbers, such as 3,17.") from None


def _report(console: Console, found: Info, seconds: float) -> None:
    from twinpass.search.results import describe_search

    change = found.history[-1]
    notes = [f"{found.distinct:,} distinct"] if found.distinct not in (None, found.rows) else []
    counts = {"skipped": "repeats skipped", "bad_rows": "bad rows skipped", "truncated": "truncated"}
    notes += [f"{change[name]:,} {what}" for name, what in counts.items() if change.get(name)]
    counted = f"{found.rows:,} texts" + (f" ({', '.join(notes)})" if notes else "")
    console.log(f"{counted} -> {found.index}: {describe_search(found.segments[0])}, {seconds:.1f} s")
    console.result({**change, **found.to_dict()})
