"""A served model: the names that clients may use, and the queue in front of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from twinpass.encoder.encoder import Encoder
from twinpass.service.batching import Batcher, Metrics, Vectors
from twinpass.service.errors import Refusal
from twinpass.service.limits import Limits
from twinpass.service.workers import Workers
from twinpass.vectors import unit

AT_ONCE = 2_000  # characters that are tokenised without a thread


class Encoded(NamedTuple):
    """Vectors, and what it took to make them."""

    vectors: Vectors
    tokens: int
    truncated: int


class Shared:
    """What all models of a service share: one thread that tokenises, the places for batches, the processor's cores.

    On a CPU, two batches with half of the cores each finish sooner than one after the other with all of them: the cores
    wait for each other many times in a batch. Other runtimes see to that themselves.
    """

    def __init__(self, encoders: Iterable[Encoder], limits: Limits, metrics: Metrics) -> None:
        self.limits, self.metrics = limits, metrics
        self.cores = _torch_threads() if any(map(_is_torch_on_cpu, encoders)) else 1
        self.places = min(limits.max_batches, self.cores)  # batches that are encoded at the same time
        self.free = asyncio.Semaphore(self.places)
        self.tokenizing = Workers(1, name="tokenizing")
        self.batchers: list[Batcher] = []

    @property
    def cores_per_batch(self) -> int:
        """The cores for each of the batches that are being encoded now."""
        return max(1, self.cores // max(1, sum(batcher.running for batcher in self.batchers)))


class ServedModel:
    """A model, its name, and the batches that are made of the texts waiting for it."""

    def __init__(self, encoder: Encoder, names: Sequence[str], shared: Shared, *, normalize: bool = False) -> None:
        self.encoder, self.normalize, self._shared = encoder, normalize, shared
        folder = Path(encoder.name)
        self.name = names[0] if names else folder.resolve().name if folder.is_dir() else encoder.name
        self.names = {*names, self.name}
        self.fingerprint, self.dimensions = encoder.fingerprint, encoder.dimensions
        self.vocabulary = encoder.vocabulary
        self._divides_cores = _is_torch_on_cpu(encoder) and shared.places > 1
        self.batcher = Batcher(
            self._forward,
            token_budget=shared.limits.max_batch_tokens,
            metrics=shared.metrics,
            parallel=shared.places if _is_torch_on_cpu(encoder) else 1,
            free=shared.free,
        )
        shared.batchers.append(self.batcher)
        self._encoding: asyncio.Task[None] | None = None

    async def encode(
        self,
        given: Sequence[str] | Sequence[Sequence[int]],
        *,
        normalize: bool = False,
        truncate: bool = True,
        side: str | None = None,
    ) -> Encoded:
        """Return the vectors of texts, or of rows of token ids, encoded together with whatever else waits.

        `side` is where a text that is too long loses tokens, left or right; without `truncate` it is refused.
        """
        ids: Any = given
        cut: list[int] = []
        if isinstance(given[0], str):
            tokenize = partial(self.encoder.tokens.ids, ids, max_tokens=self.encoder.max_tokens, side=side)
            # A sentence takes less time than a thread's waking; but the tokenizer has a lock.
            tokenizing = self._shared.tokenizing
            at_once = sum(map(len, given)) <= AT_ONCE and not tokenizing.unfinished
            ids, cut = tokenize() if at_once else await tokenizing.run(tokenize)
            if cut and not truncate:
                message = f"text {cut[0]} has more than {self.encoder.max_tokens:,} tokens, and may not be truncated."
                raise Refusal(413, f"{message} Send it in parts, or with truncate: true.", code="string_too_long")
            self._shared.metrics.truncated.inc(len(cut))
        if self._encoding is None:  # at the first request: an app that is mounted in another one is never started
            self._encoding = asyncio.create_task(self.batcher.run())
        vectors = await self.batcher.encode(ids)
        return Encoded(unit(vectors) if normalize or self.normalize else vectors, sum(map(len, ids)), len(cut))

    def _forward(self, ids: Sequence[Sequence[int]]) -> Vectors:
        """Encode a batch, in a thread; batches that are encoded at the same time share the processor's cores."""
        if self._divides_cores:
            import torch

            torch.set_num_threads(self._shared.cores_per_batch)
        return self.encoder.encode_ids(ids, token_budget=self._shared.limits.max_batch_tokens)

    def stop(self) -> None:
        """Encode nothing more."""
        if self._encoding is not None:
            self._encoding.cancel()


def _is_torch_on_cpu(encoder: Encoder) -> bool:
    return encoder.runtime_name == "torch" and str(encoder.device) == "cpu"


def _torch_threads() -> int:
    import torch

    return torch.get_num_threads()
