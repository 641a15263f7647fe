"""The routes: embeddings as OpenAI's API has them, similarity, search, the index, health and metrics."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic_core import to_json

from twinpass.search.filters import parse
from twinpass.service.batching import Vectors, while_connected
from twinpass.service.errors import Refusal
from twinpass.service.schemas import (
    Analysis,
    Embeddings,
    EmbeddingsRequest,
    IndexInfo,
    Model,
    Models,
    SearchRequest,
    SearchResults,
    Similarity,
    SimilarityRequest,
    Status,
)
from twinpass.vectors import unit

if TYPE_CHECKING:
    from twinpass.service.app import Encoded, Service

TRUNCATED = "X-Truncated-Inputs"  # how many texts were longer than the model reads
# Queries searched at once, and about how many hits; between blocks, a search that nobody waits for ends.
BLOCK, BLOCK_HITS = 256, 2_048
SAMPLE, SEED, BINS = 2_000, 42, 50  # vectors that /analysis looks at: all pairs of them take well under a second


def embeddings_router(service: Service) -> APIRouter:
    """Return the routes below /v1: the part of OpenAI's API that embeds."""
    router = APIRouter(prefix="/v1", tags=["OpenAI"])

    @router.post("/embeddings", response_model=Embeddings, summary="Embed texts or token ids")
    async def embeddings(request: Request, body: EmbeddingsRequest) -> Response:
        _check_model(service, body.model)
        if body.dimensions is not None and body.dimensions > service.dimensions:
            message = f"dimensions is {body.dimensions}, but the model's vectors have {service.dimensions}."
            raise Refusal(400, message, param="dimensions", code="invalid_value")
        encoded = await while_connected(request, _encode(service, body.input), timeout=service.limits.timeout)
        vectors = encoded.vectors
        if body.dimensions is not None:
            vectors = unit(vectors[:, : body.dimensions])
        written = _base64(vectors) if body.encoding_format == "base64" else vectors.tolist()
        data = [{"object": "embedding", "index": place, "embedding": each} for place, each in enumerate(written)]
        return _answer(service, encoded, _json({"object": "list", "data": data}))

    @router.get("/models", response_model=Models, summary="List the served model")
    async def models() -> Any:
        return {"object": "list", "data": [_describe_model(service)]}

    @router.get("/models/{name:path}", response_model=Model, summary="Describe the served model")
    async def model(name: str) -> Any:
        _check_model(service, name)
        return _describe_model(service)

    return router


def own_router(service: Service) -> APIRouter:
    """Return the routes that OpenAI's API does not have: comparing texts, searching the index, metrics."""
    router = APIRouter(tags=["twinpass"])
    describing, measuring = Remembered(service, _describe_index), Remembered(service, _measure_index)

    @router.post("/similarity", response_model=Similarity, summary="Compare texts by cosine")
    async def similarity(request: Request, body: SimilarityRequest) -> Response:
        left, right = body.sides()
        most = service.limits.max_cosines
        if len(left) * len(right) > most:
            message = f"{len(left):,} x {len(right):,} cosines; at most {most:,} per request. Send fewer texts at once."
            raise Refusal(400, message, code="too_many_cosines")
        texts = left if right is left else [*left, *right]
        _check_texts(service, texts, param="a" if body.sentences is None else "sentences")
        work = service.encode(texts, normalize=True)
        encoded = await while_connected(request, work, timeout=service.limits.timeout)
        matrix = encoded.vectors[: len(left)] @ encoded.vectors[-len(right) :].T
        return _answer(service, encoded, _json({"matrix": matrix.clip(-1, 1).astype(float).round(6).tolist()}))

    @router.post("/search", response_model=SearchResults, summary="Search the index")
    async def search(request: Request, body: SearchRequest) -> Response:
        service.check_index()  # before anything is encoded
        parse(body.where)  # likewise: a mistake is answered at once
        queries = [body.query] if isinstance(body.query, str) else body.query
        _check_texts(service, queries, param="query")
        most = service.limits.max_hits
        if len(queries) * body.k > most:
            message = f"{len(queries):,} queries x k = {body.k:,} hits; at most {most:,} per request. Send fewer."
            raise Refusal(400, message, code="too_many_hits")
        work = _search(service, queries, body)
        encoded, found = await while_connected(request, work, timeout=service.limits.timeout)
        return _answer(service, encoded, found)

    @router.get("/index", response_model=IndexInfo, summary="Describe the index")
    async def index(request: Request) -> Any:
        return await while_connected(request, describing.get(), timeout=service.limits.timeout)

    @router.get("/analysis", response_model=Analysis, summary="The geometry of the indexed corpus")
    async def analysis(request: Request) -> Any:
        return await while_connected(request, measuring.get(), timeout=service.limits.timeout)

    text: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}

    @router.get("/metrics", response_class=PlainTextResponse, responses=text, summary="Prometheus metrics")
    async def metrics() -> Response:
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return router


