"""Many requests, few forward passes: what waits is encoded together, up to a budget of tokens.

All bookkeeping happens on the event loop's thread, so nothing needs a lock; only the forward pass runs in a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from twinpass.errors import TwinpassError
from twinpass.service.metrics import Metrics

Vectors = NDArray[np.float32]
Ids = tuple[int, ...]
Forward = Callable[[Sequence[Sequence[int]]], Vectors]  # rows of token ids -> (n, dimensions)
PATIENCE = 0.3  # of the time that the last batch took


@dataclass(eq=False)
class Job:
    """A distinct row of ids on its way through the model, and who wants its vector at which places."""

    ids: Ids
    wanted: dict[Ticket, list[int]] = field(default_factory=dict)


@dataclass(eq=False)
class Ticket:
    """A request: the vectors that came so far, and the jobs that only it has brought and that have not begun."""

    rows: list[Vectors | None]
    missing: int
    answer: asyncio.Future[Vectors]
    own: deque[Job] = field(default_factory=deque)
    jobs: list[Job] = field(default_factory=list)


class Batcher:
    """Takes rows of ids from many requests at once and encodes them in turn, each distinct row once."""

    def __init__(self, forward: Forward, *, token_budget: int, metrics: Metrics) -> None:
        self.forward, self.token_budget, self.metrics = forward, token_budget, metrics
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="encoding")
        self._line: deque[Ticket] = deque()
        self._jobs: dict[Ids, Job] = {}  # waiting or being encoded
        self._some = asyncio.Event()
        self._last_requests, self._last_seconds = 1, 0.0

    async def encode(self, rows: Sequence[Sequence[int]]) -> Vectors:
        """Return a vector for each row; if the caller is cancelled, what has not begun is dropped."""
        ticket = self._stand_in_line(rows)
        try:
            return await ticket.answer
        finally:
            self._leave(ticket)

    async def run(self) -> None:
        """Encode batch after batch, until cancelled."""
        while True:
            await self._some.wait()
            await self._gather()
            if jobs := self._take():
                await self._carry_out(jobs)

    async def _gather(self) -> None:
        """Wait a little, until as many requests stand in line as shared the last batch.

        Those that were answered just now are about to ask again, one after another; a batch that left with the first of
        them would be a small one. Who is alone never waits.
        """
        until = time.perf_counter() + PATIENCE * self._last_seconds
        while len(self._line) < self._last_requests and time.perf_counter() < until:
            await asyncio.sleep(0.001)

    def close(self) -> None:
        """Let the thread end with what it is doing."""
        self._thread.shutdown()

    def _stand_in_line(self, rows: Sequence[Sequence[int]]) -> Ticket:
        ticket = Ticket([None] * len(rows), len(rows), asyncio.get_running_loop().create_future())
        for place, row in enumerate(rows):
            self._join(ticket, place, tuple(row))
        if ticket.own:
            self._line.append(ticket)
            self._some.set()
        return ticket

    def _join(self, ticket: Ticket, place: int, ids: Ids) -> None:
        job = self._jobs.get(ids)
        if job is None:
            job = self._jobs[ids] = Job(ids)
            ticket.own.append(job)
        else:
            self.metrics.shared.add()
        if ticket not in job.wanted:
            ticket.jobs.append(job)
        job.wanted.setdefault(ticket, []).append(place)

    def _leave(self, ticket: Ticket) -> None:
        """Want nothing any more; a job that nobody wants is forgotten, and passed over if it has not begun."""
        for job in ticket.jobs:
            job.wanted.pop(ticket, None)
            if not job.wanted and self._jobs.get(job.ids) is job:
                del self._jobs[job.ids]

    def _take(self) -> list[Job]:
        """Return the next batch: one job of each request in turn, so that no large one holds up the small."""
        jobs: list[Job] = []
        left = self.token_budget
        while self._line and (not jobs or len(self._line[0].own[0].ids) <= left):
            ticket = self._line.popleft()
            job = ticket.own.popleft()
            if ticket.own:
                self._line.append(ticket)
            if job.wanted:
                jobs.append(job)
                left -= len(job.ids)
            else:
                self.metrics.dropped.add()
        if not self._line:
            self._some.clear()
        return jobs

    async def _carry_out(self, jobs: list[Job]) -> None:
        loop, begun = asyncio.get_running_loop(), time.perf_counter()
        try:
            vectors = await loop.run_in_executor(self._thread, self.forward, [job.ids for job in jobs])
        except Exception as error:  # whatever it is, those who wait must hear of it, and the service goes on
            for job in jobs:
                self._fail(job, error)
            return
        self._last_seconds = time.perf_counter() - begun
        self._last_requests = len({ticket for job in jobs for ticket in job.wanted})
        self.metrics.encoding.add(self._last_seconds)
        self.metrics.batches.observe(len(jobs))
        self.metrics.tokens.add(sum(len(job.ids) for job in jobs))
        for job, vector in zip(jobs, vectors, strict=True):
            if np.isfinite(vector).all():
                self._deliver(job, vector)
            else:
                self._fail(job, TwinpassError("the model gave NaN or infinity for a text. Check its weights."))

    def _deliver(self, job: Job, vector: Vectors) -> None:
        if self._jobs.get(job.ids) is job:
            del self._jobs[job.ids]
        for ticket, places in job.wanted.items():
            for place in places:
                ticket.rows[place] = vector
            ticket.missing -= len(places)
            if not ticket.missing and not ticket.answer.done():
                ticket.answer.set_result(np.stack([row for row in ticket.rows if row is not None]))

    def _fail(self, job: Job, error: Exception) -> None:
        if self._jobs.get(job.ids) is job:
            del self._jobs[job.ids]
        for ticket in job.wanted:
            if not ticket.answer.done():
                ticket.answer.set_exception(error)
