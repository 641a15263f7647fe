"""The process that serves: a socket, signals, and an end that loses nothing."""

from __future__ import annotations

import signal
import socket
from types import FrameType

import uvicorn
from fastapi import FastAPI

from twinpass.errors import ConfigError

GRACE = 5  # seconds beyond a request's own limit, after which stopping no longer waits


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that already takes connections; port 0 stands for any that is free."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        bound = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"cannot serve at {host} port {port}: {error}. Choose another with --host or --port; port 0 is any."
        ) from error
    # Connections inherit it. asyncio would set it on sockets that name their protocol, which these do not; without it
    # the second part of an answer waits some 40 ms for the client to acknowledge the first.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound


def address(bound: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_local(bound: socket.socket) -> bool:
    """Tell whether only this machine can reach the socket."""
    host = bound.getsockname()[0]
    return bool(host.startswith("127.") or host == "::1")


def run_server(app: FastAPI, bound: socket.socket, *, seconds: float) -> None:
    """Serve until SIGINT or SIGTERM, then take nothing new, finish what was accepted, and return."""
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=int(seconds) + GRACE
    )
    # uvicorn raises the signal again when it is done; an end that was asked for is not a failure.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _nothing_more)
    uvicorn.Server(config).run(sockets=[bound])


def _nothing_more(number: int, frame: FrameType | None) -> None:
    """Do nothing: the server has stopped by now."""
