"""Comparing texts, and searching the index."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from twinpass.search.index import Hit, Index
from twinpass.service.corpus import Once, describe, measure
from twinpass.service.embeddings import answer, check_texts, usage
from twinpass.service.problems import Refusal
from twinpass.service.schemas import Analysis, IndexInfo, SearchRequest, SearchResults, Similarity, SimilarityRequest
from twinpass.service.service import Encoded, Service
from twinpass.service.waiting import wanted


def neighbours_router(service: Service) -> APIRouter:
    """Return the routes that compare and search."""
    router = APIRouter(tags=["twinpass"])
    describing, measuring = Once(describe), Once(measure)

    @router.post("/similarity", response_model=Similarity, summary="Compare texts by cosine")
    async def similarity(request: Request, body: SimilarityRequest) -> Response:
        left, right = body.sides()
        _check_cells(service, len(left), len(right))
        texts = left if right is left else [*left, *right]
        check_texts(service, texts, param="a" if body.sentences is None else "sentences")
        work = service.encode_texts(texts, normalize=True)
        encoded = await wanted(request, work, seconds=service.limits.seconds)
        matrix = encoded.vectors[: len(left)] @ encoded.vectors[-len(right) :].T
        rounded = matrix.clip(-1, 1).astype(float).round(6).tolist()
        return answer(encoded, {"matrix": rounded, "model": service.name, "usage": usage(encoded)})

    @router.post("/search", response_model=SearchResults, summary="Search the index")
    async def search(request: Request, body: SearchRequest) -> Response:
        index = served_index(service)
        queries = [body.query] if isinstance(body.query, str) else body.query
        check_texts(service, queries, param="query")
        work = _search(service, index, queries, body)
        encoded, found = await wanted(request, work, seconds=service.limits.seconds)
        results = [[_hit(hit) for hit in hits] for hits in found]
        return answer(encoded, {"results": results, "model": service.name, "usage": usage(encoded)})

    @router.get("/index", response_model=IndexInfo, summary="Describe the index")
    async def index() -> Any:
        return await describing.get(served_index(service))

    @router.get("/analysis", response_model=Analysis, summary="The geometry of the indexed corpus")
    async def analysis() -> Any:
        return await measuring.get(served_index(service))

    return router


def served_index(service: Service) -> Index:
    """Return the index, or refuse."""
    if service.index is None:
        message = "no index is served. Start with: twinpass serve MODEL --index INDEX"
        raise Refusal(404, message, code="no_index")
    return service.index


async def _search(
    service: Service, index: Index, queries: Sequence[str], body: SearchRequest
) -> tuple[Encoded, list[list[Hit]]]:
    encoded = await service.encode_texts(queries, normalize=True)
    found = await asyncio.to_thread(
        index.search_vectors, encoded.vectors, body.k, where=body.where, min_score=body.min_score
    )
    return encoded, found


def _hit(hit: Hit) -> dict[str, Any]:
    return {"id": hit.id, "text": hit.text, "score": round(float(hit.score), 6), "metadata": hit.metadata}


def _check_cells(service: Service, rows: int, columns: int) -> None:
    most = service.limits.cells
    if rows * columns > most:
        message = f"{rows:,} x {columns:,} cosines; at most {most:,} are given at once. Ask in parts."
        raise Refusal(400, message, code="too_many_cosines")
