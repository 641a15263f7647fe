"""The verb `serve`: models behind HTTP, for clients that speak OpenAI's embeddings API, or TEI's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from twinpass.cli.console import Console, verb
from twinpass.cli.options import ModelOptions
from twinpass.errors import ConfigError


@dataclass(frozen=True)
class LimitOptions:
    """How much the service accepts; the fields are those of twinpass.service.limits.Limits."""

    max_batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens encoded together.")] = 4_096
    max_batches: Annotated[int, typer.Option(min=1, help="Batches encoded at the same time by torch on a CPU.")] = 2
    max_queue: Annotated[int, typer.Option(min=1, help="Texts that may wait; more are answered with 429.")] = 4_096
    max_connections: Annotated[int, typer.Option(min=1, help="Open connections; idle ones make room.")] = 1_024
    max_searches: Annotated[int, typer.Option(min=1, help="Searches that may wait; more are answered with 503.")] = 64
    max_texts: Annotated[int, typer.Option(min=1, help="Texts in the index, for clients that add some.")] = 1_000_000
    max_inputs: Annotated[int, typer.Option(min=1, help="Texts in one request.")] = 2_048
    max_chars: Annotated[int, typer.Option(min=1, help="Characters of one text.")] = 100_000
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of one request.")] = 4 << 20
    max_hits: Annotated[int, typer.Option(min=1, help="Queries times k of one search.")] = 20_480
    max_words: Annotated[int, typer.Option(min=1, help="Words that one search by keyword looks for.")] = 20_480
    max_answer: Annotated[int, typer.Option(min=1, help="Bytes of the answer to one search.")] = 64 << 20
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds for a request to arrive, and for its answer.")] = (
        60.0
    )


@dataclass(frozen=True)
class ServedOptions(ModelOptions):
    """How to load the models, of which there may be several."""

    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model", "-m", help="As MODEL; repeatable as NAME=MODEL. Default: the index's own model, else minilm."
        ),
    ] = None  # type: ignore[assignment]


@verb
def serve(
    console: Console,
    chosen: ServedOptions,
    bounds: LimitOptions,
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL]...", help="A folder, a hub name, or minilm (built in); several as NAME=MODEL."),
    ] = None,
    index: Annotated[Path | None, typer.Option(help="An index to search, made by: twinpass index.")] = None,
    host: Annotated[str, typer.Option(help="0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 picks a free one.")] = 8_000,
    api_key: Annotated[
        str | None, typer.Option(envvar="TWINPASS_API_KEY", help="Require this key of every client.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A host name to answer to, besides localhost; repeatable.")
    ] = None,
    name: Annotated[list[str] | None, typer.Option(help="What clients call a single model; repeatable.")] = None,
    open_metrics: Annotated[bool, typer.Option("--open-metrics", help="Let /metrics be read without the key.")] = False,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Refuse to add and remove texts, which clients with the key may.")
    ] = False,
    normalize: Annotated[bool, typer.Option("--normalize", help="Scale every vector to length one.")] = False,
) -> None:
    """Serve a model, or several, over HTTP for clients of OpenAI's embeddings API and of TEI's.

    Prints its address on stdout and runs until Ctrl-C or SIGTERM; requests accepted by then are still answered. Texts
    that are added to the index meanwhile are found without a restart.
    """
    from twinpass.service.limits import Limits
    from twinpass.service.server import serve as serve_model

    serve_model(
        named_models([*(models or ()), *(chosen.model or ())]),
        index,
        host=host,
        port=port,
        name=name or (),
        api_key=api_key or None,
        allow_hosts=allow_host or (),
        open_metrics=open_metrics,
        read_only=read_only,
        normalize=normalize,
        limits=Limits(**asdict(bounds)),
        started=lambda serving: console.result(serving.to_dict(), human=serving.url),
        log=console.log,
        **chosen.loading(console),
    )


def named_models(given: Sequence[str]) -> str | dict[str, str] | None:
    """Return one model, or several by name; a folder whose own name contains = is one model."""
    if not given or (len(given) == 1 and ("=" not in given[0] or Path(given[0]).is_dir())):
        return given[0] if given else None
    models: dict[str, str] = {}
    for each in given:
        name, separator, model = each.partition("=")
        if not (name and separator and model):
            raise ConfigError(f"expected NAME=MODEL for each of several models, got {each!r}.")
        if name in models:
            raise ConfigError(f"expected a different name for each model, got {name!r} twice.")
        models[name] = model
    return models
