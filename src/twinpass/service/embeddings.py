"""/v1: the part of OpenAI's API that embeds."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic_core import to_json

from twinpass.service.batching import Vectors
from twinpass.service.problems import Refusal
from twinpass.service.schemas import Embeddings, EmbeddingsRequest, Model, Models
from twinpass.service.service import Encoded, Service
from twinpass.service.waiting import wanted
from twinpass.vectors import unit

TRUNCATED = "X-Truncated-Inputs"  # how many texts were longer than the model reads


def embeddings_router(service: Service) -> APIRouter:
    """Return the routes below /v1."""
    router = APIRouter(prefix="/v1", tags=["OpenAI"])

    @router.post("/embeddings", response_model=Embeddings, summary="Embed texts or token ids")
    async def embeddings(request: Request, body: EmbeddingsRequest) -> Response:
        check_model(service, body.model)
        check_dimensions(service, body.dimensions)
        encoded = await wanted(request, encode(service, body.input), seconds=service.limits.seconds)
        return answer(encoded, _document(service, body, encoded))

    @router.get("/models", response_model=Models, summary="List the served model")
    async def models() -> Any:
        return {"object": "list", "data": [_model(service)]}

    @router.get("/models/{name:path}", response_model=Model, summary="Describe the served model")
    async def model(name: str) -> Any:
        check_model(service, name)
        return _model(service)

    return router


async def encode(service: Service, given: str | list[str] | list[int] | list[list[int]]) -> Encoded:
    """Return the vectors of whatever form the input has, or say what is wrong with it."""
    if isinstance(given, str):
        given = [given]
    if isinstance(given[0], int):
        given = [given]
    rows: Any = given
    if isinstance(rows[0], str):
        check_texts(service, rows, param="input")
        return await service.encode_texts(rows)
    _check_ids(service, rows)
    return await service.encode_ids(rows)


def check_texts(service: Service, texts: Sequence[str], *, param: str) -> None:
    """Refuse too many texts, too long ones, and what is no text."""
    _check_count(service, len(texts), param=param)
    most = service.limits.characters
    for place, text in enumerate(texts):
        if len(text) > most:
            message = f"text {place} has {len(text):,} characters; at most {most:,} are taken. Send it in parts."
            raise Refusal(400, message, param=param, code="string_above_max_length")
        if not _is_text(text):
            message = f"text {place} holds half a character (a lone surrogate), which no encoding can write."
            raise Refusal(400, message, param=param, code="invalid_value")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def answer(encoded: Encoded, document: dict[str, Any]) -> Response:
    """Return a document as JSON, with a header that says how many texts were cut."""
    headers = {TRUNCATED: str(encoded.truncated)} if encoded.truncated else None
    content = to_json(document, inf_nan_mode="null", fallback=str)  # metadata may hold anything
    return Response(content, media_type="application/json", headers=headers)


def usage(encoded: Encoded) -> dict[str, int]:
    """Return the count of tokens in OpenAI's words."""
    return {"prompt_tokens": encoded.tokens, "total_tokens": encoded.tokens}


def check_model(service: Service, name: str | None) -> None:
    """Refuse a model that is not the served one."""
    if name is not None and name not in service.names:
        message = f"the model {name!a} does not exist here. Served: {service.name!r}."
        raise Refusal(404, message, param="model", code="model_not_found")


def check_dimensions(service: Service, dimensions: int | None) -> None:
    """Refuse more numbers than the model gives."""
    most = service.dimensions
    if dimensions is not None and dimensions > most:
        message = f"dimensions: wanted {dimensions}, but the model's vectors have {most}."
        raise Refusal(400, message, param="dimensions", code="invalid_value")


def _check_count(service: Service, count: int, *, param: str) -> None:
    most = service.limits.inputs
    if count > most:
        message = f"{count:,} inputs; at most {most:,} are taken at once. Send them in parts."
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


def _document(service: Service, body: EmbeddingsRequest, encoded: Encoded) -> dict[str, Any]:
    vectors = encoded.vectors
    if body.dimensions is not None:
        vectors = unit(vectors[:, : body.dimensions])
    written = _base64(vectors) if body.encoding_format == "base64" else vectors.tolist()
    data = [{"object": "embedding", "index": place, "embedding": each} for place, each in enumerate(written)]
    return {"object": "list", "data": data, "model": service.name, "usage": usage(encoded)}


def _base64(vectors: Vectors) -> list[str]:
    return [base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii") for vector in vectors]


def _model(service: Service) -> dict[str, Any]:
    return {
        "id": service.name,
        "object": "model",
        "created": service.started,
        "owned_by": "twinpass",
        "dimensions": service.dimensions,
        "max_tokens": service.encoder.max_tokens,
        "fingerprint": service.fingerprint,
    }
