"""The verb `serve`: a model behind HTTP, for clients that speak OpenAI's embeddings API."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from twinpass.cli.console import Console, verb
from twinpass.cli.options import ModelOptions, exactly


@dataclass(frozen=True)
class LimitOptions:
    """How much the service accepts; the fields are those of twinpass.service.limits.Limits."""

    max_batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens encoded together.")] = 4_096
    max_batches: Annotated[int, typer.Option(min=1, help="Batches encoded at the same time by torch on a CPU.")] = 2
    max_queue: Annotated[int, typer.Option(min=1, help="Texts that may wait; more are answered with 429.")] = 4_096
    max_connections: Annotated[int, typer.Option(min=1, help="Open connections; idle ones make room.")] = 1_024
    max_searches: Annotated[int, typer.Option(min=1, help="Searches that may wait; more are answered with 503.")] = 64
    max_inputs: Annotated[int, typer.Option(min=1, help="Texts in one request.")] = 2_048
    max_chars: Annotated[int, typer.Option(min=1, help="Characters of one text.")] = 100_000
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of one request.")] = 4 << 20
    max_hits: Annotated[int, typer.Option(min=1, help="Queries times k of one search.")] = 20_480
    max_answer: Annotated[int, typer.Option(min=1, help="Bytes of the answer to one search.")] = 64 << 20
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds for a request to arrive, and for its answer.")] = (
        60.0
    )


@verb
def serve(
    console: Console,
    chosen: ModelOptions,
    bounds: LimitOptions,
    names: Annotated[list[str] | None, typer.Argument(metavar="[MODEL]", help="As for encode.")] = None,
    index: Annotated[Path | None, typer.Option(help="An index to search, made by: twinpass index.")] = None,
    host: Annotated[str, typer.Option(help="0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 picks a free one.")] = 8_000,
    api_key: Annotated[
        str | None, typer.Option(envvar="TWINPASS_API_KEY", help="Require this key of every client.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A host name to answer to, besides localhost; repeatable.")
    ] = None,
    name: Annotated[list[str] | None, typer.Option(help="What clients call the model; repeatable.")] = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Scale every vector to length one.")] = False,
) -> None:
    """Serve a model over HTTP for clients of OpenAI's embeddings API.

    Prints its address on stdout and runs until Ctrl-C or SIGTERM; requests accepted by then are still answered. Texts
    that are added to the index meanwhile are found without a restart.
    """
    from twinpass.service.limits import Limits
    from twinpass.service.server import serve as serve_model

    if names:
        exactly(names, 1, "one MODEL")
    serve_model(
        names[0] if names else chosen.model,
        index,
        host=host,
        port=port,
        name=name or (),
        api_key=api_key or None,
        allow_hosts=allow_host or (),
        normalize=normalize,
        limits=Limits(**asdict(bounds)),
        started=lambda serving: console.result(serving.to_dict(), human=serving.url),
        log=console.log,
        **chosen.loading(console),
    )
