"""The app: models behind their queues, an index beside them, and every route around them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Security
from fastapi.security import HTTPBearer
from prometheus_client import Gauge

from twinpass import __version__
from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError, ModelError
from twinpass.progress import Log, ignore
from twinpass.search.index import Index
from twinpass.search.texts import as_it_was
from twinpass.service.batching import Metrics
from twinpass.service.errors import Refusal, add_error_handlers
from twinpass.service.index_routes import changes_router, index_router
from twinpass.service.limits import Gate, Limits, host_of, is_loopback
from twinpass.service.pages import page_router
from twinpass.service.routes import health_router, metrics_router, openai_router, similarity_router, tei_router
from twinpass.service.schemas import ErrorBody, TeiErrorBody
from twinpass.service.served_index import ServedIndex
from twinpass.service.served_model import Encoded, ServedModel, Shared
from twinpass.service.workers import Workers

Model = str | os.PathLike[str] | Encoder

PATIENCE = 2.0  # seconds that the threads get at the end to finish what nobody waits for
ANY_MODEL = "default"  # for clients that must send a name and know none
ABOUT = "Sentence embeddings for clients of OpenAI's API and of TEI's; comparison and search beside them."
# Newer FastAPIs can report to a collector that the environment names; older ones ignore this.
TELEMETRY: Any = dict.fromkeys(("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False)
MEANINGS = {
    400: "The request is invalid.",
    401: "The API key is wrong or missing.",
    403: "The index is not changed here: the service has no key, or is read-only.",
    404: "There is no such model, index, text or path.",
    408: "The body came too slowly.",
    409: "Another process is changing the index, or it was built with another form of the model.",
    413: "The body, a text or the index is too large.",
    421: "The service does not answer to this host name.",
    429: "The queue is full; Retry-After says in how many seconds to try again.",
    500: "The model failed, or the index is damaged.",
    503: "The service is stopping, or all its search threads are busy.",
    504: "The answer took too long.",
}


def create_app(
    model: Model | Mapping[str, Model] | None = None,
    index: str | os.PathLike[str] | Index | None = None,
    *,
    name: str | Sequence[str] = (),
    api_key: str | None = None,
    allow_hosts: Sequence[str] = (),
    open_metrics: bool = False,
    read_only: bool = False,
    normalize: bool = False,
    limits: Limits | None = None,
    pooler: str | None = None,
    max_tokens: int | None = None,
    log: Log = ignore,
    **loading: Any,
) -> FastAPI:
    """Return the service as an ASGI application, to run or to mount in another one.

    `model` is an Encoder or a name; without it, the index's model, else minilm. Several models are given by the names
    that clients use: {"small": "minilm", "mine": "my-model"}; the first is used where a request names none. `index` is
    an Index or its folder; texts added to it later are found without a restart. `name` is what clients call a single
    model. With an `api_key`, clients that send it may change the index, unless `read_only`; with `open_metrics`,
    /metrics needs no key. `allow_hosts` are the names, besides localhost, under which the service is reached; without
    any, a request over loopback must name localhost, unless there is a key. `loading` takes the other options of
    `Encoder.load`: precision, runtime, device, trust_pickle, trust_remote_code.
    """
    opened = Index.open(index) if isinstance(index, (str, os.PathLike)) else index
    known = {} if opened is None else opened.model
    names = [name] if isinstance(name, str) else name
    options = {"pooler": pooler, "max_tokens": max_tokens, **loading}

    def load(given: Model, alone: bool = True) -> Encoder:
        if isinstance(given, Encoder):
            if pooler or max_tokens or loading:
                raise ConfigError("options of loading a model were given, but the model is an Encoder already.")
            return given
        log(f"loading {given} ...")
        is_indexed = alone or str(given) == known.get("name")
        return Encoder.load(given, **(as_it_was(known, options) if is_indexed else options))

    served: Encoder | dict[str, Encoder]
    if isinstance(model, Mapping):
        if not model:
            raise ConfigError("expected at least one model by name, got none.")
        if names:
            raise ConfigError(
                f"--name (in Python: name) is only for one model that is given without a name, got {names[0]!r} beside "
                f"{next(iter(model))}=MODEL. Leave it out, or give the model without {next(iter(model))}=."
            )
        served = {each: load(given, alone=len(model) == 1) for each, given in model.items()}
    else:
        served = load(model or known.get("name", "minilm"))
    return app_of(
        Service(
            served,
            opened,
            names=names,
            api_key=api_key,
            allow_hosts=allow_hosts,
            open_metrics=open_metrics,
            read_only=read_only,
            normalize=normalize,
            limits=limits,
        )
    )


class Service:
    """What the routes share: models, served under their names, an index, the limits and the metrics.

    `models` is one model, served under `names`, or several by name; the first is used where a request names none.
    """

    def __init__(
        self,
        models: Encoder | Mapping[str, Encoder],
        index: Index | None = None,
        *,
        names: Sequence[str] = (),
        api_key: str | None = None,
        allow_hosts: Sequence[str] = (),
        open_metrics: bool = False,
        read_only: bool = False,
        normalize: bool = False,
        limits: Limits | None = None,
    ) -> None:
        self.api_key, self.open_metrics, self.read_only = api_key, open_metrics, read_only
        self.allow_hosts = {host_of(name.encode()) for name in allow_hosts}
        self.public = False  # whether other machines reach it: then it has names that we do not know
        self.limits = limits or Limits()
        self.started = int(time.time())
        self.metrics = Metrics()
        self.active = 0  # requests being read, worked on or answered
        self.held = 0  # texts accepted and not answered yet
        self.stopping = False
        given = [(names, models)] if isinstance(models, Encoder) else [([name], each) for name, each in models.items()]
        self._shared = Shared([encoder for _, encoder in given], self.limits, self.metrics)
        self.models = [ServedModel(encoder, known, self._shared, normalize=normalize) for known, encoder in given]
        self._by_name = {ANY_MODEL: self.models[0]}
        self._by_name |= {model.encoder.name: model for model in reversed(self.models)}
        self._by_name |= {name: model for model in self.models for name in model.names}  # these were chosen
        self._index = None if index is None else ServedIndex(index, _model_of(index, self.models), self.limits)
        held = Gauge("twinpass_queue_texts", "Texts accepted, not answered yet.", registry=self.metrics.registry)
        held.set_function(lambda: self.held)
        active = Gauge("twinpass_active_requests", "Requests being answered.", registry=self.metrics.registry)
        active.set_function(lambda: self.active)

    def model(self, name: str | None = None) -> ServedModel:
        """Return the model of this name, or the first one; refuse an unknown name."""
        if name is None:
            return self.models[0]
        if name not in self._by_name:
            known = ", ".join(repr(model.name) for model in self.models)
            message = f"the model {name!a} does not exist here. Served: {known}."
            raise Refusal(404, message, param="model", code="model_not_found")
        return self._by_name[name]

    @property
    def index(self) -> ServedIndex:
        """The index; a request is refused where none is served."""
        if self._index is None:
            message = "no index is served. Start with: twinpass serve MODEL --index INDEX"
            raise Refusal(404, message, code="no_index")
        return self._index

    def check_changeable(self) -> ServedIndex:
        """Return the index if clients may change it."""
        index = self.index
        if self.api_key is None:
            message = "texts are added and removed with a key only. Start the service with --api-key KEY."
            raise Refusal(403, message, code="key_required")
        if self.read_only:
            raise Refusal(403, "this service does not change its index: it runs with --read-only.", code="read_only")
        return index

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve; at the end let the threads finish what they began, if it takes no longer than a moment."""
        try:
            yield
        finally:
            self.stopping = True
            for model in self.models:
                model.stop()
            until = time.monotonic() + PATIENCE
            for workers in self._threads:
                workers.close(until - time.monotonic())

    @property
    def _threads(self) -> list[Workers]:
        searching = () if self._index is None else self._index.threads
        return [*(model.batcher.threads for model in self.models), self._shared.tokenizing, *searching]

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

    async def encode(
        self, given: Sequence[str] | Sequence[Sequence[int]], model: ServedModel | None = None, **options: Any
    ) -> Encoded:
        """Return the vectors of texts, or of rows of token ids, as ServedModel.encode, if the queue has room."""
        with self._place(len(given)):
            return await (model or self.models[0]).encode(given, **options)

    def busy(self, *, close: bool = False) -> Refusal:
        """Return the refusal of a request that finds the queue full, with the seconds after which to try again."""
        per_text = max(model.batcher.seconds_per_text for model in self.models)
        seconds = int(min(max(1.0, per_text * self.held), self.limits.timeout))
        headers = {"Retry-After": str(seconds)} | ({"Connection": "close"} if close else {})
        return Refusal(
            429, f"{self.held:,} texts are waiting already. Try again later.", code="queue_full", headers=headers
        )

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


