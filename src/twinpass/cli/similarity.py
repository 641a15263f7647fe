"""The verb `similarity`: the cosine of two texts, of several, or of the texts in files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinpass.cli.console import Console, verb
from twinpass.cli.options import DEFAULT_MODEL, DataOptions, ModelOptions
from twinpass.errors import ConfigError, OutputError
from twinpass.files import check_writable
from twinpass.provenance import provenance
from twinpass.text.sources import is_file

if TYPE_CHECKING:
    from twinpass.text.corpus import Corpus

SUFFIXES = (".csv", ".npy")
TEXT_FILES = {".txt", ".csv", ".tsv", ".jsonl", ".parquet", ".gz", ".xz"}


@verb
def similarity(
    console: Console,
    chosen: ModelOptions,
    data: DataOptions,
    names: Annotated[
        list[str], typer.Argument(metavar="[MODEL] TEXT TEXT...", help="Texts; with --matrix or --pairwise, files.")
    ],
    matrix: Annotated[bool, typer.Option("--matrix", help="Files: each text of one with each of the other.")] = False,
    pairwise: Annotated[bool, typer.Option("--pairwise", help="Files: first with first, and so on.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Also write a .csv or .npy file.")] = None,
) -> None:
    """Compare sentences by the cosine of their vectors.

    Two texts give one number, more give a matrix. With --matrix or --pairwise the names are files; a single file
    of two text columns can be compared pairwise. Of more than two names the first is the model,
    unless it has a space in it; else the model is minilm.
    """
    from twinpass.cli.cosines import compare

    _check_options(matrix, pairwise, output)
    name, rest = chosen.named(names, least=2)
    if matrix or pairwise:
        corpora = [data.open(source) for source in rest]
        left, right = _columns(corpora, pairwise=pairwise)
    else:
        _check_texts(rest)
        corpora, left, right = [], rest, rest
    encoder = chosen.load(name, console)
    kind = "pairwise" if pairwise else "pair" if len(rest) == 2 and not matrix else "matrix"
    found = compare(encoder.encode, left, right, kind=kind)
    if output is not None:
        found.write(output)
    facts = provenance(
        model=encoder,
        data=[(corpus.source, corpus.fingerprint()) for corpus in corpora],
        options=console.described() | chosen.described() | data.described(),
    )
    console.result(facts | found.document(), human=found.human())


def _check_options(matrix: bool, pairwise: bool, output: Path | None) -> None:
    if matrix and pairwise:
        raise ConfigError("--matrix and --pairwise exclude each other: choose one.")
    if output is None:
        return
    if output.suffix not in SUFFIXES:
        raise OutputError(f"cannot write {output}: wanted a name that ends in {' or '.join(SUFFIXES)}.")
    check_writable(output)


def _check_texts(texts: list[str]) -> None:
    """Refuse what cannot have been meant: a single text, a model without texts, names of files taken as texts."""
    if len(texts) < 2 or (len(texts) == 2 and _is_model(texts[0])):
        raise ConfigError(f"wanted at least two texts to compare, got {' '.join(map(repr, texts))}.")
    for text in texts:
        if is_file(text):
            raise ConfigError(f"{text!r} is a file. To compare the texts in files, add --pairwise or --matrix.")
        if " " not in text and Path(text).suffix in TEXT_FILES:
            raise ConfigError(f"{text!r} looks like a file's name, and there is no such file. Check the path.")


def _is_model(text: str) -> bool:
    """Tell whether a first text must be a model's name: any word may also be the name of some folder."""
    return text == DEFAULT_MODEL or is_file(f"{text}/config.json")


def _columns(corpora: list[Corpus], *, pairwise: bool) -> tuple[list[str], list[str]]:
    """Return the texts to compare: those of two files, of one file with itself, or of a file's two columns."""
    if len(corpora) > 2:
        raise ConfigError(f"wanted one or two files to compare, got {len(corpora)}.")
    if len(corpora) == 1 and pairwise:
        return _two_columns(corpora[0])
    left, right = list(corpora[0].texts()), list(corpora[-1].texts())
    if pairwise and len(left) != len(right):
        raise ConfigError(
            f"--pairwise needs as many texts on both sides: {corpora[0].source} has {len(left)}, "
            f"{corpora[1].source} has {len(right)}. To compare each with each, use --matrix."
        )
    return left, right


def _two_columns(corpus: Corpus) -> tuple[list[str], list[str]]:
    if corpus.width != 2:
        raise ConfigError(
            f"--pairwise needs two files, or one with two text columns; {corpus.source} has {corpus.width}. "
            "Choose two with --columns."
        )
    rows = [row.texts for row in corpus]
    return [first for first, _ in rows], [second for _, second in rows]
