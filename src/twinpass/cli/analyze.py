"""The verb `analyze`: what models do to a space, as numbers, figures and one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinpass.cli.analysing import LookOptions, Study, study
from twinpass.cli.console import Console, command_line, verb
from twinpass.cli.options import DEFAULT_MODEL, DataOptions, ModelOptions
from twinpass.cli.variants import Variant, parse_variants
from twinpass.errors import ConfigError
from twinpass.provenance import provenance

if TYPE_CHECKING:
    from rich.console import RenderableType

    from twinpass.analysis.trajectory import RunLog


@verb
def analyze(
    console: Console,
    chosen: ModelOptions,
    reading: DataOptions,
    look: LookOptions,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]...",
            help="Models as `evaluate` takes them; MODEL#pooler=avg,layers=3,whiten,label=NAME for variants.",
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the report.")] = Path("report"),
    data: Annotated[
        str | None, typer.Option("--data", "-d", help="Scored pairs (STS-B's layout, csv, jsonl), pairs or text.")
    ] = None,
    runs: Annotated[
        bool, typer.Option("--runs", help="The MODELs are training runs: draw their paths (Figure 2).")
    ] = False,
) -> None:
    """Look at the space that models make of sentences: alignment, uniformity, spectrum, densities, neighbours.

    The report is a folder: index.html (one page that opens from disk), figures/ (SVG and PNG, light and dark) and
    analysis.json with all numbers.
    """
    if data is None and not runs:
        raise ConfigError("analyze wants sentences to look at: --data FILE (or docs:), or --runs RUN ...")
    given = [*([chosen.model] if chosen.model else []), *(names or [])]
    variants = parse_variants(given or [DEFAULT_MODEL])
    from twinpass.analysis.report import check_target

    check_target(output)
    logs = _read_logs(variants, all_of_them=data is None) if runs else []
    found = None if data is None else study(console, chosen, reading, look, data=data, variants=variants)
    options = chosen.described() | reading.described() | look.described() | console.described()
    facts = provenance(options={"models": given, "runs": runs, "data": data} | options)
    document = facts | {"command": command_line()} | _document(found, logs)
    _write(output, found, logs, document, facts)
    console.log(f"the report is {output / 'index.html'}")
    console.result(document, human=_table(found, logs))


def _read_logs(variants: list[Variant], *, all_of_them: bool) -> list[RunLog]:
    """Read the runs among the names; without --data there is nothing else that a name could be."""
    from dataclasses import replace

    from twinpass.analysis.trajectory import has_log, read_trajectory

    runs = [each for each in variants if all_of_them or has_log(each.source)]
    if not runs:
        raise ConfigError("none of the models is a training run with a log. Name a run, or leave --runs out.")
    return [replace(read_trajectory(each.source), name=each.label) for each in runs]


def _document(found: Study | None, logs: list[RunLog]) -> dict[str, Any]:
    from twinpass.analysis.measure import to_document
    from twinpass.files import plain

    document: dict[str, Any] = {}
    if found is not None:
        document = to_document(found.sample, found.analyses, found.neighbours)
        document["sample"]["fingerprint"] = found.data_fingerprint
        document["averages"] = found.averages
    columns = ("step", "alignment", "uniformity")
    document["runs"] = [
        {"name": log.name, "geometry": [dict(zip(columns, point, strict=True)) for point in log.geometry]}
        for log in logs
    ]
    flat: dict[str, Any] = plain(document)
    return flat


def _write(
    output: Path, found: Study | None, logs: list[RunLog], document: dict[str, Any], facts: dict[str, Any]
) -> None:
    from twinpass.analysis.again import again_section
    from twinpass.analysis.report import Report, write_report
    from twinpass.files import plain

    made_from: list[tuple[str, str, str | None]] = []
    if found is not None:
        made_from = [("model", each.name, each.fingerprint) for each in found.analyses]
        made_from.append(("data", found.sample.source, found.data_fingerprint))
    made_from += [("run", log.name, None) for log in logs]
    last = again_section(command_line(), fingerprints=made_from, facts=plain(facts))
    report = Report(
        title="What the models make of a space" if found else "Paths of training",
        sample=found.sample if found else None,
        analyses=found.analyses if found else (),
        neighbours=found.neighbours if found else None,
        averages=found.averages if found else {},
        runs=logs,
        last=[last],
    )
    write_report(output, report, document)


def _table(found: Study | None, logs: list[RunLog]) -> RenderableType:
    from rich.table import Table

    if found is None:
        table = Table("run", "points", "alignment, first and last", "uniformity, first and last")
        for log in logs:
            first, last = log.geometry[0], log.geometry[-1]
            paths = (f"{first[at]:.3f} -> {last[at]:.3f}" for at in (1, 2))
            table.add_row(log.name, str(len(log.geometry)), *paths)
        return table
    from twinpass.analysis.report import COLUMNS, to_row

    table = Table(title=found.sample.protocol, title_justify="left")
    for column in COLUMNS:
        table.add_column(column.title, justify="left" if column.title == "model" else "right")
    for each in found.analyses:
        cells = zip(to_row(each), COLUMNS, strict=True)
        table.add_row(*(f"{v:.{c.decimals}f}" if isinstance(v, float) else str(v or "-") for v, c in cells))
    return table
