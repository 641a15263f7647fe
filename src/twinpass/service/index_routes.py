"""The routes of the index: search it, describe it, measure it, add texts to it and remove them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from twinpass.errors import ConfigError, InputError
from twinpass.search.filters import Where, check_columns, parse
from twinpass.search.keywords import query_words
from twinpass.search.searching import DENSE, KEYWORD, check_queries
from twinpass.service.batching import while_connected
from twinpass.service.errors import Refusal
from twinpass.service.routes import answer, check_texts, is_encodable, json_of
from twinpass.service.schemas import (
    Added,
    AddRequest,
    Analysis,
    DeleteRequest,
    Found,
    IndexInfo,
    Removed,
    SearchRequest,
    SearchResults,
)
from twinpass.service.served_index import ServedIndex, as_id, no_text
from twinpass.service.served_model import Encoded
from twinpass.vectors import unit

if TYPE_CHECKING:
    from twinpass.service.app import Service

# Queries searched at once, and about how many hits; between blocks, a search that nobody waits for ends.
BLOCK, BLOCK_HITS = 256, 2_048
SAMPLE, SEED, BINS = 2_000, 42, 50  # vectors that /analysis looks at: all pairs of them take well under a second
TextId = Annotated[str, Path(description="The id of a text, as a search returns it.")]


def index_router(service: Service) -> APIRouter:
    """Return the routes that read the index."""
    router = APIRouter(tags=["index"])
    describing, measuring = Remembered(service, _describe_index), Remembered(service, _measure_index)

    @router.post("/search", response_model=SearchResults, summary="Search the index")
    async def search(request: Request, body: SearchRequest) -> Response:
        index = service.index  # before anything is encoded
        check_filter(body.where)  # likewise: a mistake is answered at once
        queries = [body.query] if isinstance(body.query, str) else body.query
        check_texts(service, queries, param="query")
        try:
            check_queries(queries)
        except InputError as error:
            raise Refusal(400, str(error), param="query", code="invalid_value") from None
        most = service.limits.max_hits
        if len(queries) * body.k > most:
            message = f"{len(queries):,} queries x k = {body.k:,} hits; at most {most:,} per request. Send fewer."
            raise Refusal(400, message, code="too_many_hits")
        work = _search(service, index, queries, body)
        encoded, found = await while_connected(request, work, timeout=service.limits.timeout)
        return answer(index.model, encoded, found)

    @router.get("/index", response_model=IndexInfo, summary="Describe the index")
    async def index(request: Request) -> Any:
        return await while_connected(request, describing.get(), timeout=service.limits.timeout)

    @router.get("/analysis", response_model=Analysis, summary="The geometry of the indexed corpus")
    async def analysis(request: Request) -> Any:
        return await while_connected(request, measuring.get(), timeout=service.limits.timeout)

    @router.get("/index/texts/{text_id:path}", response_model=Found, summary="Get a text of the index by its id")
    async def text(request: Request, text_id: TextId) -> Response:
        index = service.index

        def look_up() -> bytes:
            fresh, _ = index.fresh()
            try:
                return json_of(fresh.entries([as_id(fresh, text_id)])[0]._asdict())
            except InputError:
                raise no_text(text_id) from None

        found = await while_connected(request, index.in_thread(look_up), timeout=service.limits.timeout)
        return Response(found, media_type="application/json")

    return router


def changes_router(service: Service) -> APIRouter:
    """Return the routes that change the index: with a key only, each change whole or not at all.

    A change that has begun is finished also if its client has gone, or if it takes longer than an answer may.
    """
    router = APIRouter(prefix="/index/texts", tags=["index"])

    @router.post("", response_model=Added, summary="Add texts to the index")
    async def add(request: Request, body: AddRequest) -> Any:
        index = service.check_changeable()
        index.check_addable()
        check_texts(service, body.texts, param="texts")
        words = (word for each in body.metadata or () for pair in each.items() for word in pair)
        if not all(is_encodable(word) for word in words if isinstance(word, str)):
            message = "the metadata contain a lone surrogate, which UTF-8 cannot encode."
            raise Refusal(400, message, param="metadata", code="invalid_value")

        async def work() -> dict[str, int]:
            encoded = await service.encode(body.texts, index.model, normalize=True)
            added, rows = await index.add(body.texts, encoded, body.metadata, unique=body.unique)
            counts = {name: getattr(added, name) for name in ("added", "skipped", "replaced")}
            return {**counts, "truncated": encoded.truncated, "rows": rows}

        return await while_connected(request, work(), timeout=service.limits.timeout)

    @router.post("/delete", response_model=Removed, summary="Remove texts by id, by text, or by a filter")
    async def delete(request: Request, body: DeleteRequest) -> Any:
        index = service.check_changeable()
        check_filter(body.where)
        check_texts(service, [*map(str, body.ids or body.texts or ())], param="ids" if body.ids else "texts")
        return await while_connected(request, _remove(index, **body.chosen()), timeout=service.limits.timeout)

    @router.delete("/{text_id:path}", response_model=Removed, summary="Remove the text with this id")
    async def delete_one(request: Request, text_id: TextId) -> Any:
        index = service.check_changeable()
        return await while_connected(request, _remove(index, ids=[text_id]), timeout=service.limits.timeout)

    return router


async def _remove(index: ServedIndex, **chosen: Any) -> dict[str, int]:
    try:
        removed, rows = await index.remove(**chosen)
    except ConfigError as error:  # the index has no such column
        if "where" not in chosen:
            raise
        raise _bad_filter(error) from None
    return {"removed": removed, "rows": rows}


async def _search(
    service: Service, index: ServedIndex, queries: Sequence[str], body: SearchRequest
) -> tuple[Encoded, bytes]:
    """Return what was found as JSON, which is also made in the thread: it may be large."""
    if body.mode != DENSE and sum(map(len, queries)) > service.limits.max_words:  # else there are hardly as many words
        await index.in_thread(partial(_check_words, queries, service.limits.max_words))
    if body.mode == KEYWORD:  # words need no vectors
        encoded = Encoded(np.empty((len(queries), 0), np.float32), 0, 0)
    else:
        encoded = await service.encode(queries, index.model, normalize=True)
    options = {name: getattr(body, name) for name in ("mode", "where", "min_score", "group")}
    given_up = threading.Event()
    at_once, most = max(1, min(BLOCK, BLOCK_HITS // body.k)), service.limits.max_answer

    def search() -> bytes:
        fresh, _ = index.fresh()
        check_filter(body.where, fresh.columns)
        found: list[bytes] = []
        size = 0
        for start in range(0, len(queries), at_once):
            if given_up.is_set():
                break
            block = encoded.vectors[start : start + at_once]
            texts = queries[start : start + at_once]
            for query, hits in zip(texts, fresh.search_vectors(block, body.k, texts=texts, **options), strict=True):
                rows = [hit._asdict() | {"score": round(float(hit.score), 6)} for hit in hits]
                found.append(json_of({"query": query, "hits": rows}))
                size += len(found[-1])
                if size > most:
                    message = f"the answer is larger than {most:,} bytes. Lower k, or send fewer queries at once."
                    raise Refusal(400, message, code="answer_too_large")
        return b'{"results":[' + b",".join(found) + b"]}"

    try:
        return encoded, await index.in_thread(search)
    finally:
        given_up.set()


def _check_words(queries: Sequence[str], most: int) -> None:
    """Refuse a search for too many words: each takes time, whether the index has it or not."""
    count = 0
    for query in queries:
        count += len(query_words(query))
        if count > most:
            message = f"the queries have more than {most:,} words to look for. Send fewer or shorter queries at once."
            raise Refusal(400, message, param="query", code="too_many_words")


def check_filter(where: Where, columns: Sequence[str] | None = None) -> None:
    """Refuse a filter that cannot be read, or that names none of these columns; the refusal names the field."""
    try:
        parsed = parse(where)
        if columns is not None:
            check_columns(parsed, columns)
    except ConfigError as error:
        raise _bad_filter(error) from None


def _bad_filter(error: ConfigError) -> Refusal:
    return Refusal(400, str(error), param="where", code="invalid_filter")


class Remembered:
    """Something computed from the index in a thread, when it is first asked for and again when the index changed."""

    def __init__(self, service: Service, compute: Callable[[ServedIndex], Mapping[str, Any]]) -> None:
        self._service, self._compute = service, compute
        self._version: object = None
        self._found: asyncio.Task[Mapping[str, Any]] | None = None

    async def get(self) -> Mapping[str, Any]:
        """Return what was computed; requests that come meanwhile wait for the same."""
        index = self._service.index
        _, version = await index.in_thread(index.fresh)
        if self._found is None or self._version != version:
            self._version = version
            self._found = asyncio.create_task(index.in_thread(partial(self._compute, index)))
        try:
            return await asyncio.shield(self._found)
        except Exception:
            self._found = None
            raise


def _describe_index(served: ServedIndex) -> Mapping[str, Any]:
    """Return what clients may know of the index; its folder, its model's folder and its history are private."""
    index, _ = served.fresh()
    with served.lock:
        info = index.info()
    shown = {name: getattr(info, name) for name in ("rows", "distinct", "dimensions", "kind", "id_column", "columns")}
    return {**shown, "model": served.model.name, "fingerprint": info.model["fingerprint"]}


def _measure_index(served: ServedIndex) -> Mapping[str, Any]:
    """Return uniformity, spectrum and cosines of a sample of the indexed vectors."""
    from twinpass.analysis.measure import measure_geometry, measure_spectrum
    from twinpass.analysis.sampling import some_rows

    index = copy(served.fresh()[0])  # as it is now: a change between the two calls below may remove a row
    ids = index.numbers()
    if len(ids) < 2:
        raise Refusal(404, "the index holds fewer than two texts: there is nothing to measure.")
    sample = index.vectors_numbered(ids[some_rows(len(ids), SAMPLE, seed=SEED)])
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
