"""The verb `similarity`: the cosine of two texts, of several, or of the texts in files."""

from __future__ import annotations

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
        list[str], typer.Argument(metavar="[MODEL] TEXT TEXT...", help="Texts; with --matrix or --pairwise, files.")
    ],
    matrix: Annotated[
        bool, typer.Option("--matrix", help="Compare each text of one file with each of the other.")
    ] = False,
    pairwise: Annotated[
        bool, typer.Option("--pairwise", help="Compare the first texts of two files, the second texts, and so on.")
    ] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Also write a .csv or .npy file.")] = None,
) -> None:
    """Compare sentences by the cosine of their vectors.

    Two texts give one number, more give a matrix. With --matrix or --pairwise the names are files; a single file
    with two text columns can be compared pairwise. With more than two names, the first is the model unless it
    contains a space; otherwise the model is minilm.
    """
    if matrix and pairwise:
        raise ConfigError("--matrix and --pairwise exclude each other: choose one.")
    if output is not None:
        from twinpass.encoder.similarity import check_target

        check_target(output)
    name, rest = chosen.named(names, least=2)
    corpora = [data.open(source) for source in rest] if matrix or pairwise else []
    left: str | list[str]
    right: str | list[str] | None
    if corpora:
        left, right = _texts(corpora, pairwise=pairwise)
    else:
        _check_texts(rest)
        left, right = (rest[0], rest[1]) if len(rest) == 2 else (rest, None)
    encoder = chosen.load(name, console)
    found = encoder.similarity(left, right, pairwise=pairwise)
    if output is not None:
        found.write(output)
    sources = [(corpus.source, corpus.fingerprint()) for corpus in corpora]
    options = console.described() | chosen.described(encoder) | data.described()
    console.show(found, **provenance(model=encoder, data=sources, options=options))


def _check_texts(texts: list[str]) -> None:
    """Refuse what is probably a mistake: a single text, a model without texts, file names given as texts."""
    folder = any(is_file(f"{texts[0]}/{name}") for name in ("config.json", "twinpass.json"))
    is_model = len(texts) == 2 and (texts[0] == DEFAULT_MODEL or folder)
    if len(texts) < 2 or is_model:
        raise ConfigError(f"expected at least two texts to compare, got {' '.join(map(repr, texts))}.")
    for text in texts:
        if is_file(text):
            raise ConfigError(f"{text!r} is a file. To compare the texts in files, add --pairwise or --matrix.")
        if " " not in text and Path(text).suffix in TEXT_FILES:
            raise ConfigError(f"{text!r} looks like a file name, but there is no such file. Check the path.")


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
