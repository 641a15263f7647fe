"""The verb `train`: sentences, pairs, triplets, classes or graded pairs in, a sentence encoder out."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from twinpass.cli.completion import POOLERS, PRECISIONS, presets, values
from twinpass.cli.console import DEFAULT_SEED, Console, command_line, verb
from twinpass.config import METHOD_DEFAULTS, PRESETS, USERS, Run, parts_of
from twinpass.display import counted

if TYPE_CHECKING:
    from twinpass.log import Evaluated, Event, Mixed, OnEvent, Result, Started, Stepped

# Fields that the command line names in its own way: by position, with a letter, or as every verb does.
NAMED_OTHERWISE = {"data", "mixture", "columns", "model", "output", "seed", "device"}
SHORT_NAMES = {"learning_rate": "--lr"}


def _field(field: dataclasses.Field[Any], hint: Any, method: str | None = None) -> tuple[str, Any, Any]:
    """Return a dataclass field whose default, None, means that the flag was not given.

    The help has the defaults of every method, or of the only one that the verb has.
    """
    about = field.metadata
    others = {name: its.fields[field.name] for name, its in METHOD_DEFAULTS.items() if field.name in its.fields}
    defaults = [str(field.default)] if field.default not in (None, False, "") else []
    defaults += [f"{name} {'none' if value is None else value}" for name, value in others.items()]
    users = USERS.get(field.name, ())
    unused = ", ".join(name for name in METHOD_DEFAULTS if users and name not in users)
    few = bool(users) and len(users) <= len(METHOD_DEFAULTS) // 2
    scope = f"{', '.join(users)} only" if few else unused and f"not for {unused}"
    choices = f" One of {', '.join(about['choices'])}." if about["choices"] else ""
    details = "; ".join(filter(None, (", ".join(defaults), scope, about["source"])))
    if method is not None:
        default = others.get(method, field.default)
        chosen = field.name == "layers"  # a verb with one method asks for it
        details = "" if chosen or default in (None, False, "") else str(default)
    help = about["help"] + choices + (f" [{details}]" if details else "")
    long = "--" + field.name.replace("_", "-")
    names = [f"{long}/--no-{long[2:]}"] if hint in (bool, bool | None) else [long]
    names += [SHORT_NAMES[field.name]] if field.name in SHORT_NAMES else []
    known = {"method": METHOD_DEFAULTS, "pooler": POOLERS, "precision": PRECISIONS}.get(field.name, about["choices"])
    complete = values(known) if known else None
    annotation = Annotated[hint | None, typer.Option(*names, help=help, show_default=False, autocompletion=complete)]
    return field.name, annotation, dataclasses.field(default=None)


_HINTS = get_type_hints(Run)
# The options of a run are derived from the fields of Run: a field added there is a flag here.
RunOptions = dataclasses.make_dataclass(
    "RunOptions",
    [_field(field, _HINTS[field.name]) for field in dataclasses.fields(Run) if field.name not in NAMED_OTHERWISE],
    frozen=True,
)


def options_of(method: str, names: Collection[str]) -> type:
    """Return a dataclass of some options of a run, for a verb that has one method only."""
    fields = [_field(field, _HINTS[field.name], method) for field in dataclasses.fields(Run) if field.name in names]
    return dataclasses.make_dataclass(f"{method.capitalize()}Options", fields, frozen=True)


# Options that `sweep` has, too.
StartModel = Annotated[
    str | None,
    typer.Option("--model", "-m", help="Model to start from: a folder or a hub name. [the preset's, or minilm]"),
]
TextColumns = Annotated[str | None, typer.Option(help="Text columns by name or position, comma-separated.")]
MoreData = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        help="One more file for the same run, with its own view; repeatable. wiki.txt:0.5 comes half as often as a "
        "file without a number; 'tickets.csv columns=text label=category' says how it is read.",
        show_default=False,
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(autocompletion=values(presets), help="A column of Table A.1, such as unsup-bert-base or sup-base."),
]


@verb
def train(
    console: Console,
    options: RunOptions,  # type: ignore[valid-type]
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the model, its log and checkpoints.")],
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="Text: one, two, three or more columns; a file, folder, -, docs: or docs-pairs:. With --resume it may "
            "be left out: OUTPUT/run.json has it, and all settings; with --data too.",
            show_default=False,
        ),
    ] = None,
    more_data: MoreData = None,
    model: StartModel = None,
    columns: TextColumns = None,
    preset: Preset = None,
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
    columns: pairs (Eq. 1). Three and more: pairs with hard negatives (Eqs. 5 and 8). With --label, rows of one class
    are positives; with --score, pairs are ranked by their scores; with --data, several files are learned from in turn.
    The model kept in OUTPUT is the best on --dev, or the last without it.
    """
    from twinpass.workflows.train import find_leakage
    from twinpass.workflows.train import train as run_training

    given = given_fields(options, model=model, columns=columns, more_data=more_data)
    if data is None and not more_data:
        run = _stored(output, console, resume=resume, preset=preset).replace(**given).check()
    else:
        run = new_run(console, given, data=data, output=output, preset=preset).check()
    console.log(_settings(run, preset))
    if leakage is not None:
        training = " + ".join(part.name for part in parts_of(run))
        for line in find_leakage(run, leakage).report(evaluation=leakage, training=training):
            console.log(line)
    with watching(console) as show:
        result = run_training(
            run, on_event=show, resume=resume, overwrite=overwrite, log=console.log, command=command_line()
        )
    if warning := _nothing_gained(result):
        console.warn(warning)
    console.log(_next_steps(result, run.method))
    console.show(result, preset=preset)
    if result.interrupted:
        raise typer.Exit(130)


