"""The cache of vectors: what it returns, what it deletes, and several processes at once."""

from __future__ import annotations

import functools
import multiprocessing
import sqlite3

import numpy as np
import pytest

from twinpass.encoder.any_model import Model
from twinpass.encoder.vector_cache import Cache, encode_once


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "vectors.sqlite")


def vectors_of(texts):
    return np.array([[len(t), sum(map(ord, t))] for t in texts], dtype=np.float32)


class Counting:
    def __init__(self):
        self.texts = []

    def __call__(self, texts):
        self.texts += texts
        return vectors_of(texts)


def test_vectors_come_back_as_they_went(cache):
    texts = [f"text {i}" for i in range(1203)] + ["", "é\n", "\ud800"]
    cache.save("m", texts, vectors_of([*texts[:-1], "x"]))
    found = cache.load("m", texts)
    assert len(found) == len(texts)
    np.testing.assert_array_equal(np.stack([found[i] for i in range(1205)]), vectors_of(texts[:-1]))
    assert cache.load("other model", texts) == {}


def test_each_text_is_encoded_once_ever(cache):
    counting = Counting()
    model = Model("m", counting, "print")
    lookup = encode_once(model, ["a", "b", "a"], cache=cache)
    np.testing.assert_array_equal(lookup(["b", "a", "b"]), vectors_of(["b", "a", "b"]))
    encode_once(model, ["c", "b"], cache=cache)
    assert counting.texts == ["a", "b", "c"]
    encode_once(Model("m", counting, None), ["a"], cache=cache)
    encode_once(model, ["a"], cache=None)
    assert counting.texts == ["a", "b", "c", "a", "a"]


def test_the_models_used_longest_ago_go_first(cache):
    cache.max_bytes = 400_000
    texts = [f"{i}" for i in range(100)]
    wide = np.ones((100, 256), dtype=np.float32)
    for model in ("old", "middle"):
        cache.save(model, texts, wide)
    assert len(cache.load("old", texts)) == 100  # used again: now "middle" is the older
    for model in ("new", "newest"):
        cache.save(model, texts, wide)
    sizes = {m: len(cache.load(m, texts)) for m in ("old", "middle", "new", "newest")}
    assert sizes["newest"] == 100 and sizes["middle"] == 0
    assert cache.path.stat().st_size <= 400_000 + 50_000


def test_a_lone_model_keeps_within_the_bound(cache):
    cache.max_bytes = 300_000
    for block in range(8):
        texts = [f"{block} {i}" for i in range(100)]
        cache.save("m", texts, np.ones((100, 256), dtype=np.float32))
    assert len(cache.load("m", texts)) == 100
    assert cache.load("m", [f"0 {i}" for i in range(100)]) == {}


def _write(path, worker):
    cache = Cache(path)
    for block in range(5):
        texts = [f"{block} {i}" for i in range(200)]
        cache.save("m", texts, vectors_of(texts))
    if not cache.usable:
        raise SystemExit(1)


def test_several_runs_may_write_at_once(cache):
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_write, args=(cache.path, i)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    texts = [f"{block} {i}" for block in range(5) for i in range(200)]
    found = cache.load("m", texts)
    np.testing.assert_array_equal(np.stack([found[i] for i in range(1000)]), vectors_of(texts))
    with sqlite3.connect(cache.path) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def _open_first(path, first_here, second_here, switching, second_done):
    """Open a new cache; at the switch to WAL mode, take the lock that SQLite takes, while the second is there too."""

    def switch(database):
        first_here.set()
        both = second_here.wait(timeout=1)  # never, if the second waits its turn
        if both:
            database.execute("BEGIN IMMEDIATE")
        switching.set()
        if both:
            second_done.wait(timeout=60)
            database.execute("ROLLBACK")

    _open_cache(path, switch)


def _open_second(path, first_here, second_here, switching, second_done):
    def switch(database):
        second_here.set()
        switching.wait(timeout=60)

    first_here.wait(timeout=60)
    try:
        _open_cache(path, switch)
    finally:
        second_done.set()


def _open_cache(path, switch):
    class Stopping(sqlite3.Connection):
        def execute(self, statement, *values):
            if "journal_mode" in statement:
                switch(super())
            return super().execute(statement, *values)

    sqlite3.connect = functools.partial(sqlite3.connect, factory=Stopping)
    cache = Cache(path)
    cache.save("m", ["a"], vectors_of(["a"]))
    if not cache.usable:
        raise SystemExit(1)


def test_a_new_cache_may_be_opened_by_two_processes_at_once(cache):
    context = multiprocessing.get_context("fork")
    events = [context.Event() for _ in range(4)]
    workers = [context.Process(target=job, args=(cache.path, *events)) for job in (_open_first, _open_second)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert len(cache.load("m", ["a"])) == 1


def test_a_broken_cache_only_warns_and_once(tmp_path):
    path = tmp_path / "vectors.sqlite"
    path.write_bytes(b"this is no database" * 100)
    cache, counting = Cache(path), Counting()
    with pytest.warns(UserWarning, match="continuing without the vector cache") as warned:
        lookup = encode_once(Model("m", counting, "print"), ["a", "b"], cache=cache)
    ours = [each for each in warned if issubclass(each.category, UserWarning)]  # others are of forgotten sockets, say
    assert len(ours) == 1
    np.testing.assert_array_equal(lookup(["a"]), vectors_of(["a"]))
    assert path.read_bytes().startswith(b"this is no database")


def test_a_damaged_vector_is_computed_again(cache):
    texts = ["a", "b", "c"]
    counting = Counting()
    model = Model("m", counting, "print")
    encode_once(model, texts, cache=cache)
    with sqlite3.connect(cache.path) as database:
        (stored,) = database.execute("SELECT vector FROM vectors WHERE id = 2").fetchone()
        database.execute("UPDATE vectors SET vector = ? WHERE id = 2", (bytes([stored[0] ^ 1]) + stored[1:],))
    lookup = encode_once(model, texts, cache=cache)
    np.testing.assert_array_equal(lookup(texts), vectors_of(texts))
    encode_once(model, texts, cache=cache)
    assert counting.texts == ["a", "b", "c", "b"]  # and the cache is whole again
