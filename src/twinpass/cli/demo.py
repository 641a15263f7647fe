"""The verb `demo`: the main job on the built-in corpus, from text to a better search, in a few minutes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinpass.cli.console import Console, command_line, verb
from twinpass.cli.options import DEFAULT_MODEL

if TYPE_CHECKING:
    from twinpass.workflows.demo import Demo


@verb
def demo(
    console: Console,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the two trained models.")] = Path(
        "twinpass-demo"
    ),
    packages: Annotated[
        str, typer.Option(help="Comma-separated Python packages whose documentation to use; all by default.")
    ] = "",
    model: Annotated[str, typer.Option("--model", "-m", help="The model to start from.")] = DEFAULT_MODEL,
    steps: Annotated[int, typer.Option(min=1, help="Training steps for each of the two models.")] = 30,
    batch_size: Annotated[int, typer.Option(min=2, help="Rows in a batch.")] = 64,
    serve: Annotated[
        bool, typer.Option("--serve", help="Then serve a page to search the documentation with the new model.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port of the page; 0 picks a free one.")] = 8_000,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Train on this machine's Python documentation and search it, before and after.

    The task: given a function's one-line summary, find its description among up to 1,000 that training never saw.
    The built-in model is measured, trained on pairs (supervised) and on single sentences (unsupervised SimCSE),
    measured again, and asked three questions. With --serve, a page to search the documentation follows; models that an
    earlier demo left in --output are served at once.
    """
    from twinpass.cli.train import watching
    from twinpass.workflows.demo import demo as run_demo

    def show(result: Demo) -> None:
        if console.json or result.scores:
            console.show(result)

    run_demo(
        output,
        packages=packages,
        model=model,
        steps=steps,
        batch_size=batch_size,
        seed=console.seed,
        device=console.device,
        serve=serve,
        port=port,
        open_browser=open_browser,
        command=command_line(),
        found=show,
        started=lambda url: None if console.json else console.result({}, human=url),  # the JSON document has it
        watch=lambda: watching(console),
        progress=console.progress,
        log=console.log,
    )
