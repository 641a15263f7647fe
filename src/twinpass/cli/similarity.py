"""The verb `similarity`: the cosine of two texts, of several, or of the texts in files."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinpass.cli.console import Console, verb
from twinpass.cli.options import DEFAULT_MODEL, DataOptions, ModelOptions
from twinpass.errors import ConfigError
from twinpass.provenance import provenance
from twinpass.text.sources import is_file

if TYPE_CHECKING:
    from twinpass.text.corpus import Corpus

TEXT_FILES = {".txt", ".csv", ".tsv", ".jsonl", ".parquet", ".gz", ".xz"}


@verb
def similarity(
    console: Console,
    chosen: ModelOptions,
    data: DataOptions,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT TEXT...",
            help="Texts, and - for those on stdin, one per line; with --matrix or --pairwise, files.",
        ),
    ],
    matrix: Annotated[
        bool, typer.Option("--matrix", help="Compare each text of one file with each of the other.")
    ] = False,
    pairwise: Annotated[
        bool, typer.Option("--pairwise", help="Compare the first texts of two files, the second texts, and so on.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write a .csv, .npy, .parquet or .jsonl file.")
    ] = None,
) -> None:
    """Compare sentences by the cosine of their vectors.

    Two texts give one number, more give a matrix. With --matrix or --pairwise the arguments are files; a single file
    with two text columns can be compared pairwise.
    """
    if matrix and pairwise:
        raise ConfigError("--matrix and --pairwise exclude each other: choose one.")
    if output is not None:
        from twinpass.encoder.similarity import check_target

        check_target(output)
    if chosen.model is None:
        _refuse_model(names)
    corpora = (
        [data.open(source, console, pairs=pairwise and len(names) == 1) for source in names]
        if matrix or pairwise
        else []
    )
    left: str | list[str]
    right: str | list[str] | None
    if corpora:
        left, right = _texts(corpora, pairwise=pairwise)
    else:
        texts = _with_stdin(names, data, console)
        left, right = (texts[0], texts[1]) if len(texts) == 2 else (texts, None)
    encoder = chosen.load(console)
    found = encoder.similarity(left, right, pairwise=pairwise)
    if output is not None:
        found.write(output)
    sources = [(corpus.source, corpus.fingerprint()) for corpus in corpora]
    options = console.described() | chosen.described(encoder) | data.described()
    console.show(found, **provenance(model=encoder, data=sources, options=options))


def _refuse_model(names: list[str]) -> None:
    """Refuse a first text that is the name of a model, which was probably meant as one."""
    first, *rest = names
    if first == DEFAULT_MODEL or any(is_file(f"{first}/{name}") for name in ("config.json", "twinpass.json")):
        raise ConfigError(
            f"{first!r} is a model, and a model is named with -m: twinpass similarity {shlex.join(rest)} -m "
            f"{shlex.quote(first)} (to compare it as a text, add -m {DEFAULT_MODEL})"
        )


def _with_stdin(names: list[str], data: DataOptions, console: Console) -> list[str]:
    """Return the texts, those of stdin in place of `-`; refuse a single text, and file names given as texts."""
    if names.count("-") > 1:
        raise ConfigError("- is given twice, but stdin can be read only once.")
    for text in names:
        if is_file(text):
            raise ConfigError(f"{text!r} is a file. To compare the texts in files, add --pairwise or --matrix.")
        if " " not in text and Path(text).suffix in TEXT_FILES:
            raise ConfigError(f"{text!r} looks like a file name, but there is no such file. Check the path.")
    if len(names) < 2 and names != ["-"]:
        raise ConfigError(f"expected at least two texts to compare, got {' '.join(map(repr, names))}.")
    texts = [text for name in names for text in (data.open("-", console).texts() if name == "-" else [name])]
    if len(texts) < 2:
        raise ConfigError(f"expected at least two texts to compare, got one on stdin: {texts[0]!r}.")
    return texts


def _texts(corpora: list[Corpus], *, pairwise: bool) -> tuple[list[str], list[str]]:
    """Return the texts to compare: those of two files, of one file with itself, or of a file's two columns."""
    first, last = corpora[0], corpora[-1]
    if len(corpora) > 2:
        raise ConfigError(f"expected one or two files to compare, got {len(corpora)}.")
    if len(corpora) == 1 and pairwise:
        if first.width != 2:
            raise ConfigError(
                f"--pairwise needs two files, or one with two text columns; {first.source} has {first.width}. "
                "Choose two with --columns."
            )
        rows = [row.texts for row in first]
        return [a for a, _ in rows], [b for _, b in rows]
    left, right = list(first.texts()), list(last.texts())
    if pairwise and len(left) != len(right):
        raise ConfigError(
            f"--pairwise needs two files with the same number of texts: {first.source} has {len(left)}, "
            f"{last.source} has {len(right)}. To compare each with each, use --matrix."
        )
    return left, right
