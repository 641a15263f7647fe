"""The verb `train`: sentences, pairs or triplets in, a sentence encoder out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinpass.cli.console import Console, command_line, verb
from twinpass.cli.options import DEFAULT_MODEL
from twinpass.cli.run_options import RunOptions, describe_run
from twinpass.provenance import provenance
from twinpass.workflows.dev import open_dev, rows_to_learn_from
from twinpass.workflows.training_reports import write_run_report

if TYPE_CHECKING:
    from twinpass.config import Run
    from twinpass.log import Result


@verb
def train(
    console: Console,
    options: RunOptions,  # type: ignore[valid-type]
    data: Annotated[
        str,
        typer.Argument(metavar="DATA", help="Text: one, two or three columns; a file, folder, -, docs: or docs-pairs:"),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the model, its log and checkpoints.")],
    model: Annotated[
        str, typer.Option("--model", "-m", help="Where to start: a folder, a hub name or minilm.")
    ] = DEFAULT_MODEL,
    columns: Annotated[str | None, typer.Option(help="Text columns by name or position, with commas between.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="A column of Table A.1, such as unsup-bert-base or sup-base.")
    ] = None,
    dev: Annotated[
        str | None,
        typer.Option(
            help="Scored pairs (STS-B's layout, csv, jsonl), pairs to retrieve, or docs: - scored as it learns."
        ),
    ] = None,
    leakage: Annotated[
        str | None, typer.Option(help="An evaluation file: report which of its sentences the training text holds.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint, bit by bit.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run in OUTPUT.")] = False,
) -> None:
    """Train a sentence encoder with SimCSE.

    One column of text: unsupervised, the same sentence passes twice and dropout is the only noise (Eq. 4). Two
    columns: pairs (Eq. 1). Three: pairs with a hard negative (Eqs. 5 and 8). The model kept in OUTPUT is the best
    on --dev, or the last without it.
    """
    from twinpass.cli.training_view import TrainingView, result_table
    from twinpass.training.loop import train as run_training

    run = describe_run(
        options,
        preset=preset,
        data=data,
        model=model,
        output=str(output),
        columns=None if columns is None else tuple(name.strip() for name in columns.split(",")),
        seed=console.seed,
        device=console.device,
    ).check()
    evaluate = open_dev(dev) if dev is not None else None
    if evaluate is not None:
        console.log(f"dev: {evaluate.protocol}")
    if leakage is not None:
        _report_leakage(console, run, leakage)
    rows = _without_held_out(console, run, dev)
    with TrainingView(console) as view:
        result = run_training(run, evaluate=evaluate, on_event=view.show, rows=rows, resume=resume, overwrite=overwrite)
    protocol = evaluate.protocol if evaluate is not None else None
    facts = provenance(options={"run": run, "dev": dev, "preset": preset})
    if result.finished:
        write_run_report(result, protocol=protocol, facts=facts, command=command_line())
    console.log(_next_steps(result))
    console.result(facts | {"protocol": protocol, "result": result}, human=result_table(result, protocol))
    if not result.finished:
        raise typer.Exit(130)


def _without_held_out(console: Console, run: Run, dev: str | None) -> Any:
    """Keep what a built-in dev set asks for out of built-in training text."""
    rows = rows_to_learn_from(run.data, dev=dev, columns=run.columns)
    if rows is not None:
        console.log(f"{len(rows):,} rows of {run.data} are for training; what {dev} asks for is held out")
    return rows


def _report_leakage(console: Console, run: Run, evaluation: str) -> None:
    from twinpass.text.corpus import open_corpus
    from twinpass.training.care import leakage

    training = open_corpus(run.data, columns=run.columns, skip_bad_rows=run.skip_bad_rows, header=run.header)
    found = leakage(training, open_corpus(evaluation))
    console.log(
        f"leakage: {found.sentences:,} of {found.of_sentences:,} sentences of {evaluation}, and {found.rows:,} of "
        f"its {found.of_rows:,} rows whole, occur in {run.data}"
    )
    for example in found.examples:
        console.log(f"  {example}")


def _next_steps(result: Result) -> str:
    if not result.finished:
        return f"stopped at step {result.steps}. {result.advice}"
    return (
        f"{_nothing_gained(result)}{result.advice} Its card is {result.output / 'README.md'}, "
        f"its report {result.output / 'report.html'}. Try it:\n"
        f'  twinpass similarity {result.output} "a sentence" "another sentence"\n'
        f"  twinpass encode {result.output} sentences.txt -o vectors.npy"
    )


def _nothing_gained(result: Result) -> str:
    """Return a warning where dev says that the model was better before the training."""
    worse = bool(result.best) and result.best["score"] < result.before.get("score", -math.inf)
    if not worse:
        return ""
    scores = f"{result.before['score']:.2f} before, {result.best['score']:.2f} at its best"
    return f"twinpass: warning: dev scored no step as high as the model it started from ({scores}).\n"
