"""The app: a model behind its queue, an index beside it, and every route around them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fastapi import FastAPI, Security
from fastapi.security import HTTPBearer
from prometheus_client import Gauge

from twinpass import __version__
from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError, InputError
from twinpass.progress import Log, ignore
from twinpass.search.index import Index
from twinpass.search.texts import as_it_was
from twinpass.service.batching import Batcher, Metrics, Vectors
from twinpass.service.errors import Refusal, add_error_handlers
from twinpass.service.limits import Gate, Limits, host_of, is_loopback
from twinpass.service.pages import page_router
from twinpass.service.routes import embeddings_router, health_router, own_router
from twinpass.service.schemas import ErrorBody
from twinpass.service.workers import Full, Workers
from twinpass.vectors import unit

T = TypeVar("T")
LOG = logging.getLogger("uvicorn.error")

SEARCH_THREADS = 4
AT_ONCE = 2_000  # characters that are tokenised without a thread
PATIENCE = 2.0  # seconds that the threads get at the end to finish what nobody waits for
ANY_MODEL = "default"  # for clients that must send a name and know none
ABOUT = "Sentence embeddings for clients of OpenAI's API; comparison and search beside them."
# Newer FastAPIs can report to a collector that the environment names; older ones ignore this.
TELEMETRY: Any = dict.fromkeys(("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False)
MEANINGS = {
    400: "The request is invalid.",
    401: "The API key is wrong or missing.",
    404: "There is no such model, index or path.",
    408: "The body came too slowly.",
    413: "The body is too large.",
    421: "The service does not answer to this host name.",
    429: "The queue is full; Retry-After says in how many seconds to try again.",
    500: "The model failed, or the index is damaged.",
    503: "The service is stopping, or all its search threads are busy.",
    504: "The answer took too long.",
}


def create_app(
    model: str | os.PathLike[str] | Encoder | None = None,
    index: str | os.PathLike[str] | Index | None = None,
    *,
    name: str | Sequence[str] = (),
    api_key: str | None = None,
    allow_hosts: Sequence[str] = (),
    normalize: bool = False,
    limits: Limits | None = None,
    pooler: str | None = None,
    max_tokens: int | None = None,
    log: Log = ignore,
    **loading: Any,
) -> FastAPI:
    """Return the service as an ASGI application, to run or to mount in another one.

    `model` is an Encoder or a name; without it, the index's model, else minilm. `index` is an Index or its folder;
    texts added to it later are found without a restart. `name` is what clients call the model. `allow_hosts`
    are the names, besides localhost, under which the service is reached; without any, a request over loopback must name
    localhost, unless there is a key. `loading` takes the other options of `Encoder.load`: precision, runtime, device,
    trust_pickle, trust_remote_code.
    """
    opened = Index.open(index) if isinstance(index, (str, os.PathLike)) else index
    known = {} if opened is None else opened.model
    if isinstance(model, Encoder):
        if pooler or max_tokens or loading:
            raise ConfigError("options of loading a model were given, but the model is an Encoder already.")
        encoder = model
    else:
        model = model or known.get("name", "minilm")
        log(f"loading {model} ...")
        encoder = Encoder.load(model, **as_it_was(known, {"pooler": pooler, "max_tokens": max_tokens, **loading}))
    if opened is not None:
        opened.check_model(name=encoder.name, fingerprint=encoder.fingerprint, exported=encoder.exported)
    names = [name] if isinstance(name, str) else name
    options: dict[str, Any] = {"api_key": api_key, "allow_hosts": allow_hosts, "normalize": normalize, "limits": limits}
    return app_of(Service(encoder, opened, names=names, **options))


class Encoded(NamedTuple):
    """Vectors, and what it took to make them."""

    vectors: Vectors
    tokens: int
    truncated: int


class Service:
    """What the routes share: a model, served under its names, an index, the limits and the metrics."""

    def __init__(
        self,
        encoder: Encoder,
        index: Index | None = None,
        *,
        names: Sequence[str] = (),
        api_key: str | None = None,
        allow_hosts: Sequence[str] = (),
        normalize: bool = False,
        limits: Limits | None = None,
    ) -> None:
        self.encoder, self.api_key, self.normalize = encoder, api_key, normalize
        self.allow_hosts = {host_of(name.encode()) for name in allow_hosts}
        self.public = False  # whether other machines reach it: then it has names that we do not know
        self.limits = limits or Limits()
        folder = Path(encoder.name)
        self.name = names[0] if names else folder.resolve().name if folder.is_dir() else encoder.name
        self.names = {*names, self.name, encoder.name, ANY_MODEL}
        self.fingerprint, self.dimensions = encoder.fingerprint, encoder.dimensions
        self.vocabulary = encoder.vocabulary
        self.started = int(time.time())
        self.metrics = Metrics()
        self.active = 0  # requests being read, worked on or answered
        self.held = 0  # texts accepted and not answered yet
        self.stopping = False
        self.index_lock = threading.Lock()  # held while the index is refreshed, or read in more than one call
        self._index, self._index_changes, self._index_problem = index, 0, ""
        self._index_model = None if index is None else index.model["fingerprint"]
        budget, parallel = self.limits.max_batch_tokens, _parallel_batches(encoder, self.limits.max_batches)
        self.batcher = Batcher(self._forward, token_budget=budget, metrics=self.metrics, parallel=parallel)
        self._cores = _torch_threads() if parallel > 1 else None
        self._encoding: asyncio.Task[None] | None = None
        self._tokenizing = Workers(1, name="tokenizing")
        self._searching = Workers(SEARCH_THREADS, name="searching", line=self.limits.max_searches)
        held = Gauge("twinpass_queue_texts", "Texts accepted, not answered yet.", registry=self.metrics.registry)
        held.set_function(lambda: self.held)
        active = Gauge("twinpass_active_requests", "Requests being answered.", registry=self.metrics.registry)
        active.set_function(lambda: self.active)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve; at the end let the threads finish what they began, if it takes no longer than a moment."""
        try:
            yield
        finally:
            self.stopping = True
            if self._encoding is not None:
                self._encoding.cancel()
            until = time.monotonic() + PATIENCE
            for workers in self._threads:
                workers.close(until - time.monotonic())

    @property
    def _threads(self) -> tuple[Workers, ...]:
        return self.batcher.threads, self._tokenizing, self._searching

    @property
    def at_work(self) -> bool:
        """Whether a thread is busy: with a request, or with one that was given up and cannot be interrupted."""
        return any(workers.unfinished for workers in self._threads)

    def checks_hosts(self, reached_at: tuple[str, int | None] | None) -> bool:
        """Tell whether a request that came in at this address must name a host that we know."""
        if self.allow_hosts:
            return True
        return self.api_key is None and not self.public and reached_at is not None and is_loopback(reached_at[0])

    @property
    def ready(self) -> bool:
        """Whether a request sent now would be accepted."""
        return not self.stopping and self.held < self.limits.max_queue

    async def encode(self, given: Sequence[str] | Sequence[Sequence[int]], *, normalize: bool = False) -> Encoded:
        """Return the vectors of texts, or of rows of token ids, encoded together with whatever else waits."""
        with self._place(len(given)):
            ids: Any = given
            cut: list[int] = []
            if isinstance(given[0], str):
                tokenize = partial(self.encoder.tokens.ids, ids, max_tokens=self.encoder.max_tokens)
                # A sentence takes less time than a thread's waking; but the tokenizer has a lock.
                at_once = sum(map(len, given)) <= AT_ONCE and not self._tokenizing.unfinished
                ids, cut = tokenize() if at_once else await self._tokenizing.run(tokenize)
                self.metrics.truncated.inc(len(cut))
            if self._encoding is None:  # at the first request: an app that is mounted in another one is never started
                self._encoding = asyncio.create_task(self.batcher.run())
            vectors = await self.batcher.encode(ids)
        return Encoded(unit(vectors) if normalize or self.normalize else vectors, sum(map(len, ids)), len(cut))

    def _forward(self, ids: Sequence[Sequence[int]]) -> Vectors:
        """Encode a batch, in a thread; batches that are encoded at the same time share the processor's cores."""
        if self._cores is not None:
            import torch

            torch.set_num_threads(max(1, self._cores // max(1, self.batcher.running)))
        return self.encoder.encode_ids(ids, token_budget=self.limits.max_batch_tokens)

    def busy(self, *, close: bool = False) -> Refusal:
        """Return the refusal of a request that finds the queue full, with the seconds after which to try again."""
        seconds = int(min(max(1.0, self.batcher.seconds_per_text * self.held), self.limits.timeout))
        headers = {"Retry-After": str(seconds)} | ({"Connection": "close"} if close else {})
        return Refusal(
            429, f"{self.held:,} texts are waiting already. Try again later.", code="queue_full", headers=headers
        )

    async def in_search_thread(self, work: Callable[[], T]) -> T:
        """Return the result of work on the index; refuse it if too much waits already, or if the index is damaged."""
        try:
            return await self._searching.run(work)
        except Full:
            message = f"{self.limits.max_searches} searches are waiting already. Try again later."
            raise Refusal(503, message, code="search_busy", headers={"Retry-After": "1"}) from None
        except (InputError, OSError) as error:  # not the client's mistake, and the message names files of the server
            LOG.error("the index cannot be read: %s", error)
            message = "the index cannot be read. See the server's log."
            raise Refusal(500, message, code="index_damaged") from None

    def check_index(self) -> Index:
        """Return the index as it was last read, or refuse where none is served."""
        if self._index is None:
            message = "no index is served. Start with: twinpass serve MODEL --index INDEX"
            raise Refusal(404, message, code="no_index")
        return self._index

    def fresh_index(self) -> tuple[Index, object]:
        """Return the index with what others changed, and a version that changes with it; call it in a thread."""
        index = self.check_index()
        with self.index_lock:
            try:
                self._index_changes += index.refresh()
                self._index_problem = ""
            except (InputError, OSError) as error:  # moved, deleted or damaged meanwhile: what is open stays readable
                if str(error) != self._index_problem:
                    LOG.warning("the index is served as it was before, because it cannot be read now: %s", error)
                self._index_problem = str(error)
            if index.model["fingerprint"] != self._index_model:
                message = "the index was rebuilt with another model. Restart the service."
                raise Refusal(503, message, code="index_changed")
            return index, (self._index_changes, len(index))

    @contextlib.contextmanager
    def _place(self, texts: int) -> Iterator[None]:
        """Hold room in the queue for this many texts."""
        if self.stopping:
            raise Refusal(503, "the service is stopping.", code="stopping", headers={"Retry-After": "1"})
        if self.held + texts > self.limits.max_queue:
            raise self.busy()
        self.held += texts
        self.metrics.texts.inc(texts)
        try:
            yield
        finally:
            self.held -= texts


def _parallel_batches(encoder: Encoder, most: int) -> int:
    """Return how many batches to encode at the same time.

    On a CPU, two batches with half of the cores each finish sooner than one after the other with all of them: the cores
    wait for each other many times in a batch. Other runtimes see to that themselves.
    """
    on_cpu = encoder.runtime_name == "torch" and str(encoder.device) == "cpu"
    return min(most, _torch_threads()) if on_cpu else 1


def _torch_threads() -> int:
    import torch

    return torch.get_num_threads()


def app_of(service: Service) -> FastAPI:
    """Return the ASGI application of a service, which is its `state.service`."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    app = FastAPI(
        title="twinpass",
        version=__version__,
        description=ABOUT,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's pages load scripts from elsewhere; ours is in pages.py
        redoc_url=None,
        redirect_slashes=False,
        telemetry=TELEMETRY,
    )
    app.state.service = service
    # Only for the description: the gate checks the key, before a body is read.
    keyed = [Security(HTTPBearer(auto_error=False))] if service.api_key is not None else []
    for router in (embeddings_router(service), own_router(service)):
        app.include_router(router, dependencies=keyed, responses=_failures())
    app.include_router(health_router(service), responses=_failures(503))
    app.include_router(page_router())
    app.add_middleware(Gate, service=service)
    add_error_handlers(app)
    return app


def _failures(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {
        status: {"model": ErrorBody, "description": meaning}
        for status, meaning in MEANINGS.items()
        if not statuses or status in statuses
    } | {"default": {"model": ErrorBody, "description": "Anything else."}}
