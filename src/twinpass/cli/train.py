"""The verb `train`: sentences, pairs or triplets in, a sentence encoder out."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from twinpass.cli.console import Console, command_line, verb
from twinpass.config import PRESETS, Run
from twinpass.provenance import provenance

if TYPE_CHECKING:
    from twinpass.log import Result

# Fields that the command line names in its own way: by position, with a letter, or as every verb does.
NAMED_OTHERWISE = {"data", "columns", "model", "output", "seed", "device"}
SHORT_NAMES = {"learning_rate": "--lr"}


def _field(field: dataclasses.Field[Any], hint: Any) -> tuple[str, Any, Any]:
    """Return a dataclass field whose default, None, means that the flag was not given."""
    details = [str(field.default)] if field.default not in (None, False, "") else []
    details += [field.metadata["source"]] if field.metadata["source"] else []
    choices = ", ".join(field.metadata["choices"])
    help = field.metadata["help"] + (f" One of {choices}." if choices else "")
    help += f" [{'; '.join(details)}]" if details else ""
    long = "--" + field.name.replace("_", "-")
    names = [f"{long}/--no-{long[2:]}"] if hint in (bool, bool | None) else [long]
    names += [SHORT_NAMES[field.name]] if field.name in SHORT_NAMES else []
    annotation = Annotated[hint | None, typer.Option(*names, help=help, show_default=False)]
    return field.name, annotation, dataclasses.field(default=None)


_HINTS = get_type_hints(Run)
# The options of a run are derived from the fields of Run: a field added there is a flag here.
RunOptions = dataclasses.make_dataclass(
    "RunOptions",
    [_field(field, _HINTS[field.name]) for field in dataclasses.fields(Run) if field.name not in NAMED_OTHERWISE],
    frozen=True,
)


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
        str | None,
        typer.Option("--model", "-m", help="Model to start from: a folder or a hub name. [the preset's, or minilm]"),
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Text columns by name or position, comma-separated.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="A column of Table A.1, such as unsup-bert-base or sup-base.")
    ] = None,
    leakage: Annotated[
        str | None, typer.Option(help="An evaluation file: report which of its sentences the training text contains.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the newest checkpoint, bit-for-bit identically.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run in OUTPUT.")] = False,
) -> None:
    """Train a sentence encoder, with SimCSE or another --method.

    One column of text: unsupervised SimCSE, each sentence is encoded twice and dropout is the only noise (Eq. 4). Two
    columns: pairs (Eq. 1). Three: pairs with a hard negative (Eqs. 5 and 8). The model kept in OUTPUT is the best
    on --dev, or the last without it.
    """
    from twinpass.cli.training_view import TrainingView
    from twinpass.workflows.train import find_leakage
    from twinpass.workflows.train import train as run_training

    given = {name: value for name, value in dataclasses.asdict(options).items() if value is not None}
    given |= {} if model is None else {"model": model}
    given |= {} if columns is None else {"columns": tuple(name.strip() for name in columns.split(","))}
    base = PRESETS[preset] if preset is not None else Run()
    run = base.replace(data=data, output=str(output), seed=console.seed, device=console.device, **given).check()
    console.log(_settings(run, preset))
    if leakage is not None:
        for line in find_leakage(run, leakage).report(evaluation=leakage, training=data):
            console.log(line)
    with TrainingView(console) as view:
        result = run_training(
            run, on_event=view.show, resume=resume, overwrite=overwrite, log=console.log, command=command_line()
        )
    console.log(_next_steps(result, run.method))
    console.show(result, **provenance(options={"run": run, "preset": preset}))
    if result.interrupted:
        raise typer.Exit(130)


def _settings(run: Run, preset: str | None) -> str:
    """Return the first line: which defaults apply, and the main settings."""
    whose = f"the preset {preset}" if preset is not None else f"the defaults of {run.method}"
    pooler = "" if run.pooler is None else f", pooler {run.pooler}"
    length = f"{run.steps} steps" if run.steps is not None else f"{run.epochs} epoch{'s' if run.epochs > 1 else ''}"
    return (
        f"settings: {whose} and your options; model {run.model}{pooler}, batch size {run.batch_size}, learning rate "
        f"{run.learning_rate:g}, {length}"
    )


def _next_steps(result: Result, method: str = "simcse") -> str:
    if not result.finished:
        return f"stopped at step {result.steps}. {result.advice}"
    output = result.output
    trials = [f'similarity {output} "a sentence" "another sentence"', f"encode {output} sentences.txt -o vectors.npy"]
    if method == "infersent":  # not a transformer
        trials = [f"evaluate {output}"]
    return (
        f"{_nothing_gained(result)}{result.advice} Its card is {output / 'README.md'}, its report "
        f"{output / 'report.html'}. Try it:" + "".join(f"\n  twinpass {trial}" for trial in trials)
    )


def _nothing_gained(result: Result) -> str:
    """Return a warning if the dev score was higher before the training."""
    worse = bool(result.best) and result.best["score"] < result.before.get("score", -math.inf)
    if not worse:
        return ""
    scores = f"{result.before['score']:.2f} before, {result.best['score']:.2f} at its best"
    return f"twinpass: warning: dev scored no step as high as the model it started from ({scores}).\n"
