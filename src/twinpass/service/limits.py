"""What the service accepts: limits, and the check that every request passes before any route."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from twinpass.errors import ConfigError
from twinpass.service.errors import Refusal, path_of

if TYPE_CHECKING:
    from twinpass.service.app import Service


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is refused and how long is waited; the defaults suit a model of MiniLM's size on a CPU."""

    max_batch_tokens: int = 4_096  # encoded together: as Encoder does
    max_batches: int = 2  # encoded at the same time, if torch does it on a CPU
    max_queue: int = 4_096  # texts accepted and not answered yet
    max_connections: int = 1_024  # open at the same time; fewer where the process may open few files
    max_requests: int = 1_024  # requests read or answered at the same time
    max_searches: int = 64  # searches that wait for a thread
    max_changes: int = 64  # changes of the index that wait for their thread
    max_texts: int = 1_000_000  # in the index, for clients that add some
    max_columns: int = 256  # of metadata in the index, likewise
    max_inputs: int = 2_048  # texts in one request: OpenAI's own limit
    max_chars: int = 100_000  # of one text; a model reads a few thousand of them
    max_body: int = 4 << 20  # bytes
    max_cosines: int = 250_000  # in one answer
    max_hits: int = 20_480  # queries x k of one search: 10 for each of 2,048
    max_words: int = 20_480  # different words of each query, together, that one search looks for: 10 for each of 2,048
    max_answer: int = 64 << 20  # bytes of the answer to one search
    timeout: float = 60.0  # seconds for a request to arrive, and for its answer

    def __post_init__(self) -> None:
        if self.max_queue < self.max_inputs:
            raise ConfigError(
                f"a queue of {self.max_queue} texts can never take a request of {self.max_inputs}. "
                "Raise --max-queue, or lower --max-inputs."
            )


@lru_cache(maxsize=256)
def host_of(value: bytes) -> str:
    """Return the name in a Host header, in lower case and without the port."""
    name = value.decode("latin-1").strip().lower()
    return (name[: name.find("]") + 1] if name.startswith("[") else name.split(":")[0]).removesuffix(".")


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Tell whether a name or an address always means the machine itself: localhost, 127.0.0.0/8, ::1."""
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


# The page asks for the key itself.
OPEN = {"", "/", "/health", "/ready", "/docs", "/openapi.json"}
OPEN_FOLDER = "/page/"
METRICS = "/metrics"  # open on request
METHODS = ("GET", "POST", "DELETE")
FORM = b"application/x-www-form-urlencoded"


class Gate:
    """The outermost layer of the app: checks the host, the key and the size, and counts every request.

    A refused request is answered before its body is read.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service, self.limits = app, service, service.limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request or pass it on, and count it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def noting(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        self.service.active += 1
        try:
            refusal = self._refusal(scope)
            if refusal is None:
                _take_forms_for_json(scope)
                await self.app(scope, self._bounded(receive), noting)
            else:
                await refusal.response(scope)(scope, receive, noting)
        finally:
            self.service.active -= 1
            self._count(scope, status, time.perf_counter() - began)

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers = dict(scope["headers"])
        if (refusal := self._wrong_host(scope)) is not None:
            return refusal
        if self._is_open(scope):
            return None
        if not self._knows_key(headers.get(b"authorization", b"")):
            return Refusal(
                401,
                "wrong or missing API key. Send it as: Authorization: Bearer KEY.",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer", "Connection": "close"},
            )
        if self.service.active > self.limits.max_requests:
            return self.service.busy(close=True)
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.limits.max_body:
            return Refusal(413, self._too_large(), headers={"Connection": "close"})
        return None

    def _is_open(self, scope: Scope) -> bool:
        """Tell whether a request needs no key: it asks for what holds no content of the model or the index."""
        path = path_of(scope)
        if scope["method"] not in ("GET", "HEAD"):
            return False
        return path in OPEN or path.startswith(OPEN_FOLDER) or (self.service.open_metrics and path == METRICS)

    def _wrong_host(self, scope: Scope) -> Refusal | None:
        """Refuse a name that is not ours.

        Without a key, a service on this machine's own address would otherwise answer any page in a browser here: the
        page's own name can be made to resolve to 127.0.0.1 (DNS rebinding). Only the Host header gives it away.
        """
        if not self.service.checks_hosts(scope.get("server")):
            return None
        for name, value in scope["headers"]:
            if name == b"host" and not (is_loopback(host := host_of(value)) or host in self.service.allow_hosts):
                message = (
                    f"this service does not answer to the name {ascii(host)[1:-1]!s:.100}. Use localhost, or start it "
                    "with --allow-host NAME."
                )
                return Refusal(421, message, code="host_not_allowed", headers={"Connection": "close"})
        return None

    def _knows_key(self, sent: bytes) -> bool:
        if self.service.api_key is None:
            return True
        scheme, _, key = sent.partition(b" ")
        same = hmac.compare_digest(key.strip(), self.service.api_key.encode())
        return same and scheme.lower() == b"bearer"

    def _bounded(self, receive: Receive) -> Receive:
        """Return a way to read the body that gives up when it is too large or too slow."""
        loop = asyncio.get_running_loop()
        deadline, size, whole = loop.time() + self.limits.timeout, 0, False

        async def bounded() -> Message:
            nonlocal size, whole
            if whole:  # the next message says that the client has gone, which may take any time
                return await receive()
            message = await _before(deadline, receive)
            size, whole = size + len(message.get("body", b"")), not message.get("more_body", False)
            if size > self.limits.max_body:
                raise HTTPException(413, self._too_large(), {"Connection": "close"})
            return message

        return bounded

    def _too_large(self) -> str:
        return f"the body is larger than {self.limits.max_body:,} bytes. Send fewer or shorter texts at once."

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        known = scope["method"] if scope["method"] in METHODS else "other"  # bounds the number of labels
        self.service.metrics.requests.labels(known, route, str(status)).inc()
        self.service.metrics.seconds.labels(route).observe(seconds)


def _take_forms_for_json(scope: Scope) -> None:
    """Take a body for JSON if its type is that of a form, which `curl -d` sends unasked, or if it has none.

    A browser sends such a request for a page of any site, without asking us first, and names its Origin. Then it is a
    form, and is refused: no page of another site makes this service work. A missing type is set, because some versions
    of FastAPI take it for JSON.
    """
    headers = dict(scope["headers"])
    if headers.get(b"content-type", FORM).partition(b";")[0].strip().lower() != FORM:
        return
    others = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
    scope["headers"] = [*others, (b"content-type", FORM if b"origin" in headers else b"application/json")]


async def _before(deadline: float, receive: Receive) -> Message:
    """Return the next message, or refuse the request if it comes too late.

    asyncio.wait_for makes a task each time, and before Python 3.12 it can lose a cancellation.
    """
    task, late = asyncio.current_task(), False

    def expire() -> None:
        nonlocal late
        late = True
        if task is not None:
            task.cancel()

    timer = asyncio.get_running_loop().call_at(deadline, expire)
    try:
        return await receive()
    except asyncio.CancelledError:
        if not late:
            raise
        getattr(task, "uncancel", int)()  # from Python 3.11 on
        raise HTTPException(408, "the body came too slowly.", {"Connection": "close"}) from None
    finally:
        timer.cancel()
