"""Many requests, few forward passes: waiting texts are encoded together, up to a budget of tokens.

All bookkeeping happens on the event loop's thread, so nothing needs a lock; only the forward pass runs in a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
from fastapi import Request
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Histogram

from twinpass.errors import TwinpassError
from twinpass.service.errors import Refusal
from twinpass.service.workers import Workers

T = TypeVar("T")

Vectors = NDArray[np.float32]
Ids = tuple[int, ...]
Forward = Callable[[Sequence[Sequence[int]]], Vectors]  # rows of token ids -> (n, dimensions)
PATIENCE = 0.3  # of the time that the last batch took
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """What one service counts, for Prometheus, whose library adds `_total` to the names of counters."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._counter("requests", "Requests answered.", "method", "route", "status")
        self.seconds = Histogram(
            "twinpass_request_seconds", "From request to answer.", ["route"], buckets=SECONDS, registry=self.registry
        )
        self.batches = Histogram(
            "twinpass_batch_texts", "Texts encoded together.", buckets=SIZES, registry=self.registry
        )
        self.encoding = self._counter("encoding_seconds", "Time spent encoding.")
        self.tokens = self._counter("tokens", "Tokens encoded, without padding.")
        self.texts = self._counter("texts", "Texts accepted.")
        self.shared = self._counter("texts_shared", "Texts that another request had already sent for encoding.")
        self.truncated = self._counter("texts_truncated", "Texts longer than the model reads.")
        self.dropped = self._counter("texts_dropped", "Texts not encoded because their client had gone.")

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"twinpass_{name}", meaning, labels, registry=self.registry)


@dataclass(eq=False)
class Job:
    """A distinct row of ids on its way through the model, and the requests that wait for its vector, by position."""

    ids: Ids
    waiting: dict[Ticket, list[int]] = field(default_factory=dict)


@dataclass(eq=False)
class Ticket:
    """A request: the vectors that are done, and the jobs that it brought and that have not begun."""

    rows: list[Vectors | None]
    missing: int
    answer: asyncio.Future[Vectors]
    own: deque[Job] = field(default_factory=deque)
    jobs: list[Job] = field(default_factory=list)


