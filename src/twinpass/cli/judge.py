"""What `evaluate` and `compare` share: which tasks on which data, and opening a model to be judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinpass.cli.console import Console
from twinpass.cli.options import ModelOptions

if TYPE_CHECKING:
    from twinpass.encoder.any_model import Model
    from twinpass.evaluation.jobs import Job
    from twinpass.evaluation.results import Results


@dataclass(frozen=True)
class JudgeOptions:
    """Which tasks, which data, which protocol."""

    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "--tasks",
            "-t",
            help="sts, transfer, task names, scored:FILE, labelled:FILE, retrieval:FILE, docs-pairs:, mteb:NAME; "
            "with commas between. Default: sts with --data, else docs-pairs:",
        ),
    ] = None
    data: Annotated[str | None, typer.Option(help="Folder of the tasks in SentEval's layout, or hub (STS only).")] = (
        None
    )
    protocol: Annotated[str, typer.Option(help="Of transfer: full (published numbers) or fast.")] = "full"
    split: Annotated[str, typer.Option(help="Of STS-B and SICK-R: test or dev.")] = "test"
    regressor: Annotated[
        bool, typer.Option("--regressor", help="Also score STS-B and SICK-R with SentEval's regressor.")
    ] = False
    columns: Annotated[str | None, typer.Option(help="Text columns of your own files: sent0,sent1 (or positions).")] = (
        None
    )
    score: Annotated[str | None, typer.Option(help="Score or label column of your own files.")] = None
    resamples: Annotated[int, typer.Option(min=100, help="Bootstrap resamples behind an interval.")] = 2000
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Neither read nor keep vectors on disk.")] = False

    @property
    def named(self) -> str:
        """The tasks asked for, as one list with commas."""
        return ",".join(self.tasks) if self.tasks else ("sts" if self.data else "docs-pairs:")

    def jobs(self, console: Console) -> list[Job]:
        """Read the data of all tasks, so that a bad file shows before anything is encoded."""
        from twinpass.evaluation.evaluate import make_jobs
        from twinpass.evaluation.jobs import Settings

        settings = Settings(
            data=self.data,
            protocol=self.protocol,
            split=self.split,
            regressor=self.regressor,
            resamples=self.resamples,
            seed=console.seed,
        )
        columns = None if self.columns is None else [name.strip() for name in self.columns.split(",")]
        return make_jobs(self.named, settings, columns=columns, score=self.score)

    def run(self, console: Console, model: Model, jobs: Sequence[Job]) -> Results:
        """Encode what the jobs need, once, and score."""
        from twinpass.encoder.vector_cache import Cache
        from twinpass.evaluation.evaluate import evaluate
        from twinpass.evaluation.jobs import Settings

        texts = len({text for job in jobs for text in job.texts})
        console.log(f"{model.name}: {texts:,} distinct texts ...")
        with console.progress("encoding", total=texts) as advance:
            return evaluate(
                model,
                jobs,
                settings=Settings(resamples=self.resamples, seed=console.seed),
                cache=None if self.no_cache else Cache(),
                advance=advance,
                log=console.log,
            )

    def described(self) -> dict[str, Any]:
        """Return the options that shape the scores, for a result's provenance."""
        names = ("data", "protocol", "split", "regressor", "columns", "score", "resamples")
        return {"tasks": self.named} | {name: getattr(self, name) for name in names}


def open_judged(name: str, chosen: ModelOptions, console: Console) -> Model:
    """Open anything that turns texts into vectors."""
    from twinpass.encoder.any_model import open_model

    console.log(f"loading {name} ...")
    return open_model(name, **chosen.loading(console))


def write_text(target: Path, text: str) -> None:
    """Write text to a file, whole or not at all."""
    from twinpass.files import writing

    with writing(target) as aside:
        aside.write_text(text, encoding="utf-8")
