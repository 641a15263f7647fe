"""The verb `evaluate`: score a model on STS, transfer and your own data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinpass.cli import completion
from twinpass.cli.console import Console, verb
from twinpass.cli.options import DEFAULT_MODEL, CacheOption, ModelOptions

if TYPE_CHECKING:
    from twinpass.evaluation.results import Saved


@dataclass(frozen=True)
class TaskOptions:
    """Which tasks, which data, which protocol: what `evaluate` and `compare` share."""

    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "--tasks",
            "-t",
            autocompletion=completion.tasks,
            help="sts, transfer, task names, scored:FILE, labelled:FILE, retrieval:FILE, docs-pairs:, mteb:NAME; "
            "comma-separated. Default: sts with --data, else docs-pairs:",
        ),
    ] = None
    data: Annotated[
        str | None, typer.Option(help="Folder of the tasks in SentEval's layout, or hub (STS only).")
    ] = None  # fmt: skip
    protocol: Annotated[str, typer.Option(help="Of transfer: full (published numbers) or fast.")] = "full"
    split: Annotated[str, typer.Option(help="Of STS-B and SICK-R: test or dev.")] = "test"
    regressor: Annotated[
        bool, typer.Option("--regressor", help="Also score STS-B and SICK-R with SentEval's regressor.")
    ] = False
    columns: Annotated[
        str | None, typer.Option(help="Text columns of your own files by name or position, comma-separated.")
    ] = None
    score: Annotated[str | None, typer.Option(help="Score or label column of your own files.")] = None
    resamples: Annotated[
        int, typer.Option(min=0, help="Bootstrap resamples behind an interval; of evaluate, 0 for no intervals.")
    ] = 2000
    cache: CacheOption = True

    def given(self, chosen: ModelOptions, console: Console) -> dict[str, Any]:
        """Return the options as the library takes them."""
        shared = {"seed": console.seed, "progress": console.progress, "log": console.log}
        return vars(self) | shared | chosen.loading(console)


@dataclass(frozen=True)
class SizedModelOptions(ModelOptions):
    """As every verb loads a model, but with several sizes of its vectors."""

    dimensions: Annotated[
        str | None,
        typer.Option(help="Keep only the first N numbers of each vector; several sizes, 384,192,96,48, make a curve."),
    ] = None  # type: ignore[assignment]


@verb
def evaluate(
    console: Console,
    chosen: SizedModelOptions,
    options: TaskOptions,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]...",
            help="A folder, hub name, word vectors (.txt, .gz), stored vectors (.parquet, .npy) or http(s) URL; "
            "several are shown side by side.",
        ),
    ] = None,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output", "-o", help="Also write .json (for `compare`), .csv, .parquet, .jsonl, .md or .tex; repeatable."
        ),
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            autocompletion=completion.values(completion.FORMATS),
            help="table, json, csv, markdown or latex.",
        ),
    ] = "table",
    cells: Annotated[
        bool, typer.Option("--cells", help="Show STS by every aggregation, metric and regressor.")
    ] = False,
    subsets: Annotated[bool, typer.Option("--subsets", help="Show each year's STS subsets.")] = False,
    beside: Annotated[str | None, typer.Option(help="'paper': show the paper's published rows beside ours.")] = None,
    write_texts: Annotated[
        Path | None, typer.Option("--write-texts", help="Only write the tasks' distinct texts to a file, one per line.")
    ] = None,
    list_tasks: Annotated[bool, typer.Option("--list", help="Only list the known tasks.")] = False,
) -> None:
    """Score models on STS, transfer and your own data, every score with its protocol and a 95 % interval."""
    from twinpass.evaluation import evaluate as library
    from twinpass.evaluation import results, tasks
    from twinpass.evaluation.side_by_side import evaluate_models

    results.FORMATS[form]  # a wrong name shows before anything is encoded
    if list_tasks:
        console.show(tasks.list_tasks())
        return
    if write_texts is not None:
        shaping = {name: getattr(options, name) for name in ("tasks", "data", "split", "regressor", "columns", "score")}
        texts = library.task_texts(**shaping, output=write_texts)
        console.result(
            {"output": str(write_texts), "texts": len(texts)}, human=f"{len(texts):,} texts in {write_texts}"
        )
        return
    named = chosen.models(names) or [DEFAULT_MODEL]
    shown = {"cells": cells, "subsets": subsets, "beside": beside, "output": output or ()}
    given = options.given(chosen, console) | shown
    if len(named) > 1:
        found: Saved = evaluate_models(named, **given)
    else:
        found = library.evaluate(named[0], **given)
    if form == "table":
        console.show(found)
    else:
        console.result(found.to_dict() if console.json else {}, human=found.to_text(form))
