"""The verb `export`: a model in, a folder to share out, or a model on the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twinpass.cli.console import Console, verb
from twinpass.cli.options import PoolerOption, TrustPickle, TrustRemoteCode


@verb
def export(
    console: Console,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A folder, a hub name, or minilm (built in).")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder to write; may be left out with --to-hub.")
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            help="safetensors (default): for sentence-transformers, transformers and twinpass; onnx (extra [onnx]): "
            "one graph for other software; openvino: twinpass without torch (the default for a quantised model).",
        ),
    ] = None,
    to_hub: Annotated[
        str | None, typer.Option("--to-hub", metavar="NAME", help="Upload the folder to the hub as owner/name.")
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="Make a new repository on the hub private.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what an earlier export wrote, here and on the hub.")
    ] = False,
    pooler: PoolerOption = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=3, help="Truncate texts to this many tokens (default: the model's limit).")
    ] = None,
    trust_pickle: TrustPickle = False,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Write a model into a folder to share: its weights, head, layers and model card; no checkpoints, no logs.

    The folder is loaded again and its vectors are compared with the model's. It is written whole or not at all.
    Nothing is uploaded without --to-hub.
    """
    from twinpass.workflows.export import export as export_model

    exported = export_model(
        model,
        output=output,
        format=format,
        to_hub=to_hub,
        private=private,
        overwrite=overwrite,
        log=console.log,
        pooler=pooler,
        max_tokens=max_tokens,
        trust_pickle=trust_pickle,
        trust_remote_code=trust_remote_code,
    )
    console.show(exported)
