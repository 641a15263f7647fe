"""The routes of the models: embeddings as OpenAI's API and TEI's have them, similarity; health and metrics."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic_core import to_json

from twinpass import __version__
from twinpass.service.batching import Vectors, while_connected
from twinpass.service.errors import Refusal
from twinpass.service.schemas import (
    Embeddings,
    EmbeddingsRequest,
    EmbedRequest,
    Model,
    Models,
    Similarity,
    SimilarityRequest,
    Status,
    TeiInfo,
)
from twinpass.vectors import unit

if TYPE_CHECKING:
    from twinpass.service.app import Service
    from twinpass.service.served_model import Encoded, ServedModel

TRUNCATED = "X-Truncated-Inputs"  # how many texts were longer than the model reads
DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}  # TEI's names


def openai_router(service: Service) -> APIRouter:
    """Return the routes below /v1: the part of OpenAI's API that embeds."""
    router = APIRouter(prefix="/v1", tags=["OpenAI"])

    @router.post("/embeddings", response_model=Embeddings, summary="Embed texts or token ids")
    async def embeddings(request: Request, body: EmbeddingsRequest) -> Response:
        model = service.model(body.model)
        encoded = await _embed(service, model, request, body.input, body.dimensions, param="input")
        written = _base64(encoded.vectors) if body.encoding_format == "base64" else encoded.vectors.tolist()
        data = [{"object": "embedding", "index": place, "embedding": each} for place, each in enumerate(written)]
        return answer(model, encoded, json_of({"object": "list", "data": data}))

    @router.get("/models", response_model=Models, summary="List the served models")
    async def models() -> Any:
        return {"object": "list", "data": [_describe_model(service, each) for each in service.models]}

    @router.get("/models/{name:path}", response_model=Model, summary="Describe a served model")
    async def model(name: str) -> Any:
        return _describe_model(service, service.model(name))

    return router


def tei_router(service: Service) -> APIRouter:
    """Return the routes that clients of text-embeddings-inference use; some of them post to `/` itself."""
    router = APIRouter(tags=["TEI"])

    @router.post("/", include_in_schema=False)
    @router.post("/embed", response_model=list[list[float]], summary="Embed texts or token ids, as TEI does")
    async def embed(request: Request, body: EmbedRequest) -> Response:
        if body.prompt_name is not None:
            message = f"no prompt is named {body.prompt_name!a}: a model's own prompt is always used."
            raise Refusal(400, message, param="prompt_name", code="invalid_value")
        cutting = {"truncate": body.truncate is not False, "side": body.truncation_direction.lower()}
        model = service.model(body.model)
        encoded = await _embed(
            service, model, request, body.inputs, body.dimensions, param="inputs", normalize=body.normalize, **cutting
        )
        return Response(json_of(encoded.vectors.tolist()), media_type="application/json", headers=_notes(encoded))

    @router.get("/info", response_model=TeiInfo, summary="Describe the first model and the limits, as TEI does")
    async def info() -> Any:
        model, limits = service.models[0], service.limits
        return {
            "model_id": model.name,
            "model_sha": model.fingerprint,
            "model_dtype": DTYPES.get(model.encoder.precision, model.encoder.precision),
            "model_type": {"embedding": {"pooling": model.encoder.pooler}},
            "max_concurrent_requests": limits.max_requests,
            "max_input_length": model.encoder.max_tokens,
            "max_batch_tokens": limits.max_batch_tokens,
            "max_client_batch_size": limits.max_inputs,
            "auto_truncate": True,
            "version": __version__,
        }

    return router


def similarity_router(service: Service) -> APIRouter:
    """Return the route that compares texts."""
    router = APIRouter(tags=["twinpass"])

    @router.post("/similarity", response_model=Similarity, summary="Compare texts by cosine")
    async def similarity(request: Request, body: SimilarityRequest) -> Response:
        model = service.model(body.model)
        left, right = body.sides()
        most = service.limits.max_cosines
        if len(left) * len(right) > most:
            message = f"{len(left):,} x {len(right):,} cosines; at most {most:,} per request. Send fewer texts at once."
            raise Refusal(400, message, code="too_many_cosines")
        texts = left if right is left else [*left, *right]
        check_texts(service, texts, param="a" if body.sentences is None else "sentences")
        work = service.encode(texts, model, normalize=True)
        encoded = await while_connected(request, work, timeout=service.limits.timeout)
        matrix = encoded.vectors[: len(left)] @ encoded.vectors[-len(right) :].T
        return answer(model, encoded, json_of({"matrix": matrix.clip(-1, 1).astype(float).round(6).tolist()}))

    return router


