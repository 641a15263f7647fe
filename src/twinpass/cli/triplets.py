"""The verb `triplets`: inference data in, pairs with hard negatives out."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinpass.cli.console import Console, verb
from twinpass.errors import ConfigError, InputError, OutputError
from twinpass.provenance import provenance

if TYPE_CHECKING:
    from rich.table import Table

    from twinpass.text.nli import NLI

HEADER = ("sent0", "sent1", "hard_neg")
SUFFIXES = (".csv", ".tsv", ".jsonl")


@verb
def triplets(
    console: Console,
    files: Annotated[
        list[str], typer.Argument(metavar="FILES...", help="SNLI, MNLI or ANLI as released, or tables with a label.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="A .csv, .tsv or .jsonl file.")],
    negatives: Annotated[
        str, typer.Option(help="What a hard negative is: contradiction, neutral or both.")
    ] = "contradiction",
    pairs: Annotated[
        str | None, typer.Option(help="Write pairs instead: entailment, neutral, contradiction or all.")
    ] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="Keep so many rows, drawn at random, in order.")] = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Leave out and count rows that cannot be read.")
    ] = False,
) -> None:
    """Make training triplets of inference data.

    Every entailment pair whose premise also has a contradiction becomes a row: premise, entailment, contradiction.
    Where there are several contradictions, one is drawn. Train on it with: twinpass train nli.csv --preset sup-base.
    """
    from twinpass.files import check_writable, sha256
    from twinpass.text.nli import read_nli

    _check(output, negatives=negatives, pairs=pairs)
    check_writable(output)
    nli = read_nli(files, skip_bad_rows=skip_bad_rows)
    rows: Sequence[Sequence[str]] = (
        nli.triplets(negatives=negatives, sample=sample, seed=console.seed)
        if pairs is None
        else nli.pairs(pairs, sample=sample, seed=console.seed)
    )
    if not rows:
        needed = _needed(negatives) if pairs is None else "none is of the kind asked for"
        raise InputError(f"{', '.join(files)}: nothing to write ({_spoken(nli)}): {needed}.")
    _write(output, rows)
    made = "triplets" if pairs is None else "pairs"
    console.log(f"{_spoken(nli)} -> {output}: {len(rows):,} {made}")
    options = console.described() | {"negatives": negatives, "pairs": pairs, "sample": sample}
    options |= {"skip_bad_rows": skip_bad_rows}
    by_file = nli.triplets_by_file(negatives=negatives) if pairs is None else None
    found = _document(nli, by_file) | {"rows": len(rows), "output": output, "sha256": sha256(output)}
    console.result(provenance(options=options) | found, human=_table(nli, by_file))


def _check(output: Path, *, negatives: str, pairs: str | None) -> None:
    """Refuse what cannot be, before anything is read."""
    from twinpass.text.nli import NEGATIVES, PAIRS, choose

    choose(negatives, "negatives", NEGATIVES)
    if pairs is not None:
        choose(pairs, "pairs", PAIRS)
        if negatives != "contradiction":
            raise ConfigError("pairs have no hard negative: leave --negatives out, or --pairs.")
    if output.suffix not in SUFFIXES:
        raise OutputError(f"cannot tell from its name how to write {output}. Wanted {', '.join(SUFFIXES)}.")


def _write(output: Path, rows: Sequence[Sequence[str]]) -> None:
    from twinpass.files import writing

    header = HEADER[: len(rows[0])]
    with writing(output) as aside, aside.open("w", encoding="utf-8", newline="") as stream:
        if output.suffix == ".csv":
            csv.writer(stream, lineterminator="\n").writerows([header, *rows])
        elif output.suffix == ".tsv":  # which has no way to write a tab or line end inside a text
            stream.writelines("\t".join(" ".join(t.split()) for t in row) + "\n" for row in [header, *rows])
        else:
            stream.writelines(
                json.dumps(dict(zip(header, row, strict=True)), ensure_ascii=False) + "\n" for row in rows
            )


def _spoken(nli: NLI) -> str:
    counts = nli.counts
    kinds = ", ".join(f"{counts[label]:,} {label}" for label in nli.labelled)
    return f"{kinds} pairs, {counts['skipped']:,} rows skipped"


def _needed(negatives: str) -> str:
    other = "contradiction or a neutral pair" if negatives == "both" else f"{negatives} pair"
    return f"no premise has both an entailment and a {other}"


def _document(nli: NLI, by_file: Sequence[int] | None) -> dict[str, Any]:
    files = [
        {"source": file.source, "pairs": dict(file.pairs), "skipped": dict(file.skipped)}
        | ({} if by_file is None else {"triplets": by_file[place]})
        for place, file in enumerate(nli.files)
    ]
    return {"counts": nli.counts, "files": files}


def _table(nli: NLI, by_file: Sequence[int] | None) -> Table:
    from rich.table import Table

    table = Table("file")
    for name in (*nli.labelled, "skipped", *(["triplets"] if by_file is not None else [])):
        table.add_column(name, justify="right")
    for place, file in enumerate(nli.files):
        cells = [*(file.pairs[label] for label in nli.labelled), file.skipped.total()]
        cells += [] if by_file is None else [by_file[place]]
        table.add_row(file.source, *(f"{cell:,}" for cell in cells))
    return table