def given_fields(
    options: Any, *, model: str | None, columns: str | None, more_data: list[str] | None
) -> dict[str, Any]:
    """Return the fields of a run that the user gave."""
    given = {name: value for name, value in dataclasses.asdict(options).items() if value is not None}
    given |= {} if model is None else {"model": model}
    given |= {"mixture": tuple(more_data)} if more_data else {}
    return given | ({} if columns is None else {"columns": tuple(name.strip() for name in columns.split(","))})


def new_run(console: Console, given: dict[str, Any], *, data: str | None, output: Path, preset: str | None) -> Run:
    """Return the run that the options of a verb describe; what is not given is the preset's or the method's."""
    base = PRESETS[preset] if preset is not None else Run()
    base = base if data else base.replace(view="auto")  # a preset's view is that of DATA
    return base.replace(data=data or "", output=str(output), seed=console.seed, device=console.device, **given)


def _stored(output: Path, console: Console, *, resume: bool, preset: str | None) -> Run:
    """Return the run that OUTPUT/run.json describes, for --resume without DATA."""
    if not resume:
        raise typer.BadParameter(
            "Missing argument 'DATA': the text to train on. Only with --resume or --data may it be left out"
        )
    if preset is not None:
        raise typer.BadParameter("--preset needs DATA; without it, --resume takes all settings from OUTPUT/run.json")
    run = Run.read(output / "run.json").replace(output=str(output))
    given = {"seed": console.seed} if console.seed != DEFAULT_SEED else {}
    return run.replace(**given, **({"device": console.device} if console.device != "auto" else {}))


def _settings(run: Run, preset: str | None) -> str:
    """Return the first line: which defaults apply, and the main settings."""
    whose = f"the preset {preset}" if preset is not None else f"the defaults of {run.method}"
    pooler = "" if run.pooler is None else f", pooler {run.pooler}"
    epochs = f"{run.epochs} epoch{'s' if run.epochs > 1 else ''}"  # may be a fraction
    length = epochs if run.steps is None else counted(run.steps, "step")
    return (
        f"settings: {whose} and your options; model {run.model}{pooler}, batch size {run.batch_size}, learning rate "
        f"{run.learning_rate:g}, {length}"
    )


def _next_steps(result: Result, method: str = "simcse") -> str:
    if not result.finished:
        return f"stopped at step {result.steps}. {result.advice}"
    output = result.output
    trials = [
        f'similarity "a sentence" "another sentence" -m {output}',
        f"encode sentences.txt -m {output} -o vectors.npy",
    ]
    if method == "infersent":  # not a transformer
        trials = [f"evaluate {output}"]
    return (
        f"{result.advice} Its card is {output / 'README.md'}, its report "
        f"{output / 'report.html'}. Try it:" + "".join(f"\n  twinpass {trial}" for trial in trials)
    )


