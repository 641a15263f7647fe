"""The verb `encode`: sentences in, vectors out, in a file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from twinpass.cli.console import Console, verb
from twinpass.cli.options import DataOptions, ModelOptions, only
from twinpass.errors import ConfigError
from twinpass.text.sources import MAX_LINE_BYTES


@dataclass(frozen=True)
class RayOptions:
    """Whether to encode on the workers of a Ray cluster."""

    ray: Annotated[bool, typer.Option("--ray", help="Encode on many workers with Ray (extra [ray]).")] = False
    workers: Annotated[
        int | None, typer.Option(min=1, help="With --ray: number of workers (default: all cores, or all GPUs).")
    ] = None
    address: Annotated[
        str | None, typer.Option(help="With --ray: a cluster, auto or HOST:6379 (default: one on this machine).")
    ] = None


@verb
def encode(
    console: Console,
    chosen: ModelOptions,
    data: DataOptions,
    cluster: RayOptions,
    names: Annotated[list[str], typer.Argument(metavar="INPUT", help="A file, folder, pattern, - for stdin, or docs:")],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="A .npy, .parquet, .safetensors, .jsonl or .csv file; - writes JSON lines to stdout."
        ),
    ],
    max_line_bytes: Annotated[
        int, typer.Option(min=1, help="A longer line is a bad row (of parquet: a longer text).")
    ] = MAX_LINE_BYTES,
    normalize: Annotated[bool, typer.Option("--normalize", help="Scale every vector to length one.")] = False,
    shard_rows: Annotated[
        int | None, typer.Option(min=1, help="Make OUTPUT a folder of files with at most this many rows; resumable.")
    ] = None,
) -> None:
    """Turn sentences into vectors, in a file.

    One float32 vector per text, in order; a row of several text columns gives its vectors one after another. Parquet,
    jsonl and csv also keep the texts and the other columns of the input. A single file appears whole or not at
    all; a folder of shards that was stopped is resumed by the same command.
    """
    from twinpass.bulk.encode_file import encode_file

    piped = str(output) == "-"
    if piped and console.json:
        raise ConfigError("--json prints the result on stdout, where -o - writes the vectors: choose one.")
    result = encode_file(
        only(names, "encode", "INPUT"),
        console.stdout if piped else output,
        model=chosen.name,
        normalize=normalize,
        max_line_bytes=max_line_bytes,
        shard_rows=shard_rows,
        progress=console.progress,
        log=console.log,
        **asdict(data),
        **asdict(cluster),
        **chosen.loading(console),
    )
    console.log(result.summary())
    console.result(result.to_dict())
