"""The verb `quantize`: a model and texts in, the model in int8 out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twinpass.cli.console import Console, verb
from twinpass.cli.options import DataOptions, PoolerOption, TrustPickle, TrustRemoteCode


@verb
def quantize(
    console: Console,
    columns: DataOptions,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A folder, a hub name, or minilm (built in).")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the model in int8.")],
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="[TEXT]",
            help="Text to calibrate and measure on: a file, folder, pattern, - for stdin. Default: docs:",
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Folder of STS tasks in SentEval's layout: scores both precisions.")
    ] = None,
    pooler: PoolerOption = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=3, help="Truncate texts to this many tokens (default: the model's limit).")
    ] = None,
    texts: Annotated[int, typer.Option(min=1, help="Number of texts to calibrate with.")] = 300,
    minimum_cosine: Annotated[
        float, typer.Option("--min-cosine", min=0, max=1, help="Refuse a lower mean cosine to the fp32 vectors.")
    ] = 0.99,
    force: Annotated[bool, typer.Option("--force", help="Accept any cosine, as --min-cosine 0.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier quantize wrote.")] = False,
    trust_pickle: TrustPickle = False,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Quantise a model to int8: two to three times as fast on a CPU, a quarter of the size, without torch.

    A sample of TEXT calibrates; on other texts of it the cosine to the fp32 vectors and the rate of both are measured.
    OUTPUT is written whole or not at all and is a model like any other: encode, evaluate, index, search, serve.
    """
    from twinpass.workflows.quantize import quantize as quantize_model

    quantized = quantize_model(
        model,
        None if text is None else columns.open(text, console),
        output=output,
        data=data,
        texts=texts,
        minimum_cosine=0.0 if force else minimum_cosine,
        seed=console.seed,
        overwrite=overwrite,
        progress=console.progress,
        log=console.log,
        pooler=pooler,
        max_tokens=max_tokens,
        trust_pickle=trust_pickle,
        trust_remote_code=trust_remote_code,
    )
    console.show(quantized)
