"""What the routes share: the model behind its queue, the index, the limits and the counts."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from twinpass.encoder.encoder import Encoder
from twinpass.search.index import Index
from twinpass.service.batching import Batcher, Vectors
from twinpass.service.limits import Limits
from twinpass.service.metrics import Metrics
from twinpass.service.problems import Refusal
from twinpass.vectors import unit

ANY_MODEL = "default"  # the name that a client sends which has no name to send


class Encoded(NamedTuple):
    """Vectors, and what it took to make them."""

    vectors: Vectors
    tokens: int
    truncated: int


class Service:
    """A model, served under its names, and perhaps an index."""

    def __init__(
        self,
        encoder: Encoder,
        *,
        names: Sequence[str] = (),
        index: Index | None = None,
        limits: Limits | None = None,
        api_key: str | None = None,
        normalize: bool = False,
    ) -> None:
        self.encoder, self.index, self.api_key, self.normalize = encoder, index, api_key, normalize
        self.limits = limits or Limits()
        self.name = names[0] if names else _short(encoder.name)
        self.names = {*names, self.name, encoder.name, ANY_MODEL}
        self.fingerprint, self.dimensions = encoder.fingerprint, encoder.dimensions
        self.vocabulary = int(encoder.model.transformer.get_input_embeddings().num_embeddings)  # type: ignore[operator]
        self.started = int(time.time())
        self.metrics = Metrics()
        self.active = 0  # requests being read, worked on or answered
        self.held = 0  # texts accepted and not answered yet
        self.stopping = False
        forward = partial(encoder.encode_ids, token_budget=self.limits.batch_tokens)
        self.batcher = Batcher(forward, token_budget=self.limits.batch_tokens, metrics=self.metrics)
        self._tokenizing = ThreadPoolExecutor(1, thread_name_prefix="tokenizing")
        self.metrics.watch("twinpass_queue_texts", "Texts accepted, not answered yet.", lambda: self.held)
        self.metrics.watch("twinpass_active_requests", "Requests being answered.", lambda: self.active)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Encode what comes in; in the end let the threads finish what they began."""
        encoding = asyncio.create_task(self.batcher.run())
        try:
            yield
        finally:
            self.stopping = True
            encoding.cancel()
            self.batcher.close()
            self._tokenizing.shutdown()

    @property
    def ready(self) -> bool:
        """Whether a request sent now would be taken."""
        return not self.stopping and self.held < self.limits.queue

    async def encode_texts(self, texts: Sequence[str], *, normalize: bool = False) -> Encoded:
        """Return the vectors of texts, together with whatever else waits."""
        with self._place(len(texts)):
            loop = asyncio.get_running_loop()
            ids, cut = await loop.run_in_executor(self._tokenizing, self._tokenize, texts)
            self.metrics.truncated.add(len(cut))
            return await self._encode(ids, truncated=len(cut), normalize=normalize)

    async def encode_ids(self, ids: Sequence[Sequence[int]], *, normalize: bool = False) -> Encoded:
        """Return the vectors of rows of token ids."""
        with self._place(len(ids)):
            return await self._encode(ids, truncated=0, normalize=normalize)

    def busy(self, *, close: bool = False) -> Refusal:
        """Return the refusal of a request that finds the queue full, saying when to come again."""
        headers = {"Retry-After": str(self._seconds_left())} | ({"Connection": "close"} if close else {})
        message = f"{self.held:,} texts are waiting already. Send this again in a while."
        return Refusal(429, message, code="queue_full", headers=headers)

    @contextlib.contextmanager
    def _place(self, texts: int) -> Iterator[None]:
        """Hold room in the queue for so many texts."""
        if self.stopping:
            raise Refusal(503, "the service is stopping.", code="stopping", headers={"Retry-After": "1"})
        if self.held + texts > self.limits.queue:
            raise self.busy()
        self.held += texts
        self.metrics.texts.add(texts)
        try:
            yield
        finally:
            self.held -= texts

    def _tokenize(self, texts: Sequence[str]) -> tuple[list[list[int]], list[int]]:
        return self.encoder.tokens.ids(texts, max_tokens=self.encoder.max_tokens)

    async def _encode(self, ids: Sequence[Sequence[int]], *, truncated: int, normalize: bool) -> Encoded:
        vectors = await self.batcher.encode(ids)
        tokens = sum(map(len, ids))
        return Encoded(unit(vectors) if normalize or self.normalize else vectors, tokens, truncated)

    def _seconds_left(self) -> int:
        """Return roughly how long the texts that wait will take, judged by those before."""
        done = sum(sum(counts) for counts in self.metrics.batches.counts.values())
        encoded = sum(self.metrics.batches.sums.values())
        each = self.metrics.encoding.values[()] / encoded if done else 0.0
        return int(min(max(1.0, each * self.held), self.limits.seconds))


def _short(name: str) -> str:
    """Return a folder's own name, or the name itself."""
    return Path(name).resolve().name if Path(name).is_dir() else name
