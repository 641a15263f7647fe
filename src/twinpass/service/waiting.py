"""Waiting for an answer no longer than anyone wants it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request

from twinpass.service.problems import Refusal

T = TypeVar("T")


async def wanted(request: Request, work: Coroutine[Any, Any, T], *, seconds: float) -> T:
    """Return the work's result, or cancel it when the client has gone or the time is over."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({working, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        if gone.done():
            raise Refusal(499, "the client has gone.", code="client_closed_request")
        raise Refusal(504, f"no answer within {seconds:g} seconds. Send less at once, or later.", code="timeout")
    finally:
        working.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
