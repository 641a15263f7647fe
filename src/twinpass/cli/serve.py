"""The verb `serve`: a model behind HTTP, for clients that speak OpenAI's embeddings API."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinpass.cli.console import Console, verb
from twinpass.cli.options import DEFAULT_MODEL, ModelOptions, exactly
from twinpass.errors import MissingExtra
from twinpass.provenance import installed, provenance

if TYPE_CHECKING:
    from twinpass.encoder.encoder import Encoder
    from twinpass.search.index import Index
    from twinpass.service.limits import Limits

KEY_VARIABLE = "TWINPASS_API_KEY"


@dataclass(frozen=True)
class LimitOptions:
    """How much the service takes on."""

    max_batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens encoded together.")] = 4_096
    max_queue: Annotated[int, typer.Option(min=1, help="Texts that may wait; more are answered 429.")] = 4_096
    max_inputs: Annotated[int, typer.Option(min=1, help="Texts in one request.")] = 2_048
    max_chars: Annotated[int, typer.Option(min=1, help="Characters of one text.")] = 100_000
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of one request.")] = 4 << 20
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds that a request may take.")] = 60.0

    def limits(self) -> Limits:
        """Return the options as the service takes them."""
        from twinpass.service.limits import Limits

        return Limits(
            batch_tokens=self.max_batch_tokens,
            queue=self.max_queue,
            inputs=self.max_inputs,
            characters=self.max_chars,
            body=self.max_body,
            seconds=self.timeout,
        )


@verb
def serve(
    console: Console,
    chosen: ModelOptions,
    bounds: LimitOptions,
    names: Annotated[list[str] | None, typer.Argument(metavar="[MODEL]", help="As for encode.")] = None,
    index: Annotated[Path | None, typer.Option(help="An index to search, made by: twinpass index.")] = None,
    host: Annotated[str, typer.Option(help="0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0: any that is free.")] = 8_000,
    api_key: Annotated[str | None, typer.Option(envvar=KEY_VARIABLE, help="Ask every client for this key.")] = None,
    name: Annotated[
        list[str] | None, typer.Option(help="What clients call the model; may be given several times.")
    ] = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Scale every vector to length one.")] = False,
) -> None:
    """Serve a model over HTTP, as OpenAI's clients speak it.

    Prints its address on stdout and runs until Ctrl-C or SIGTERM; what was accepted by then is still answered.
    """
    _check_installed()
    from twinpass.service.app import create_app
    from twinpass.service.server import address, is_local, listen, run_server
    from twinpass.service.service import Service

    if names:
        exactly(names, 1, "one MODEL")
    limits = bounds.limits()
    with listen(host, port) as bound:  # a port that is taken is said before the model is loaded
        encoder, opened = _load(replace(chosen, model=names[0] if names else chosen.model), index, console)
        service = Service(
            encoder, names=name or (), index=opened, limits=limits, api_key=api_key or None, normalize=normalize
        )
        if service.api_key is None and not is_local(bound):
            console.log(f"twinpass: warning: other machines may reach this without a key; set {KEY_VARIABLE}.")
        url = address(bound)
        console.log(f"serving {service.name} at {url} (Ctrl-C stops; API: {url}/docs)")
        facts = provenance(model=encoder, options=console.described() | chosen.described())
        console.result(facts | {"url": url, "index": index}, human=url)
        run_server(create_app(service), bound, seconds=limits.seconds)
    console.log("stopped.")


def _check_installed() -> None:
    if installed("fastapi") is None or installed("uvicorn") is None:
        raise MissingExtra("twinpass serve", "serve")


def _load(chosen: ModelOptions, folder: Path | None, console: Console) -> tuple[Encoder, Index | None]:
    """Load the model that is named, or the one that the index asks for; another than that is refused."""
    if folder is None:
        return chosen.load(chosen.model or DEFAULT_MODEL, console), None
    from twinpass.search.index import Index

    index = Index.open(folder, encoder=chosen.model, log=console.log, **chosen.loading(console))
    return index.encoder, index
