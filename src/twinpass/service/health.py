"""How the service is: for balancers, for Prometheus, and for people who look up how to call it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, Response

from twinpass.service.metrics import CONTENT_TYPE
from twinpass.service.problems import Refusal
from twinpass.service.reference import write_reference
from twinpass.service.schemas import Status
from twinpass.service.service import Service

# The page runs nothing and fetches nothing.
POLICY = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}


def health_router(service: Service) -> APIRouter:
    """Return the routes that need no key."""
    router = APIRouter(tags=["health"])

    @router.get("/health", response_model=Status, summary="Is the process alive?")
    async def health() -> dict[str, str]:
        return {"status": "alive"}

    @router.get("/ready", response_model=Status, summary="Would a request be taken now?")
    async def ready() -> dict[str, str]:
        if not service.ready:
            reason = "stopping" if service.stopping else "queue_full"
            raise Refusal(503, f"not ready: {reason}.", code=reason, headers={"Retry-After": "1"})
        return {"status": "ready"}

    @router.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return HTMLResponse(write_reference(request.app.openapi()), headers=POLICY)

    return router


def metrics_router(service: Service) -> APIRouter:
    """Return the page of counters."""
    router = APIRouter(tags=["health"])
    text: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}

    @router.get("/metrics", response_class=PlainTextResponse, responses=text, summary="Prometheus metrics")
    async def metrics() -> Response:
        return Response(service.metrics.page(), media_type=CONTENT_TYPE)

    return router
