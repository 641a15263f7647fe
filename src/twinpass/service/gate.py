"""What every request passes before any route: who may come in, how much they may carry, and a count of all."""

from __future__ import annotations

import asyncio
import hmac
import time

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from twinpass.service.problems import Refusal
from twinpass.service.service import Service

# Nothing here tells of the model's or the index's content; the page asks for the key itself.
OPEN = {"/", "/health", "/ready", "/docs", "/openapi.json"}
OPEN_FOLDER = "/page/"


class Gate:
    """A layer around the app; it answers before the body of a refused request is read."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service, self.limits = app, service, service.limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse or pass on, and count what came of it."""
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
            await self._pass(scope, receive, noting)
        finally:
            self.service.active -= 1
            self._count(scope, status, time.perf_counter() - began)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope)
        if refusal is None:
            await self.app(scope, self._bounded(receive), send)
        else:
            await refusal.response()(scope, receive, send)

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers = dict(scope["headers"])
        if scope["path"] in OPEN or scope["path"].startswith(OPEN_FOLDER):
            return None
        if not self._knows_key(headers.get(b"authorization", b"")):
            return Refusal(
                401,
                "wrong or missing API key. Send it as: Authorization: Bearer KEY.",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer", "Connection": "close"},
            )
        if self.service.active > self.limits.requests:
            return self.service.busy(close=True)
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.limits.body:
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
        deadline, size, whole = loop.time() + self.limits.seconds, 0, False

        async def bounded() -> Message:
            nonlocal size, whole
            if whole:  # what follows is the client's leaving, which may take any time
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), deadline - loop.time())
            except asyncio.TimeoutError:
                raise HTTPException(408, "the body came too slowly.", {"Connection": "close"}) from None
            size, whole = size + len(message.get("body", b"")), not message.get("more_body", False)
            if size > self.limits.body:
                raise HTTPException(413, self._too_large(), {"Connection": "close"})
            return message

        return bounded

    def _too_large(self) -> str:
        return f"the body is larger than {self.limits.body:,} bytes. Send fewer or shorter texts at once."

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        known = scope["method"] if scope["method"] in ("GET", "POST") else "other"  # a label must not grow
        self.service.metrics.requests.add(1, known, route, str(status))
        self.service.metrics.seconds.observe(seconds, route)
