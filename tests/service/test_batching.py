"""The batcher on its own: what is encoded together, once, in turn, or not at all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np
import pytest

from twinpass.errors import TwinpassError
from twinpass.service.batching import Batcher, Metrics


class Model:
    """Row (a, b, ...) becomes the vector (a, length); every batch waits for `go`."""

    def __init__(self, *, held: bool = False) -> None:
        self.batches: list[list[tuple[int, ...]]] = []
        self.begun = threading.Event()
        self.go = threading.Event()
        if not held:
            self.go.set()

    def __call__(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        self.batches.append([tuple(row) for row in rows])
        self.begun.set()
        assert self.go.wait(60)
        if any(row[0] == 666 for row in rows):
            raise MemoryError("too much")
        vectors = np.array([[row[0], len(row)] for row in rows], dtype=np.float32)
        vectors[[row[0] == 999 for row in rows]] = np.nan
        return vectors


def run(
    model: Model, scene: Callable[[Batcher], Coroutine[Any, Any, None]], *, token_budget: int = 100, parallel: int = 1
) -> Metrics:
    """Play a scene with a running batcher."""

    async def play() -> Metrics:
        batcher = Batcher(model, token_budget=token_budget, metrics=Metrics(), parallel=parallel)
        running = asyncio.create_task(batcher.run())
        try:
            await asyncio.wait_for(scene(batcher), 120)
        finally:
            model.go.set()
            running.cancel()
            batcher.threads.close(60)
        assert not batcher._jobs  # whatever happened, nothing is left behind
        return batcher.metrics

    return asyncio.run(play())


def value(metrics: Metrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(f"twinpass_{name}")


async def begun(model: Model) -> None:
    await asyncio.to_thread(model.begun.wait, 60)
    model.begun.clear()


def task(batcher: Batcher, *rows: tuple[int, ...]) -> asyncio.Task[Any]:
    return asyncio.create_task(batcher.encode(rows))


def test_what_waits_is_encoded_together_and_each_gets_its_own():
    model = Model(held=True)

    async def scene(batcher: Batcher) -> None:
        first = task(batcher, (1, 1))
        await begun(model)
        others = [task(batcher, (place,), (place, 0)) for place in range(2, 12)]
        await asyncio.sleep(0)
        model.go.set()
        assert (await first).tolist() == [[1, 2]]
        for place, each in enumerate(await asyncio.gather(*others), start=2):
            assert each.tolist() == [[place, 1], [place, 2]]

    metrics = run(model, scene)
    assert [len(batch) for batch in model.batches] == [1, 20]
    assert value(metrics, "batch_texts_sum") == 21 and value(metrics, "tokens_total") == 2 + 10 * 3


def test_a_batch_keeps_to_the_budget_unless_a_single_row_exceeds_it():
    model = Model(held=True)

    async def scene(batcher: Batcher) -> None:
        first = task(batcher, (0,))
        await begun(model)
        rest = task(batcher, *[(place, 1, 1, 1) for place in range(1, 8)], (9,) * 30)
        await asyncio.sleep(0)
        model.go.set()
        await asyncio.gather(first, rest)

    run(model, scene, token_budget=12)
    assert [sum(map(len, batch)) for batch in model.batches[1:]] == [12, 12, 4, 30]


def test_a_large_request_does_not_hold_up_a_small_one():
    model = Model(held=True)

    async def scene(batcher: Batcher) -> None:
        first = task(batcher, (0,))
        await begun(model)
        large = task(batcher, *[(place,) for place in range(1, 50)])
        small = task(batcher, (77,))
        await asyncio.sleep(0)
        model.go.set()
        await asyncio.gather(first, large, small)

    run(model, scene, token_budget=4)
    assert model.batches[1] == [(1,), (77,), (2,), (3,)]


def test_the_same_row_is_encoded_once_within_a_request_and_across_requests():
    model = Model(held=True)

    async def scene(batcher: Batcher) -> None:
        first = task(batcher, (5, 5), (5, 5))
        await begun(model)
        second = task(batcher, (6,), (5, 5), (6,))  # the first of them is being encoded already
        await asyncio.sleep(0)
        model.go.set()
        assert (await first).tolist() == [[5, 2], [5, 2]]
        assert (await second).tolist() == [[6, 1], [5, 2], [6, 1]]

    metrics = run(model, scene)
    assert model.batches == [[(5, 5)], [(6,)]]
    assert value(metrics, "texts_shared_total") == 3


def test_who_leaves_takes_what_has_not_begun_along_unless_another_wants_it():
    model = Model(held=True)

    async def scene(batcher: Batcher) -> None:
        first = task(batcher, (1,))
        await begun(model)
        leaving, staying = task(batcher, (2,), (3,), (4,)), task(batcher, (3,))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        again = task(batcher, (4,))  # asked for again after it was given up
        await asyncio.sleep(0)
        model.go.set()
        assert [each.tolist() for each in await asyncio.gather(first, staying, again)] == [[[1, 1]], [[3, 1]], [[4, 1]]]

    metrics = run(model, scene)
    assert sorted(row for batch in model.batches for row in batch) == [(1,), (3,), (4,)]
    assert value(metrics, "texts_dropped_total") == 2


def test_batches_that_are_encoded_at_the_same_time_share_what_waits():
    model = Model(held=True)

    async def scene(batcher: Batcher) -> None:
        one = task(batcher, *[(place,) for place in range(1, 8)])
        other = task(batcher, (77,))
        while len(model.batches) < 2:
            await asyncio.sleep(0.001)
        assert batcher.running == 2
        last = task(batcher, (5, 5), (6, 6))  # waits for both: whoever is done first takes it, since none else is free
        await asyncio.sleep(0)
        model.go.set()
        assert (await other).tolist() == [[77, 1]] and len(await one) == 7
        assert (await last).tolist() == [[5, 2], [6, 2]]

    run(model, scene, parallel=2)
    first = model.batches[:2]  # of two threads: either may be the first
    assert [len(batch) for batch in first] == [4, 4] and sum((77,) in batch for batch in first) == 1
    assert sum(map(len, model.batches)) == 10


def test_nobody_waits_for_company_that_cannot_come():
    async def scene() -> None:
        batcher = Batcher(Model(), token_budget=4, metrics=Metrics())
        tickets = [batcher._stand_in_line(rows) for rows in ([(1,), (2,)], [(1,)], [(2,)])]
        assert (await batcher._carry_out(batcher._take()))[0] == 1  # the others did not stand in line
        batcher._stand_in_line([(7,), (8, 8)])
        assert batcher._tokens == 3
        batcher._stand_in_line([(9,)])
        await asyncio.wait_for(batcher._gather(3, 3_600.0), 60)  # the line fills a batch already
        assert len(batcher._take()) == 3 and batcher._tokens == 0
        assert all(ticket.answer.done() for ticket in tickets)
        batcher.threads.close(60)

    asyncio.run(scene())


def test_who_leaves_while_the_model_works_disturbs_nobody():
    model = Model(held=True)

    async def scene(batcher: Batcher) -> None:
        leaving, staying = task(batcher, (1,)), task(batcher, (2,))
        await begun(model)
        leaving.cancel()
        await asyncio.sleep(0)
        model.go.set()
        assert (await staying).tolist() == [[2, 1]]

    run(model, scene)


def test_a_row_that_gives_nan_fails_only_those_who_asked_for_it():
    model = Model(held=True)

    async def scene(batcher: Batcher) -> None:
        first = task(batcher, (0,))
        await begun(model)
        good, bad, both = task(batcher, (1,)), task(batcher, (999,)), task(batcher, (1,), (999,))
        await asyncio.sleep(0)
        model.go.set()
        await first
        assert (await good).tolist() == [[1, 1]]
        for each in (bad, both):
            with pytest.raises(TwinpassError, match="NaN"):
                await each

    run(model, scene)


def test_a_batch_that_fails_is_told_to_those_in_it_and_the_next_one_works():
    model = Model()

    async def scene(batcher: Batcher) -> None:
        with pytest.raises(MemoryError, match="too much"):
            await batcher.encode([(666,)])
        assert (await batcher.encode([(8, 8, 8)])).tolist() == [[8, 3]]

    run(model, scene)


def test_many_at_once_each_get_their_own():
    model = Model()
    draw = np.random.default_rng(0)
    asked = [[tuple(draw.integers(0, 12, draw.integers(1, 4))) for _ in range(5)] for _ in range(200)]

    async def scene(batcher: Batcher) -> None:
        async def ask(rows: list[tuple[int, ...]], *, leave: bool) -> None:
            work = task(batcher, *rows)
            await asyncio.sleep(0)
            if leave:
                work.cancel()
            else:
                assert (await work).tolist() == [[row[0], len(row)] for row in rows]

        await asyncio.gather(*(ask(rows, leave=place % 7 == 0) for place, rows in enumerate(asked)))

    run(model, scene, token_budget=16)
    assert len(model.batches) > 5 and all(len(set(batch)) == len(batch) for batch in model.batches)
