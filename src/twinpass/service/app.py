"""The app: every route, behind one gate, failing in one shape."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Security
from fastapi.security import HTTPBearer

from twinpass import __version__
from twinpass.service.embeddings import embeddings_router
from twinpass.service.gate import Gate
from twinpass.service.health import health_router, metrics_router
from twinpass.service.neighbours import neighbours_router
from twinpass.service.pages import page_router
from twinpass.service.problems import explain_problems
from twinpass.service.schemas import ErrorBody
from twinpass.service.service import Service

ABOUT = "Sentence embeddings, as OpenAI's clients ask for them; comparison and search beside them."
# Newer FastAPIs can report to a collector that the environment names; older ones take no notice of this.
TELEMETRY: Any = dict.fromkeys(("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False)
MEANINGS = {
    400: "The request makes no sense.",
    401: "The API key is wrong or missing.",
    404: "There is no such model, index or path.",
    408: "The body came too slowly.",
    413: "The body is too large.",
    429: "The queue is full; Retry-After says when to come again.",
    500: "The model failed.",
    503: "The service is stopping, or not ready.",
    504: "The answer took too long.",
}


def create_app(service: Service) -> FastAPI:
    """Return the ASGI app of a service."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    app = FastAPI(
        title="twinpass",
        version=__version__,
        description=ABOUT,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's pages load scripts from elsewhere; ours is in reference.py
        redoc_url=None,
        redirect_slashes=False,
        telemetry=TELEMETRY,
    )
    # Only for the description: the gate checks the key, before a body is read.
    keyed = [Security(HTTPBearer(auto_error=False))] if service.api_key is not None else []
    for router in (embeddings_router(service), neighbours_router(service), metrics_router(service)):
        app.include_router(router, dependencies=keyed, responses=_failures())
    app.include_router(health_router(service), responses=_failures(503))
    app.include_router(page_router())
    app.add_middleware(Gate, service=service)
    explain_problems(app)
    return app


def _failures(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {
        status: {"model": ErrorBody, "description": meaning}
        for status, meaning in MEANINGS.items()
        if not statuses or status in statuses
    } | {"default": {"model": ErrorBody, "description": "Anything else."}}
