"""Serving until stopped: a socket, signals, and an end that loses no accepted request."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI

from twinpass.display import Displayed, Grid
from twinpass.errors import ConfigError
from twinpass.progress import Log, ignore
from twinpass.provenance import provenance
from twinpass.search.index import Index
from twinpass.service.app import Model, create_app
from twinpass.service.connections import SWITCH, Server
from twinpass.service.limits import is_loopback

KEY_VARIABLE = "TWINPASS_API_KEY"


@dataclass(frozen=True, repr=False)
class Serving(Displayed):
    """A service that has started."""

    url: str
    name: str  # of the first model, as clients call it
    models: Sequence[str]  # the names of all of them
    index: str | None
    provenance: Mapping[str, Any]

    def grids(self) -> Sequence[Grid]:
        """Return the address and what is served there."""
        return [Grid("", ["address", "models", "index"], [[self.url, ", ".join(self.models), self.index or "none"]])]


def serve(
    model: Model | Mapping[str, Model] | None = None,
    index: str | os.PathLike[str] | Index | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8_000,
    started: Callable[[Serving], None] = lambda serving: None,
    log: Log = ignore,
    **options: Any,
) -> None:
    """Serve a model, or several by name, until Ctrl-C or SIGTERM; requests accepted by then are still answered.

    `host` 0.0.0.0 lets other machines in; `port` 0 picks a free one. `started` is called with the address once requests
    are accepted. The other options are those of `create_app`. Stopping takes at most `timeout` plus five seconds: if a
    thread is still at work then, in native code for example, the process ends with it.
    """
    with listen(host, port) as bound:  # a port that is taken is reported before the model is loaded
        app = create_app(model, index, log=log, **options)
        service, url, bound_to = app.state.service, address(bound), bound.getsockname()[0]
        service.public = not is_loopback(bound_to)
        if service.api_key is None and service.public:
            log(f"twinpass: warning: other machines can reach this service without a key; set {KEY_VARIABLE}.")
        names = [served.name for served in service.models]
        log(f"serving {', '.join(names)} at {url} (Ctrl-C stops; API: {url}/docs)")
        place = index.place if isinstance(index, Index) else index
        first = service.models[0]
        encoder = first.encoder
        computing = {name: getattr(encoder, name) for name in ("pooler", "max_tokens", "precision")}
        computing |= {"runtime": encoder.runtime_name, "device": str(encoder.device), "normalize": first.normalize}
        facts = provenance(model=encoder, options=computing)
        started(Serving(url, first.name, names, None if place is None else str(place), facts))
        run_server(app, bound)
    log("stopped.")
    if service.at_work:  # for nobody; the interpreter's own end does not cope with threads in the middle of native code
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that already accepts connections; port 0 picks a free one."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        bound = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        advice = "Choose another with --host or --port; port 0 picks a free one."
        raise ConfigError(f"cannot serve at {host} port {port}: {error}. {advice}") from error
    # Inherited by connections. asyncio sets it only on sockets that name their protocol, which these do not; without it
    # the second part of an answer waits some 40 ms for the client to acknowledge the first.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound


def address(bound: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run_server(app: FastAPI, bound: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, then accept nothing new, finish what was accepted, and return."""
    server = Server(app)
    sys.setswitchinterval(SWITCH)
    # uvicorn raises the signal again when it is done; stopping on request is not a failure.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: None)
    try:
        server.run(sockets=[bound])
    finally:
        server.stopped()
