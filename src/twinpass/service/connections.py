"""What uvicorn's server lacks: a bound on connections, an end to those that stand still, and an end to stopping."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

if TYPE_CHECKING:
    from fastapi import FastAPI

    from twinpass.service.app import Service

GRACE = 5  # seconds beyond a request's own limit, after which stopping no longer waits
SPARE_FILES = 16  # for what the process opens beside connections: segments of the index, for example
BACKLOG = 2_048  # connections that the system holds until they are accepted
TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


# Seconds after which a thread that runs Python code gives way (5 ms by default). The encoding threads ask for the lock
# after every operation of torch, and would stand still while requests are read and answers are written.
SWITCH = 0.0005


class Server(uvicorn.Server):
    """Closes connections that stand still for longer than `timeout`, and ends the process if stopping takes too long.

    A connection stands still while it waits for a complete header, be it idle, slow or half open: uvicorn's own timer
    knows only the first. A request may take three times as long: to arrive, to be worked on, and to be read.
    """

    def __init__(self, app: FastAPI) -> None:
        service: Service = app.state.service
        self.timeout = service.limits.timeout
        self.max_connections, backlog = _shares(service.limits.max_connections)
        super().__init__(
            uvicorn.Config(
                app,
                http=_reporting(self._make_room),
                ws="none",  # an upgraded connection would be one of a kind that this class does not know
                log_level="warning",
                access_log=False,
                server_header=False,
                backlog=backlog,
                timeout_keep_alive=math.ceil(self.timeout) + GRACE,  # ours comes first
                timeout_graceful_shutdown=math.ceil(self.timeout),
            )
        )
        self._since: dict[Any, tuple[object, bool, float]] = {}  # for each connection: its request, idle?, since when
        self._last_resort: threading.Timer | None = None

    async def on_tick(self, counter: int) -> bool:
        """Look at all connections, ten times a second."""
        self.close_stale(time.monotonic())
        return await super().on_tick(counter)

    def close_stale(self, now: float) -> None:
        """Close the connections that have not moved on for too long."""
        since = {}
        connections: tuple[Any, ...] = tuple(self.server_state.connections)
        for connection in connections:
            request, idle = connection.cycle, _is_idle(connection)
            seen = self._since.get(connection)
            began = seen[2] if seen is not None and seen[:2] == (request, idle) else now
            if now - began > (1 if idle else 3) * self.timeout:
                connection.transport.abort()  # not close, which would wait until all is read that was written
            else:
                since[connection] = (request, idle, began)
        self._since = since

    def _make_room(self, new: Any) -> None:
        """Close the connection that has been idle for the longest when there is one too many."""
        connections = self.server_state.connections
        if len(connections) > self.max_connections:
            idle = [each for each in connections if each is not new and _is_idle(each)]
            if idle:
                now = time.monotonic()
                oldest = min(idle, key=lambda each: self._since[each][2] if each in self._since else now)
                self._drop(oldest)
            else:
                new.transport.write(TOO_MANY)
                self._drop(new, gently=True)
                return
        self._since[new] = (None, True, time.monotonic())

    def _drop(self, connection: Any, *, gently: bool = False) -> None:
        self.server_state.connections.discard(connection)  # at once: uvicorn does it a little later
        self._since.pop(connection, None)
        if gently:
            connection.transport.close()
        else:
            connection.transport.abort()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; whatever happens, the process ends in time: a change of the index is whole or not made."""
        if self._last_resort is None:
            self._last_resort = threading.Timer(self.timeout + GRACE, _end_process)
            self._last_resort.daemon = True
            self._last_resort.start()
        super().handle_exit(sig, frame)

    def stopped(self) -> None:
        """Call off the last resort."""
        if self._last_resort is not None:
            self._last_resort.cancel()


def _is_idle(connection: Any) -> bool:
    return connection.cycle is None or connection.cycle.response_complete


def _reporting(made: Any) -> Any:
    """Return uvicorn's protocol, which calls `made` with every new connection."""

    class Reporting(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            made(self)

    return Reporting


def _shares(wanted: int) -> tuple[int, int]:
    """Return how many connections may be open, and how many accepted at once, with the files that may be opened.

    asyncio accepts up to three times as many connections as the limit before the first of them can be refused.
    """
    try:
        import resource

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        used = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    except (ImportError, OSError):  # not on Linux
        return wanted, BACKLOG
    if most == resource.RLIM_INFINITY:
        return wanted, BACKLOG
    room = max(2, most - used - SPARE_FILES)
    connections = min(wanted, room // 2)
    return connections, max(1, min(BACKLOG, (room - connections) // 3))


def _end_process() -> None:
    sys.stderr.write("twinpass: stopped; a request was still at work after its time.\n")
    sys.stderr.flush()
    os._exit(0)  # stopping on request is no failure