def _nothing_gained(result: Result) -> str:
    """Return a warning if the dev score was highest before the training."""
    before, best = (scores.get("score", -math.inf) for scores in (result.before, result.best))
    if result.best and result.best_step == 0:
        return f"dev scored no step higher than the model it started from ({before:.2f}), so that one was kept."
    if not result.best or best >= before or math.isnan(before):
        return ""
    return (
        f"dev scored no step as high as the model it started from ({before:.2f} before, {best:.2f} at its best). "
        "--keep-start keeps the starting model in such a case."
    )


LINES = 10  # lines for the steps of a run where there is no terminal


@contextlib.contextmanager
def watching(console: Console) -> Iterator[OnEvent]:
    """Yield a function that shows the events of a training run."""
    view = TrainingView(console)
    try:
        yield view.show
    finally:
        view.close()


class TrainingView:
    """Shows the events of a training run: a live line on a terminal, a line now and then elsewhere."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live = not console.quiet and sys.stderr.isatty()
        self.bar: Any = None
        self._task: Any = None
        self._dev = ""
        self._losses: dict[str, float] = {}  # the latest of each part of a mixture

    def show(self, event: Event) -> None:
        """Show one event of the loop."""
        from twinpass.log import Evaluated, Mixed, Saved, Started, Stepped, Stopped

        if isinstance(event, Started):
            self._start(event)
        elif isinstance(event, Mixed):
            self._part(event)
        elif isinstance(event, Stepped):
            self._step(event)
        elif isinstance(event, Evaluated):
            self._evaluated(event)
        elif isinstance(event, Saved):
            self._say(f"checkpoint at step {event.step}")
        elif isinstance(event, Stopped) and event.reason == "early stop":
            self._say(f"stopped early at step {event.step}: the dev score no longer rises")

    def close(self) -> None:
        """Close the live line of a run, if there is one."""
        if self.bar is not None:
            self.bar.stop()
        self.bar, self._dev, self._losses = None, "", {}

    def _start(self, event: Started) -> None:
        self.close()  # of a sweep, the run before
        overlap = "" if event.lexical_overlap is None else f", lexical overlap of pairs {event.lexical_overlap:.0%}"
        self._say(f"{event.objective}, because {event.why}")
        self._say(f"{counted(event.rows, 'row')}{overlap}; pooler {event.pooler}; {event.parameters:,} parameters")
        self._say(
            f"steps {event.first_step} to {event.steps}, batches of {event.batch_size} ({event.epochs:.2g} epochs), "
            f"{counted(event.processes, 'process', 'processes')}"
        )
        for note in event.notes:
            self._say(f"note: {note}")
        if self.live:
            self._open_bar(event)

    def _part(self, event: Mixed) -> None:
        overlap = "" if event.lexical_overlap is None else f", lexical overlap of pairs {event.lexical_overlap:.0%}"
        self._say(
            f"part {event.name}: {event.share:.0%} of the steps, {counted(event.rows, 'row')}{overlap}, batches of "
            f"{event.batch_size}; {event.objective}, because {event.why}"
        )

    def _open_bar(self, event: Started) -> None:
        from rich.console import Console as RichConsole
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.bar = Progress(
            TextColumn("training"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=RichConsole(stderr=True),
            transient=True,
        )
        self._task = self.bar.add_task("", total=event.steps, completed=event.first_step, numbers="")
        self.bar.start()

    def _step(self, event: Stepped) -> None:
        loss = f"{event.loss:.4g}"
        if event.part:
            self._losses[event.part] = event.loss
            loss = ", ".join(f"{value:.4g} ({part})" for part, value in self._losses.items())
        numbers = f"loss {loss}  {event.sentences_per_second:,.0f} sentences/s{self._dev}"
        if self.bar is not None:
            self.bar.update(self._task, completed=event.step, numbers=numbers)
        elif event.step % max(1, event.steps // LINES) == 0:
            self._say(f"step {event.step}/{event.steps}  {numbers}  {event.seconds_left:,.0f} s left")

    def _evaluated(self, event: Evaluated) -> None:
        self._dev = f"  dev {event.score:.2f}"
        others = "  ".join(f"{name} {value:.3f}" for name, value in event.scores.items() if name != "score")
        self._say(f"dev at step {event.step}: {event.score:.2f}{' (best)' if event.best else ''}  {others}")

    def _say(self, line: str) -> None:
        if self.bar is None:
            self.console.log(line)
        elif not self.console.quiet:
            self.bar.console.print(line, highlight=False, markup=False)
