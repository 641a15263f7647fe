"""The verb `serve`: a model behind HTTP, for clients that speak OpenAI's embeddings API."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinpass.cli.console import Console, verb
from twinpass.cli.model import ModelOptions, exactly
from twinpass.errors import MissingExtra
from twinpass.provenance import installed, provenance

if TYPE_CHECKING:
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
    api_key: Annotated[
        str | None, typer.Option(envvar=KEY_VARIABLE, help="Ask every client for this key.")
    ] = None,
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

    model, rest = chosen.named(names or [], least=0)
    exactly(rest, 0, "one MODEL")
    limits = bounds.limits()
    with listen(host, port) as bound:  # a port that is taken is said before the model is loaded
        encoder = chosen.load(model, console)
        service = Service(
            encoder,
            names=name or (),
            index=_open(index, encoder),
            limits=limits,
            api_key=api_key or None,
            normalize=normalize,
        )
        if service.api_key is None and not is_local(bound):
            console.log(
                f"twinpass: warning: other machines may reach this without a key; set {KEY_VARIABLE}."
            )
        url = address(bound)
        console.log(f"serving {service.name} at {url} (Ctrl-C stops; API: {url}/docs)")
        facts = provenance(model=encoder, options=console.described() | chosen.described())
        console.result(facts | {"url": url, "index": index}, human=url)
        run_server(create_app(service), bound, seconds=limits.seconds)
    console.log("stopped.")


def _check_installed() -> None:
    if installed("fastapi") is None or installed("uvicorn") is None:
        raise MissingExtra("twinpass serve", "serve")


def _open(folder: Path | None, encoder: Any) -> Any:
    """Open the index, if there is one, and refuse one that another model has made."""
    if folder is None:
        return None
    from twinpass.search.index import Index

    index = Index.open(folder)
    index.check_model(name=encoder.name, fingerprint=encoder.fingerprint)
    return index
