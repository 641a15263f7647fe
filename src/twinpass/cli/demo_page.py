"""`demo --serve`: the demo's model and an index of the documentation, behind the page."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinpass.cli.console import Console
from twinpass.errors import MissingExtra
from twinpass.provenance import installed
from twinpass.workflows.dev import BUILT_IN

if TYPE_CHECKING:
    from twinpass.encoder.encoder import Encoder
    from twinpass.search.index import Block, Index

INDEXED = 10_000  # sentences: a minute's work on a laptop's processor, and enough to find something of everything


@dataclass(frozen=True)
class PageOptions:
    """Whether and where the page is served."""

    serve: Annotated[
        bool, typer.Option("--serve", help="Then serve a page to search the documentation with the new model.")
    ] = False
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Of the page; 0: any that is free.")] = 8_000
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[socket.socket | None]:
        """Yield the socket to serve at, or None; what stands in the way is said before minutes of work."""
        if not self.serve:
            yield None
            return
        if installed("fastapi") is None or installed("uvicorn") is None:
            raise MissingExtra("twinpass demo --serve", "serve")
        from twinpass.service.server import listen

        with listen("127.0.0.1", self.port) as bound:
            yield bound

    @staticmethod
    def address(bound: socket.socket) -> str:
        """Return where the page will be."""
        from twinpass.service.server import address

        return address(bound)


def is_trained(folder: Path) -> bool:
    """Tell whether a training has ended well in this folder."""
    return (folder / "twinpass.json").is_file() and (folder / "run.json").is_file()


def serve_demo(console: Console, options: PageOptions, bound: socket.socket, model: Path, packages: str) -> None:
    """Index the documentation with the trained model beside it, and serve both until told to stop."""
    from twinpass.encoder.encoder import Encoder
    from twinpass.service.app import create_app
    from twinpass.service.limits import Limits
    from twinpass.service.server import run_server
    from twinpass.service.service import Service

    encoder = Encoder.load(model, device=console.device)
    index = open_demo_index(console, encoder, model.parent / "index", packages)
    limits = Limits()
    url = options.address(bound)
    console.log("serving the page (Ctrl-C stops) at:")
    if not console.json:  # there it is part of the one document, printed before
        console.result({}, human=url)
    if options.open_browser:
        import webbrowser

        webbrowser.open(url)  # the socket listens already: the browser waits the moment until it is answered
    run_server(create_app(Service(encoder, index=index, limits=limits)), bound, seconds=limits.seconds)
    console.log("stopped.")


def open_demo_index(console: Console, encoder: Encoder, folder: Path, packages: str) -> Index:
    """Return the index that an earlier demo has made with this model, or make it."""
    from twinpass.search.index import Index
    from twinpass.search.texts import describe_model
    from twinpass.text.corpus import open_corpus

    if Index.exists(folder):
        index = Index.open(folder)
        first = index.info()["history"][0]
        if index.model["fingerprint"] == encoder.fingerprint and first.get("packages") == packages:
            return index
    texts = list(dict.fromkeys(open_corpus(BUILT_IN + packages).texts()))
    chosen = texts[:: -(-len(texts) // INDEXED)]  # evenly over the packages
    console.log(f"indexing {len(chosen):,} of {len(texts):,} sentences of the documentation ...")
    return Index.from_blocks(
        folder,
        _blocks(console, encoder, chosen),
        model=describe_model(encoder),
        overwrite=True,
        facts={"packages": packages},
    )


def _blocks(console: Console, encoder: Encoder, texts: list[str]) -> Iterator[Block]:
    from twinpass.search.index import Block

    with console.progress("encoding", total=len(texts)) as advance:
        for some, vectors, _ in encoder.encode_stream(texts, normalize=True):
            yield Block(list(some), vectors)
            advance(len(some))
