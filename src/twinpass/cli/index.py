"""The verb `index`: build, load, add, remove, compact, info, verify; and what the other verbs on an index share."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinpass.cli.completion import KINDS, values
from twinpass.cli.console import Console, verb
from twinpass.cli.options import DataOptions, ModelOptions, only
from twinpass.display import counted
from twinpass.errors import ConfigError

if TYPE_CHECKING:
    from twinpass.search.index import Index
    from twinpass.search.results import Info

Folder = Annotated[Path, typer.Argument(metavar="INDEX", help="The folder of an index.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="The folder of the index.")]
Kind = Annotated[str, typer.Option(autocompletion=values(KINDS), help="exact, hnsw, ivf-pq, or auto: by size.")]
Vectors = Annotated[
    str,
    typer.Option(
        "--vectors",
        "--storage",
        autocompletion=values(("float32", "int8", "binary")),
        help="How vectors are held in memory: float32, int8 or binary; scores stay exact.",
    ),
]
Unique = Annotated[bool, typer.Option("--unique", help="Skip a text that is there already.")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILTER",
        help="A filter on metadata, such as 'year >= 2020 and not author in (ann, bob)'; several must all hold.",
    ),
]
IdColumn = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="The column whose values are the ids; add then replaces equal ids.")
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
    names: Annotated[list[str], typer.Argument(metavar="TEXTS", help="A file, folder, pattern, - for stdin, or docs:")],
    output: Output,
    kind: Kind = "auto",
    storage: Vectors = "float32",
    unique: Unique = False,
    id_column: IdColumn = None,
    overwrite: Overwrite = False,
) -> None:
    """Make an index of texts.

    It stores the texts, their vectors and all other columns of the file, and remembers its model. If it is stopped,
    what was there before is unchanged.
    """
    from twinpass.search.index import Index

    texts = only(names, "index build", "TEXTS")
    started = time.perf_counter()
    built = {"kind": kind, "storage": storage, "unique": unique, "id_column": id_column, "overwrite": overwrite}
    options = {**built, **asdict(place)}
    index = Index.build(output, texts, **options, **encoding(console, chosen, data))
    _report(console, index.info(), time.perf_counter() - started)


@verb
def load(
    console: Console,
    place: MilvusOptions,
    source: Annotated[Path, typer.Argument(metavar="VECTORS", help="A parquet file or folder that encode wrote.")],
    output: Output,
    kind: Kind = "auto",
    storage: Vectors = "float32",
    unique: Unique = False,
    id_column: IdColumn = None,
    overwrite: Overwrite = False,
) -> None:
    """Make an index of texts that were encoded before; no model is loaded."""
    from twinpass.search.index import Index

    started = time.perf_counter()
    built = {"kind": kind, "storage": storage, "unique": unique, "id_column": id_column, "overwrite": overwrite}
    options = {**built, **asdict(place)}
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
    """Add texts to an index, all or nothing.

    If the index has an id column, a text replaces the one that has the same id.
    """
    index = open_index(console, chosen, place, folder)
    added = index.add(texts, unique=unique, progress=console.progress, **asdict(data))
    counts = f"{counted(added.added, 'text')} added, {added.skipped:,} skipped, {added.replaced:,} replaced"
    console.log(f"{counts} -> {folder}: {counted(len(index), 'text')}")
    console.result(added.to_dict() | {"rows": len(index)})


@verb
def remove(
    console: Console,
    data: DataOptions,
    place: MilvusOptions,
    folder: Folder,
    ids: Annotated[str | None, typer.Option(help="Ids as search shows them, comma-separated.")] = None,
    one: Annotated[list[str] | None, typer.Option("--id", help="One id, taken as it is; may be repeated.")] = None,
    where: Where = None,
    texts: Annotated[str | None, typer.Option(help="A file of the texts to remove.")] = None,
) -> None:
    """Remove texts from an index: by id, by metadata, or the texts of a file."""
    from twinpass.search.index import Index

    index = Index.open(folder, **asdict(place))
    removed = index.remove(
        ids=_ids(index, [*(ids.split(",") if ids is not None else []), *(one or [])]),
        where=where or None,
        texts=None if texts is None else list(data.open(texts, console).texts()),
    )
    console.log(f"{counted(removed, 'text')} removed -> {folder}: {counted(len(index), 'text')}")
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


def encoding(console: Console, chosen: ModelOptions, data: DataOptions) -> dict[str, Any]:
    """Return how to read and encode texts, as Index.build takes it."""
    shown = {"progress": console.progress, "log": console.log}
    return {"encoder": chosen.name, **asdict(data), **shown, **chosen.loading(console)}


def open_index(console: Console, chosen: ModelOptions, place: MilvusOptions, name: Path | str) -> Index:
    """Open an index that loads its model, if it needs it, with the chosen options."""
    from twinpass.search.index import Index

    return Index.open(name, encoder=chosen.model, log=console.log, **asdict(place), **chosen.loading(console))


def index_of(console: Console, chosen: ModelOptions, data: DataOptions, place: MilvusOptions, named: str) -> Index:
    """Open the index that is named, or make a temporary one of texts."""
    from twinpass.search.index import Index

    if place.milvus is not None or Index.exists(named):
        if chosen.model is not None:
            raise ConfigError(f"{named} is an index and has its vectors already: omit the model.")
        return Index.open(named, **asdict(place))
    return Index.build(None, named, **encoding(console, chosen, data))


def _ids(index: Index, given: list[str]) -> list[Any] | None:
    """Return ids as the index has them: texts if it has an id column, else numbers; None if none were given."""
    if not given or index.id_column is not None:
        return given or None
    try:
        return [int(number) for number in given]
    except ValueError:
        raise ConfigError(f"the ids are {','.join(given)!r}; expected numbers, such as 3,17.") from None


def _report(console: Console, found: Info, seconds: float) -> None:
    from twinpass.search.results import describe_search

    change = found.history[-1]
    notes = [f"{found.distinct:,} distinct"] if found.distinct not in (None, found.rows) else []
    counts = {"skipped": "repeat", "bad_rows": "bad row"}
    notes += [f"{counted(change[name], what)} skipped" for name, what in counts.items() if change.get(name)]
    notes += [f"{change['truncated']:,} truncated"] if change.get("truncated") else []
    texts = counted(found.rows, "text") + (f" ({', '.join(notes)})" if notes else "")
    console.log(f"{texts} -> {found.index}: {describe_search(found.segments[0])}, {seconds:.1f} s")
    console.result({**change, **found.to_dict()})
