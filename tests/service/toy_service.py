"""A service as small as can be, for tests of the page: words are directions, and every answer can be foreseen."""

from __future__ import annotations

import re
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from twinpass.service.pages import page_router


@dataclass
class Toy:
    """What is served, and what a test may change or look at while it is."""

    texts: Sequence[str] | None
    metadata: dict[int, dict[str, Any]] = field(default_factory=dict)
    key: str | None = None
    held: dict[str, threading.Event] = field(default_factory=dict)  # what a query, or "/index", waits for
    broken: bool = False
    filters: dict[str, list[int]] = field(default_factory=dict)  # rows that each filter allows; others are mistakes
    asked: list[dict[str, Any]] = field(default_factory=list)

    def app(self) -> FastAPI:
        """Return the application."""
        app = FastAPI(openapi_url=None)
        app.include_router(page_router())
        app.middleware("http")(self._guard)
        app.get("/v1/models")(lambda: {"data": [{"id": "toy"}]})
        app.get("/index")(lambda: self._info())
        app.get("/analysis")(lambda: self._analysis())
        app.post("/similarity")(self._similarity)
        app.post("/search")(self._search)
        return app

    async def _guard(self, request: Request, answer: Any) -> Any:
        is_page = request.url.path == "/" or request.url.path.startswith("/page/")
        if self.key and not is_page and request.headers.get("authorization") != f"Bearer {self.key}":
            return trouble(401, "a key is wanted")
        return await answer(request)

    def _wait(self, name: str) -> None:
        if name in self.held:
            assert self.held[name].wait(60)

    def hold(self, name: str) -> threading.Event:
        """Let the answer to a query, or of "/index", wait; return the event that it waits for."""
        return self.held.setdefault(name, threading.Event())

    def _info(self) -> Any:
        self._wait("/index")
        if self.texts is None:
            return trouble(404, "no index is served")
        return {
            "rows": len(self.texts),
            "distinct": len(set(self.texts)),
            "dimensions": 257,
            "columns": self._columns(),
        }

    def _columns(self) -> list[str]:
        return [*dict.fromkeys(name for values in self.metadata.values() for name in values)]

    def _analysis(self) -> Any:
        assert self.texts is not None
        vectors = encode(self.texts)
        cosines = (vectors @ vectors.T)[np.triu_indices(len(vectors), 1)]
        counts, edges = np.histogram(cosines, bins=40, range=(-1, 1))
        values = np.linalg.svd(vectors, compute_uv=False)
        return {
            "uniformity": -2.5,
            "alignment": None,
            "effective_rank": 7.2,
            "singular_values": (values / values[0]).tolist(),
            "cosines": {"edges": edges.tolist(), "counts": counts.tolist()},
            "sample": len(vectors),
        }

    def _similarity(self, body: dict[str, Any]) -> Any:
        self.asked.append(body)
        vectors = encode(body["sentences"])
        return {"matrix": (vectors @ vectors.T).tolist()}

    def _search(self, body: dict[str, Any]) -> Any:
        assert self.texts is not None
        self.asked.append(body)
        if self.broken:
            return trouble(503, "the queue is full")
        self._wait(body["query"])
        where = body.get("where")
        if where is not None and where not in self.filters:
            return trouble(400, f"cannot read the filter: expected an operator.\n  {where}\n  ^", param="where")
        scores = encode([body["query"]])[0] @ encode(self.texts).T
        scores *= {"dense": 1, "keyword": 20, "hybrid": 0.03}[body["mode"]]
        allowed = range(len(self.texts)) if where is None else self.filters[where]
        best = sorted(allowed, key=lambda row: -scores[row])[: body["k"]]
        hits = [
            {
                "id": int(row),
                "text": self.texts[row],
                "score": float(scores[row]),
                "metadata": self.metadata.get(int(row), {}),
                "copies": self.texts.count(self.texts[row]),
            }
            for row in best
        ]
        return {"results": [{"query": body["query"], "hits": hits}]}


def trouble(status: int, message: str, **more: Any) -> Response:
    return JSONResponse({"error": {"message": message, **more}}, status_code=status)


def encode(texts: Sequence[str]) -> np.ndarray:
    """Return unit vectors in which every word is a direction of its own."""
    vectors = np.zeros((len(texts), 257))
    for row, text in enumerate(texts):
        vectors[row, 256] = 0.1  # no text is without a direction
        for word in set(re.findall(r"\w{3,}", text.lower())) - {"the"}:
            vectors[row, zlib.crc32(word.encode()) % 256] += 1.0
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """Serve an application on a free port and yield its address."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(timeout=60)
