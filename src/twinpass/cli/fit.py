"""The verb `fit`: a model and sentences in, the model with a fitted layer out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twinpass.cli.completion import LAYERS, values
from twinpass.cli.console import Console, verb
from twinpass.cli.options import DataOptions, ModelOptions, only


@verb
def fit(
    console: Console,
    chosen: ModelOptions,
    data: DataOptions,
    layer: Annotated[
        str,
        typer.Argument(
            metavar="LAYER", autocompletion=values(LAYERS), help="whitening, flow, centring or top-components."
        ),
    ],
    names: Annotated[list[str], typer.Argument(metavar="DATA", help="A file, folder, pattern, - for stdin, or docs:")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the model with its layer.")],
    keep: Annotated[int | None, typer.Option(min=1, help="whitening: number of dimensions to keep.")] = None,
    components: Annotated[
        int | None,
        typer.Option(min=1, help="top-components: number to remove (default: a hundredth of the dimensions)."),
    ] = None,
    sample: Annotated[
        int | None, typer.Option(min=2, help="Fit to a sample of at most N sentences, drawn by --seed.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier fit wrote.")] = False,
) -> None:
    """Fit a layer to a model's vectors, and save both as one model.

    Every distinct sentence of DATA is encoded, the layer is fitted to the vectors and appended to the model. OUTPUT
    is written whole or not at all and is a model like any other.
    """
    from twinpass.workflows.fit import fit as fit_model

    source = only(names, f"fit {layer}", "DATA")
    fitted = fit_model(
        chosen.name,
        layer,
        data.open(source, console),
        output=output,
        keep=keep,
        components=components,
        sample=sample,
        seed=console.seed,
        overwrite=overwrite,
        progress=console.progress,
        log=console.log,
        **chosen.loading(console),
    )
    console.show(fitted)
