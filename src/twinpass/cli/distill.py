"""The verb `distill`: a teacher and texts in, a smaller student out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twinpass.cli.console import Console, verb
from twinpass.cli.train import TextColumns, given_fields, options_of, watching

# The options of training that apply to a student with layers; the others keep their defaults.
_USED = ["layers", "match", "steps", "epochs", "batch_size", "learning_rate", "max_tokens", "chunk_tokens", "precision"]
_USED += ["dev", "eval_every", "save_every", "pooler", "header", "skip_bad_rows", "trust_pickle", "trust_remote_code"]
StudentOptions = options_of("distill", _USED)


@verb
def distill(
    console: Console,
    options: StudentOptions,  # type: ignore[valid-type]
    teacher: Annotated[str, typer.Argument(metavar="TEACHER", help="A folder, a hub name, or minilm (built in).")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the student.")],
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="[TEXT]",
            help="Text to learn from; --static counts tokens in it: a file, folder, pattern, - for stdin. "
            "Default: docs:",
        ),
    ] = None,
    static: Annotated[
        bool, typer.Option("--static", help="Make a static student: one vector per token; runs without torch.")
    ] = False,
    dimensions: Annotated[int, typer.Option(min=1, help="--static: numbers in a vector.")] = 256,
    weights: Annotated[
        str, typer.Option(help="--static: weight tokens by their rarity in TEXT (text), by Zipf's law (zipf), or none.")
    ] = "text",
    rarity: Annotated[
        float,
        typer.Option(
            help="--static: a of the weights a / (a + p), p the token's frequency; lower: less for frequent ones."
        ),
    ] = 3e-4,
    data: Annotated[
        str | None, typer.Option(help="Folder of STS tasks in SentEval's layout: scores teacher and student.")
    ] = None,
    tasks: Annotated[
        str | None,
        typer.Option(help="What to score both on, as in `evaluate` (default: sts with --data, and docs-pairs:)."),
    ] = None,
    columns: TextColumns = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a stopped training, bit-for-bit identically.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier distill wrote.")] = False,
) -> None:
    """Make a smaller student of a model, and show what is lost and gained beside the teacher.

    --layers 3: some layers of the teacher, trained on TEXT to give the teacher's cosines or vectors. --static: one
    vector per token, reduced and weighted; far faster, and without torch. OUTPUT is a model like any other.
    """
    from twinpass.workflows.distill import distill as distill_model

    given = given_fields(options, model=None, columns=columns, more_data=None)
    with watching(console) as show:
        distilled = distill_model(
            teacher,
            text,
            output=output,
            static=static,
            dimensions=dimensions,
            weights=weights,
            rarity=rarity,
            data=data,
            tasks=tasks,
            seed=console.seed,
            device=console.device,
            resume=resume,
            overwrite=overwrite,
            on_event=show,
            progress=console.progress,
            log=console.log,
            **given,
        )
    console.show(distilled)
