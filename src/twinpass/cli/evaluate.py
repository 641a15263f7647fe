"""The verb `evaluate`: score a model on STS, transfer and one's own data."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinpass.cli.console import Console, verb
from twinpass.cli.judge import JudgeOptions, open_judged, write_text
from twinpass.cli.options import ModelOptions, exactly
from twinpass.errors import ConfigError, OutputError
from twinpass.files import check_writable, write_json
from twinpass.provenance import provenance

if TYPE_CHECKING:
    from twinpass.evaluation.results import Results

FORMATS = ("table", "json", "csv", "markdown", "latex")
SUFFIXES = {".json": "json", ".csv": "csv", ".md": "markdown", ".tex": "latex"}


@verb
def evaluate(
    console: Console,
    chosen: ModelOptions,
    judge: JudgeOptions,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]",
            help="A folder, hub name, word vectors (.txt, .gz), stored vectors (.parquet, .npy) or http(s) URL.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write .json (for `compare`), .csv, .md or .tex.")
    ] = None,
    form: Annotated[str, typer.Option("--format", help="table, json, csv, markdown or latex.")] = "table",
    cells: Annotated[bool, typer.Option("--cells", help="Show STS by every protocol, not one.")] = False,
    subsets: Annotated[bool, typer.Option("--subsets", help="Show each year's STS subsets.")] = False,
    beside: Annotated[str | None, typer.Option(help="'paper': show the paper's published rows beside ours.")] = None,
    write_texts: Annotated[
        Path | None, typer.Option("--write-texts", help="Only write the tasks' distinct texts to a file, one a line.")
    ] = None,
    list_tasks: Annotated[bool, typer.Option("--list", help="Only list the tasks that are known.")] = False,
) -> None:
    """Score a model on STS, transfer and your own data, every score with its protocol and a 95 % interval."""
    from twinpass.evaluation.grids import make_grids
    from twinpass.evaluation.report import to_rich

    _check(form, output, beside)
    if list_tasks:
        _list(console)
        return
    if write_texts is not None:
        _write_texts(console, judge, write_texts)
        return
    name, rest = chosen.named(names or [], least=0)
    exactly(rest, 0, "one MODEL and nothing after it")
    jobs = judge.jobs(console)
    results = judge.run(console, open_judged(name, chosen, console), jobs)
    grids = make_grids(results, all_cells=cells, subsets=subsets, beside=beside is not None)
    document = _document(results, judge, chosen, beside=beside is not None)
    if output is not None:
        _write(output, results, document, grids)
    if form == "table" or console.json:
        console.result(document, human=to_rich(grids))
    else:
        console.result(document, human=_text(form, results, document, grids))


def _check(form: str, output: Path | None, beside: str | None) -> None:
    if form not in FORMATS:
        raise ConfigError(f"no format named {form!r}. Known: {', '.join(FORMATS)}.")
    if beside not in (None, "paper"):
        raise ConfigError(f"--beside wants 'paper', got {beside!r}.")
    if output is not None:
        if output.suffix not in SUFFIXES:
            raise OutputError(f"cannot write {output}: wanted a name that ends in {', '.join(SUFFIXES)}.")
        check_writable(output)


def _document(results: Results, judge: JudgeOptions, chosen: ModelOptions, *, beside: bool) -> dict[str, Any]:
    from twinpass.evaluation.published import PUBLISHED
    from twinpass.evaluation.results import to_document

    options = chosen.described() | judge.described()
    finished = datetime.now(timezone.utc).isoformat(timespec="seconds")
    document = provenance(options=options) | {"finished": finished} | to_document(results)
    if beside:
        document["beside"] = [row._asdict() | {"cell": row.cell.name if row.cell else None} for row in PUBLISHED]
    return document


def _write(output: Path, results: Results, document: dict[str, Any], grids: list[Any]) -> None:
    if output.suffix == ".json":
        write_json(output, document)
    else:
        write_text(output, _text(SUFFIXES[output.suffix], results, document, grids))


def _text(form: str, results: Results, document: dict[str, Any], grids: list[Any]) -> str:
    import json

    from twinpass.evaluation.report import TEXTS, to_csv
    from twinpass.files import plain

    if form == "json":
        return json.dumps(plain(document), indent=2, ensure_ascii=False, allow_nan=False)
    return to_csv(results).rstrip("\n") if form == "csv" else TEXTS[form](grids).rstrip("\n")


def _write_texts(console: Console, judge: JudgeOptions, target: Path) -> None:
    check_writable(target)
    texts = dict.fromkeys(text for job in judge.jobs(console) for text in job.texts if text)
    write_text(target, "".join(f"{' '.join(text.split())}\n" for text in texts))
    console.result({"output": str(target), "texts": len(texts)}, human=f"{len(texts):,} texts in {target}")


def _list(console: Console) -> None:
    from dataclasses import asdict

    from rich.table import Table

    from twinpass.evaluation.tasks import TASKS

    table = Table("task", "kind", "rows", "licence", "citation")
    for name in TASKS:
        task = TASKS[name]
        rows = " / ".join(f"{part.name} {part.rows:,}" for part in task.parts)
        table.add_row(name, task.kind, rows, task.licence, task.citation)
    console.result({"tasks": [asdict(TASKS[name]) for name in TASKS]}, human=table)