def metrics_router(service: Service) -> APIRouter:
    """Return the route for Prometheus."""
    router = APIRouter(tags=["health"])
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


async def _embed(
    service: Service,
    model: ServedModel,
    request: Request,
    given: str | list[str] | list[int] | list[list[int]],
    dimensions: int | None,
    *,
    param: str,
    **options: Any,
) -> Encoded:
    """Return the vectors of any form of input, cut to the first `dimensions` and scaled again if that is given."""
    if dimensions is not None and dimensions > model.dimensions:
        message = f"dimensions is {dimensions}, but the model's vectors have {model.dimensions}."
        raise Refusal(400, message, param="dimensions", code="invalid_value")
    rows: Any = [given] if isinstance(given, str) or isinstance(given[0], int) else given
    if isinstance(rows[0], str):
        check_texts(service, rows, param=param)
    else:
        _check_ids(service, model, rows, param=param)
    work = service.encode(rows, model, **options)
    encoded = await while_connected(request, work, timeout=service.limits.timeout)
    if dimensions is None:
        return encoded
    return encoded._replace(vectors=unit(encoded.vectors[:, :dimensions]))


def answer(model: ServedModel, encoded: Encoded, document: bytes) -> Response:
    """Return a JSON object with model and usage added, and a header that says how many texts were cut."""
    usage = {"prompt_tokens": encoded.tokens, "total_tokens": encoded.tokens}
    content = b"".join((memoryview(document)[:-1], b",", json_of({"model": model.name, "usage": usage})[1:]))
    return Response(content, media_type="application/json", headers=_notes(encoded))


def _notes(encoded: Encoded) -> dict[str, str] | None:
    return {TRUNCATED: str(encoded.truncated)} if encoded.truncated else None


def json_of(value: object) -> bytes:
    """Return a value as JSON."""
    return to_json(value, inf_nan_mode="null", fallback=str)  # metadata may hold anything


def _base64(vectors: Vectors) -> list[str]:
    return [base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii") for vector in vectors]


def _describe_model(service: Service, model: ServedModel) -> dict[str, Any]:
    return {
        "id": model.name,
        "object": "model",
        "created": service.started,
        "owned_by": "twinpass",
        "dimensions": model.dimensions,
        "max_tokens": model.encoder.max_tokens,
        "precision": model.encoder.precision,
        "fingerprint": model.fingerprint,
    }


def check_texts(service: Service, texts: Sequence[str], *, param: str) -> None:
    """Refuse too many texts, too long ones, and lone surrogates."""
    _check_count(service, len(texts), param=param)
    most = service.limits.max_chars
    for place, text in enumerate(texts):
        if len(text) > most:
            message = f"text {place} has {len(text):,} characters; at most {most:,} are accepted. Send it in parts."
            raise Refusal(400, message, param=param, code="string_above_max_length")
        if not is_encodable(text):
            message = f"text {place} contains a lone surrogate, which UTF-8 cannot encode."
            raise Refusal(400, message, param=param, code="invalid_value")


def is_encodable(text: str) -> bool:
    """Tell whether UTF-8 can encode a text: it cannot if half of a surrogate pair is missing."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_count(service: Service, count: int, *, param: str) -> None:
    most = service.limits.max_inputs
    if count > most:
        message = f"{count:,} inputs; at most {most:,} per request. Send them in parts."
        raise Refusal(400, message, param=param, code="array_above_max_length")


def _check_ids(service: Service, model: ServedModel, rows: Sequence[Sequence[int]], *, param: str) -> None:
    _check_count(service, len(rows), param=param)
    most = model.encoder.max_tokens
    longest, highest = max(map(len, rows)), max(map(max, rows))
    if most is not None and longest > most:
        message = f"{longest:,} token ids; the model reads {most:,}. Send fewer, or the text itself."
        raise Refusal(400, message, param=param, code="array_above_max_length")
    if highest >= model.vocabulary:
        message = (
            f"token id {highest} is not in the model's vocabulary of {model.vocabulary:,}. "
            "Ids come from the model's own tokenizer; or send the text itself."
        )
        raise Refusal(400, message, param=param, code="invalid_value")