class Batcher:
    """Takes rows of ids from many requests at once and encodes them in turn, each distinct row once."""

    def __init__(
        self,
        forward: Forward,
        *,
        token_budget: int,
        metrics: Metrics,
        parallel: int = 1,
        free: asyncio.Semaphore | None = None,
    ) -> None:
        self.forward, self.token_budget, self.metrics, self.parallel = forward, token_budget, metrics, parallel
        self.threads = Workers(parallel, name="encoding")
        self._free = free or asyncio.Semaphore(parallel)  # places for batches, of this model and of others
        self.running = 0  # batches that are being encoded
        self._encoding = 0  # texts in them
        self._line: deque[Ticket] = deque()
        self._tokens = 0  # of the jobs in line
        self._jobs: dict[Ids, Job] = {}  # waiting or being encoded
        self._some = asyncio.Event()
        self._turn = asyncio.Lock()  # held by the one who chooses the next batch
        self._texts, self._seconds = 0, 0.0  # encoded so far

    @property
    def seconds_per_text(self) -> float:
        """How long a text took on average; 0 before the first."""
        return self._seconds / self._texts if self._texts else 0.0

    async def encode(self, rows: Sequence[Sequence[int]]) -> Vectors:
        """Return a vector for each row; if the caller is cancelled, what has not begun is dropped."""
        ticket = self._stand_in_line(rows)
        try:
            return await ticket.answer
        finally:
            self._leave(ticket)

    async def run(self) -> None:
        """Encode batch after batch, `parallel` at a time, until cancelled."""
        await asyncio.gather(*(self._encode_in_turn() for _ in range(self.parallel)))

    async def _encode_in_turn(self) -> None:
        requests, seconds = 1, 0.0  # of this one's last batch
        while True:
            await self._some.wait()
            async with self._free:
                async with self._turn:
                    await self._gather(requests, PATIENCE * seconds)
                    jobs = self._take()
                if jobs:
                    requests, seconds = await self._carry_out(jobs)

    async def _gather(self, requests: int, seconds: float) -> None:
        """Wait a little, until the line fills a batch, or as many requests stand in it as made up the last one.

        Clients that were just answered are about to ask again, one after another; without this wait the first of them
        would make a batch of one. A client that is alone never waits.
        """
        until = time.perf_counter() + seconds
        while len(self._line) < requests and self._tokens < self.token_budget and time.perf_counter() < until:
            await asyncio.sleep(0.001)

    def _stand_in_line(self, rows: Sequence[Sequence[int]]) -> Ticket:
        ticket = Ticket([None] * len(rows), len(rows), asyncio.get_running_loop().create_future())
        for place, ids in enumerate(map(tuple, rows)):
            if ids in self._jobs:
                self.metrics.shared.inc()
            else:
                self._jobs[ids] = Job(ids)
                ticket.own.append(self._jobs[ids])
                self._tokens += len(ids)
            job = self._jobs[ids]
            if ticket not in job.waiting:
                ticket.jobs.append(job)
            job.waiting.setdefault(ticket, []).append(place)
        if ticket.own:
            self._line.append(ticket)
            self._some.set()
        return ticket

    def _leave(self, ticket: Ticket) -> None:
        """Stop waiting; a job that nobody waits for is forgotten, and skipped if it has not begun."""
        for job in ticket.jobs:
            job.waiting.pop(ticket, None)
            if not job.waiting:
                self._forget(job)

    def _take(self) -> list[Job]:
        """Return the next batch: one job of each request in turn, so that a large request does not delay small ones.

        Batches that are encoded side by side are of equal size: whoever comes next would wait for a larger one.
        """
        jobs: list[Job] = []
        left = self.token_budget
        share = -(-(sum(len(ticket.own) for ticket in self._line) + self._encoding) // self.parallel)
        while self._line and (not jobs or (len(jobs) < share and len(self._line[0].own[0].ids) <= left)):
            ticket = self._line.popleft()
            job = ticket.own.popleft()
            self._tokens -= len(job.ids)
            if ticket.own:
                self._line.append(ticket)
            if job.waiting:
                jobs.append(job)
                left -= len(job.ids)
            else:
                self.metrics.dropped.inc()
        if not self._line:
            self._some.clear()
        return jobs

    async def _carry_out(self, jobs: list[Job]) -> tuple[int, float]:
        """Encode a batch and deliver its vectors; return how many requests made it up, and the seconds it took."""
        begun = time.perf_counter()
        self.running, self._encoding = self.running + 1, self._encoding + len(jobs)
        try:
            vectors = await self.threads.run(partial(self.forward, [job.ids for job in jobs]))
        except Exception as error:  # whatever it is, the waiting requests must get it, and the service continues
            for job in jobs:
                self._fail(job, error)
            return 1, 0.0
        finally:
            self.running, self._encoding = self.running - 1, self._encoding - len(jobs)
        seconds = time.perf_counter() - begun
        # The first who waits for a job brought it. Those who asked for the same text later did not stand in line.
        requests = len({next(iter(job.waiting)) for job in jobs if job.waiting})
        self._texts, self._seconds = self._texts + len(jobs), self._seconds + seconds
        self.metrics.encoding.inc(seconds)
        self.metrics.batches.observe(len(jobs))
        self.metrics.tokens.inc(sum(len(job.ids) for job in jobs))
        for job, vector in zip(jobs, vectors, strict=True):
            if np.isfinite(vector).all():
                self._deliver(job, vector)
            else:
                self._fail(job, TwinpassError("the model gave NaN or infinity for a text. Check its weights."))
        return requests, seconds

    def _deliver(self, job: Job, vector: Vectors) -> None:
        self._forget(job)
        for ticket, places in job.waiting.items():
            for place in places:
                ticket.rows[place] = vector
            ticket.missing -= len(places)
            if not ticket.missing and not ticket.answer.done():
                ticket.answer.set_result(np.stack([row for row in ticket.rows if row is not None]))

    def _fail(self, job: Job, error: Exception) -> None:
        self._forget(job)
        for ticket in job.waiting:
            if not ticket.answer.done():
                ticket.answer.set_exception(error)

    def _forget(self, job: Job) -> None:
        if self._jobs.get(job.ids) is job:
            del self._jobs[job.ids]


async def while_connected(request: Request, work: Coroutine[Any, Any, T], *, timeout: float) -> T:
    """Return the work's result, or cancel it when the client has gone or the time is up."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({working, gone}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        if gone.done():
            raise Refusal(499, "the client has gone.", code="client_closed_request")
        raise Refusal(504, f"no answer within {timeout:g} seconds. Send less at once, or later.", code="timeout")
    finally:
        working.cancel()
        gone.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)  # its room in the queue is free before the answer


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
