"""What the service accepts: limits, and the check that every request passes before any route."""

from __future__ import annotations

import asyncio
import hmac
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from twinpass.errors import ConfigError
from twinpass.service.errors import Refusal

if TYPE_CHECKING:
    from twinpass.service.app import Service


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is refused and how long is waited; the defaults suit a model of MiniLM's size on a CPU."""

    max_batch_tokens: int = 4_096  # encoded together: as Encoder does
    max_queue: int = 4_096  # texts accepted and not answered yet
    max_requests: int = 1_024  # requests read or answered at the same time
    max_inputs: int = 2_048  # texts in one request: OpenAI's own limit
    max_chars: int = 100_000  # of one text; a model reads a few thousand of them
    max_body: int = 4 << 20  # bytes
    max_cosines: int = 250_000  # in one answer
    timeout: float = 60.0  # seconds from the request to its answer

    def __post_init__(self) -> None:
        if self.max_queue < self.max_inputs:
            raise ConfigError(
                f"a queue of {self.max_queue} texts can never take a request of {self.max_inputs}. "
                "Raise --max-queue, or lower --max-inputs."
            )


# These hold no content of the model or the index; the page asks for the key itself.
OPEN = {"", "/", "/health", "/ready", "/docs", "/openapi.json"}
OPEN_FOLDER = "/page/"


class Gate:
    """The outermost layer of the app: checks the key and the size, and counts every request.

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
                await self.app(scope, self._bounded(receive), noting)
            else:
                await refusal.response()(scope, receive, noting)
        finally:
            self.service.active -= 1
            self._count(scope, status, time.perf_counter() - began)

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers = dict(scope["headers"])
        path = scope["path"].removeprefix(scope.get("root_path", ""))  # mounted elsewhere, it has a prefix
        if path in OPEN or path.startswith(OPEN_FOLDER):
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
            try:
                message = await asyncio.wait_for(receive(), deadline - loop.time())
            except asyncio.TimeoutError:
                raise HTTPException(408, "the body came too slowly.", {"Connection": "close"}) from None
            size, whole = size + len(message.get("body", b"")), not message.get("more_body", False)
            if size > self.limits.max_body:
                raise HTTPException(413, self._too_large(), {"Connection": "close"})
            return message

        return bounded

    def _too_large(self) -> str:
        return f"the body is larger than {self.limits.max_body:,} bytes. Send fewer or shorter texts at once."

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        known = scope["method"] if scope["method"] in ("GET", "POST") else "other"  # bounds the number of labels
        self.service.metrics.requests.labels(known, route, str(status)).inc()
        self.service.metrics.seconds.labels(route).observe(seconds)