def _model_of(index: Index, models: Sequence[ServedModel]) -> ServedModel:
    """Return the model that an index was built with, or that was exported from it."""
    problems = []
    for model in sorted(models, key=lambda model: model.fingerprint != index.model["fingerprint"]):
        try:
            index.check_model(name=model.name, fingerprint=model.fingerprint, exported=model.encoder.exported)
        except ModelError as error:
            problems.append(error)
        else:
            return model
    raise problems[0]


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
    for router in (openai_router(service), similarity_router(service), index_router(service), changes_router(service)):
        app.include_router(router, dependencies=keyed, responses=_failures())
    app.include_router(tei_router(service), dependencies=keyed, responses=_failures(shape=TeiErrorBody))
    app.include_router(
        metrics_router(service), dependencies=[] if service.open_metrics else keyed, responses=_failures(401)
    )
    app.include_router(health_router(service), responses=_failures(503))
    app.include_router(page_router())
    app.add_middleware(Gate, service=service)
    add_error_handlers(app)
    return app


def _failures(*statuses: int, shape: type = ErrorBody) -> dict[int | str, dict[str, Any]]:
    return {
        status: {"model": shape, "description": meaning}
        for status, meaning in MEANINGS.items()
        if not statuses or status in statuses
    } | {"default": {"model": shape, "description": "Anything else."}}
