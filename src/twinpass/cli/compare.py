"""The verb `compare`: two models on the same pairs, and whether a difference shows."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinpass.cli.console import Console, verb
from twinpass.cli.judge import JudgeOptions, open_judged
from twinpass.cli.options import ModelOptions, exactly
from twinpass.errors import ConfigError
from twinpass.provenance import provenance

if TYPE_CHECKING:
    from rich.console import Group

    from twinpass.evaluation.compare import Difference, Judged


@verb
def compare(
    console: Console,
    chosen: ModelOptions,
    judge: JudgeOptions,
    names: Annotated[list[str], typer.Argument(metavar="A B", help="Models, or .json files that evaluate wrote.")],
) -> None:
    """Compare two models, or two result files, pair by pair.

    A paired bootstrap: both are resampled alike, so that what is hard for both cancels out. Where the interval of
    the difference holds zero, it says "no difference shown".
    """
    from twinpass.evaluation.compare import compare as paired

    exactly(names, 2, "two models or result files, A and B")
    if chosen.model is not None:
        raise ConfigError("--model is not for compare: name both models, A and B.")
    first, second = _judge(names, chosen, judge, console)
    found = paired(first, second, resamples=judge.resamples, seed=console.seed)
    document = provenance(options=chosen.described() | judge.described()) | {
        "first": first.name,
        "second": second.name,
        "seed": console.seed,
        "differences": [asdict(entry) for entry in found],
    }
    console.result(document, human=_table(found, first, second))


def _judge(names: list[str], chosen: ModelOptions, judge: JudgeOptions, console: Console) -> tuple[Judged, Judged]:
    """Read result files, evaluate models; data is read once for both."""
    from twinpass.evaluation.compare import judged, read_judged

    jobs = None
    sides = []
    for name in names:
        if name.endswith(".json"):
            sides.append(read_judged(Path(name)))
            continue
        jobs = judge.jobs(console) if jobs is None else jobs
        sides.append(judged(judge.run(console, open_judged(name, chosen, console), jobs)))
    return sides[0], sides[1]


def _table(found: list[Difference], first: Judged, second: Judged) -> Group:
    from rich.console import Group
    from rich.table import Table

    table = Table()
    for column in ("task", "metric", "A", "B", "A - B", "95 % interval", "p", "n"):
        table.add_column(column, justify="left" if column in ("task", "metric") else "right")
    table.add_column("shown")
    for entry in found:
        table.add_row(
            entry.task,
            entry.metric,
            f"{entry.first:.2f}",
            f"{entry.second:.2f}",
            f"{entry.difference:+.2f}",
            f"{entry.low:+.2f} to {entry.high:+.2f}",
            f"{entry.p:.3f}",
            f"{entry.n:,}",
            entry.verdict,
        )
    return Group(f"A = {first.name}, B = {second.name} (x 100, paired bootstrap)", table)