def health_router(service: Service) -> APIRouter:
    """Return the routes that need no key."""
    router = APIRouter(tags=["health"])

    @router.get("/health", response_model=Status, summary="Is the process alive?")
    async def health() -> dict[str, str]:
        return {"status": "alive"}

    @router.get("/ready", response_model=Status, summary="Would a request be accepted now?")
    async def ready() -> dict[str, str]:
        if not service.ready:
            reason = "stopping" if service.stopping else "queue_full"
            raise Refusal(503, f"not ready: {reason}.", code=reason, headers={"Retry-After": "1"})
        return {"status": "ready"}

    return router


async def _encode(service: Service, given: str | list[str] | list[int] | list[list[int]]) -> Encoded:
    """Return the vectors of any form of input."""
    rows: Any = [given] if isinstance(given, str) or isinstance(given[0], int) else given
    if isinstance(rows[0], str):
        _check_texts(service, rows, param="input")
    else:
        _check_ids(service, rows)
    return await service.encode(rows)


async def _search(service: Service, queries: Sequence[str], body: SearchRequest) -> tuple[Encoded, bytes]:
    """Return what was found as JSON, which is also made in the thread: it may be large."""
    encoded = await service.encode(queries, normalize=True)
    given_up = threading.Event()
    at_once, most = max(1, min(BLOCK, BLOCK_HITS // body.k)), service.limits.max_answer

    def search() -> bytes:
        index, _ = service.fresh_index()
        found: list[bytes] = []
        size = 0
        for start in range(0, len(queries), at_once):
            if given_up.is_set():
                break
            block = encoded.vectors[start : start + at_once]
            for hits in index.search_vectors(block, body.k, where=body.where, min_score=body.min_score):
                found.append(_json([hit._asdict() | {"score": round(float(hit.score), 6)} for hit in hits]))
                size += len(found[-1])
                if size > most:
                    message = f"the answer is larger than {most:,} bytes. Lower k, or send fewer queries at once."
                    raise Refusal(400, message, code="answer_too_large")
        return b'{"results":[' + b",".join(found) + b"]}"

    try:
        return encoded, await service.in_search_thread(search)
    finally:
        given_up.set()


class Remembered:
    """Something computed from the index in a thread, when it is first asked for and again when the index changed."""

    def __init__(self, service: Service, compute: Callable[[Service], Mapping[str, Any]]) -> None:
        self._service, self._compute = service, compute
        self._version: object = None
        self._found: asyncio.Task[Mapping[str, Any]] | None = None

    async def get(self) -> Mapping[str, Any]:
        """Return what was computed; requests that come meanwhile wait for the same."""
        _, version = await self._service.in_search_thread(self._service.fresh_index)
        if self._found is None or self._version != version:
            self._version = version
            work = partial(self._compute, self._service)
            self._found = asyncio.create_task(self._service.in_search_thread(work))
        try:
            return await asyncio.shield(self._found)
        except Exception:
            self._found = None
            raise


def _describe_index(service: Service) -> Mapping[str, Any]:
    """Return what clients may know of the index; its folder and history are private."""
    index, _ = service.fresh_index()
    with service.index_lock:
        info = index.info()
    shown = {name: getattr(info, name) for name in ("distinct", "dimensions", "kind", "columns")}
    return {"count": info.rows, **shown, "model": info.model["name"], "fingerprint": info.model["fingerprint"]}


def _measure_index(service: Service) -> Mapping[str, Any]:
    """Return uniformity, spectrum and cosines of a sample of the indexed vectors."""
    from twinpass.analysis.measure import measure_geometry, measure_spectrum
    from twinpass.analysis.sampling import some_rows

    index, _ = service.fresh_index()
    with service.index_lock:
        ids = index.ids()
        if len(ids) < 2:
            raise Refusal(404, "the index holds fewer than two texts: there is nothing to measure.")
        sample = index.vectors(ids[some_rows(len(ids), SAMPLE, seed=SEED)])
    geometry, spectrum = measure_geometry(sample), measure_spectrum(sample)
    units = unit(sample)
    cosines = (units @ units.T)[np.triu_indices(len(units), k=1)].clip(-1, 1)
    counts, edges = np.histogram(cosines, bins=BINS, range=(-1, 1))
    return {
        "uniformity": geometry.uniformity,
        "alignment": geometry.alignment,
        "anisotropy": geometry.anisotropy,
        "effective_rank": spectrum.effective_rank,
        "singular_values": spectrum.normalised.tolist(),
        "cosines": {"edges": edges.round(6).tolist(), "counts": counts.tolist()},
        "sample": len(sample),
        "of": len(ids),
    }


def _answer(service: Service, encoded: Encoded, document: bytes) -> Response:
    """Return a JSON object with model and usage added, and a header that says how many texts were cut."""
    usage = {"prompt_tokens": encoded.tokens, "total_tokens": encoded.tokens}
    headers = {TRUNCATED: str(encoded.truncated)} if encoded.truncated else None
    content = b"".join((memoryview(document)[:-1], b",", _json({"model": service.name, "usage": usage})[1:]))
    return Response(content, media_type="application/json", headers=headers)


def _json(value: object) -> bytes:
    return to_json(value, inf_nan_mode="null", fallback=str)  # metadata may hold anything


def _base64(vectors: Vectors) -> list[str]:
    return [base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii") for vector in vectors]


def _describe_model(service: Service) -> dict[str, Any]:
    return {
        "id": service.name,
        "object": "model",
        "created": service.started,
        "owned_by": "twinpass",
        "dimensions": service.dimensions,
        "max_tokens": service.encoder.max_tokens,
        "precision": service.encoder.precision,
        "fingerprint": service.fingerprint,
    }


def _check_model(service: Service, name: str | None) -> None:
    if name is not None and name not in service.names:
        message = f"the model {name!a} does not exist here. Served: {service.name!r}."
        raise Refusal(404, message, param="model", code="model_not_found")


def _check_texts(service: Service, texts: Sequence[str], *, param: str) -> None:
    """Refuse too many texts, too long ones, and lone surrogates."""
    _check_count(service, len(texts), param=param)
    most = service.limits.max_chars
    for place, text in enumerate(texts):
        if len(text) > most:
            message = f"text {place} has {len(text):,} characters; at most {most:,} are accepted. Send it in parts."
            raise Refusal(400, message, param=param, code="string_above_max_length")
        try:
            text.encode()
        except UnicodeEncodeError:
            message = f"text {place} contains a lone surrogate, which UTF-8 cannot encode."
            raise Refusal(400, message, param=param, code="invalid_value") from None


def _check_count(service: Service, count: int, *, param: str) -> None:
    most = service.limits.max_inputs
    if count > most:
        message = f"{count:,} inputs; at most {most:,} per request. Send them in parts."
        raise Refusal(400, message, param=param, code="array_above_max_length")


def _check_ids(service: Service, rows: Sequence[Sequence[int]]) -> None:
    _check_count(service, len(rows), param="input")
    most = service.encoder.max_tokens
    longest, highest = max(map(len, rows)), max(map(max, rows))
    if most is not None and longest > most:
        message = f"{longest:,} token ids; the model reads {most:,}. Send fewer, or the text itself."
        raise Refusal(400, message, param="input", code="array_above_max_length")
    if highest >= service.vocabulary:
        message = (
            f"token id {highest} is not in the model's vocabulary of {service.vocabulary:,}. "
            "Ids come from the model's own tokenizer; or send the text itself."
        )
        raise Refusal(400, message, param="input", code="invalid_value")
