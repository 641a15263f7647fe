"""A thread works one step ahead, hands its errors over and ends with the stream; damaged weights."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest
import torch

from twinpass.encoder.ahead import ahead
from twinpass.encoder.encoder import Encoder
from twinpass.errors import InputError, ModelError

TEXTS = [f"the dog number {n % 17} sat {'on a mat ' * (n % 5)}" for n in range(60)]


@pytest.fixture(scope="module")
def tiny(model: str) -> Encoder:
    return Encoder.load(model, device="cpu")


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "twinpass-ahead"]


def test_steps_come_in_order_and_the_next_one_is_taken_meanwhile() -> None:
    asked = threading.Event()

    def steps() -> Iterator[int]:
        yield 0
        asked.set()  # reached although nobody asked for more than the first
        yield from range(1, 5)

    with closing(ahead(steps())) as found:
        assert next(found) == 0
        assert asked.wait(60)
        assert list(found) == [1, 2, 3, 4]
    assert not threads()


def test_an_error_is_raised_once_after_the_steps_before_it() -> None:
    def steps() -> Iterator[int]:
        yield 1
        raise InputError("the second step (a.txt:2)")

    found = ahead(steps())
    assert next(found) == 1
    with pytest.raises(InputError, match=r"a.txt:2"):
        next(found)
    assert list(found) == [] and not threads()


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_no_thread_is_left_when_the_stream_is_closed_early(taken: int) -> None:
    found = ahead(iter(range(1000)))
    for _ in range(taken):
        next(found)
    found.close()
    assert not threads()


def test_a_stream_is_the_same_read_ahead_or_not(tiny: Encoder) -> None:
    here = list(tiny.encode_stream(iter(TEXTS), window=16, max_tokens=9, normalize=True))
    there = list(tiny.encode_stream(iter(TEXTS), window=16, max_tokens=9, normalize=True, read_ahead=True))
    assert [block.items for block in there] == [block.items for block in here]
    assert [block.truncated for block in there] == [block.truncated for block in here]
    assert all(np.array_equal(one.vectors, two.vectors) for one, two in zip(here, there, strict=True))
    with pytest.raises(InputError, match="expected a string as text 40"):
        list(tiny.encode_stream([*TEXTS[:40], None], window=16, read_ahead=True))  # type: ignore[list-item]
    assert not threads()


def test_progress_is_told_with_every_batch_of_a_block(tiny: Encoder) -> None:
    long = [f"{number} {'the dog ' * 28}" for number in range(200)]  # 59 tokens each, so 69 fill a batch
    for ahead_or_not in (False, True):
        moved: list[int] = []
        (block,) = tiny.encode_stream(iter(long), read_ahead=ahead_or_not, advance=moved.append)
        batches = [count for count in moved if count]
        assert len(block.items) == sum(moved) == 200 and len(batches) >= 3
        assert max(batches) < 100


def test_vectors_that_are_not_finite_are_refused_by_name(tiny: Encoder) -> None:
    broken = "oil"
    (number,) = {*tiny.tokenize([broken])[0]} - {*tiny.tokenize(["cat"])[0]}
    weights = tiny.model.transformer.get_input_embeddings().weight
    before = weights.data[number].clone()
    texts = [*TEXTS[:20], f"the {broken}", *TEXTS, f"a {broken}"]
    try:
        with torch.no_grad():
            weights[number] = float("nan")
        expected = rf"NaN or infinity for \d+ of \d+ texts, the first of them 'the {broken}' \(text 20,"
        with pytest.raises(ModelError, match=expected):
            tiny.encode(texts)
        for ahead_or_not in (False, True):
            with pytest.raises(ModelError, match=expected):
                list(tiny.encode_stream(texts, window=8, read_ahead=ahead_or_not))
        assert np.isfinite(tiny.encode(TEXTS)).all()
    finally:
        weights.data[number] = before
