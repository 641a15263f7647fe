"""Adding and removing texts over HTTP: with a key only, whole or not at all, while searches go on."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.service.test_api import ask, error_of, play
from tests.tiny import SENTENCES

from twinpass.encoder.encoder import Encoder
from twinpass.search import manifest as disk
from twinpass.search import writer
from twinpass.search.index import Block, Index
from twinpass.service import index_routes
from twinpass.service.app import Service
from twinpass.service.limits import Limits

TEXTS = [*dict.fromkeys(SENTENCES)]
KEY = {"authorization": "Bearer sesame"}


@pytest.fixture
def index(encoder: Encoder, tmp_path: Path) -> Index:
    block = Block(TEXTS, encoder.encode(TEXTS, normalize=True), [{"place": n} for n in range(len(TEXTS))])
    record = {"name": str(tmp_path / "tiny"), "fingerprint": encoder.fingerprint}
    return Index.from_blocks(tmp_path / "index", [block], model=record)


def keyed(encoder: Encoder, index: Index, **options: Any) -> Service:
    return Service(encoder, index, api_key="sesame", **options)


def change(service: Service, path: str = "/index/texts", **body: Any) -> httpx.Response:
    return ask(service, "POST", path, json=body, headers=KEY)


def test_texts_are_added_found_and_removed(encoder, index):
    async def scene(client: httpx.AsyncClient) -> None:
        client.headers.update(KEY)

        async def best(query: str) -> Any:
            return (await client.post("/search", json={"query": query, "k": 1})).json()

        assert (await client.get("/index")).json()["rows"] == len(TEXTS)
        body = {"texts": ["a bird sings", "two birds"], "metadata": [{"place": 90, "kind": "bird"}, {"kind": None}]}
        added = (await client.post("/index/texts", json=body)).json()
        assert added == {"added": 2, "skipped": 0, "replaced": 0, "truncated": 0, "rows": len(TEXTS) + 2}
        assert "a bird sings" in str(await best("a bird sings"))
        info = (await client.get("/index")).json()  # it was remembered before
        assert info["rows"] == len(TEXTS) + 2 and "kind" in info["columns"]
        np.testing.assert_allclose(
            Index.open(index.folder).vectors([len(TEXTS)]), encoder.encode(["a bird sings"], normalize=True), atol=1e-6
        )
        again = (await client.post("/index/texts", json={"texts": ["two birds", "a fish"], "unique": True})).json()
        assert again == {"added": 1, "skipped": 1, "replaced": 0, "truncated": 0, "rows": len(TEXTS) + 3}

        found = (await client.get(f"/index/texts/{len(TEXTS)}")).json()
        assert (found["text"], found["metadata"]) == ("a bird sings", {"place": 90, "kind": "bird"})
        removed = await client.delete(f"/index/texts/{len(TEXTS)}")
        assert removed.json() == {"removed": 1, "rows": len(TEXTS) + 2}
        for method in ("GET", "DELETE"):
            for missing in (len(TEXTS), "x", "1" * 30, "a/b"):
                gone = await client.request(method, f"/index/texts/{missing}")
                assert gone.status_code == 404 and error_of(gone)["code"] == "no_such_text"
        for chosen, count in (({"where": "place >= 2"}, len(TEXTS) - 2), ({"texts": ["a fish", "none"]}, 1)):
            assert (await client.post("/index/texts/delete", json=chosen)).json()["removed"] == count
        unknown = await client.post("/index/texts/delete", json={"where": "colour = red"})
        found = [error_of(unknown)[name] for name in ("param", "code")]
        assert (unknown.status_code, found) == (400, ["where", "invalid_filter"])
        partly = await client.post("/index/texts/delete", json={"ids": [0, 1_000]})
        assert partly.status_code == 404 and "not all of these ids" in error_of(partly)["message"]
        assert (await client.post("/index/texts/delete", json={"ids": [0]})).json() == {"removed": 1, "rows": 2}
        assert (await client.get("/index")).json()["rows"] == 2

    play(keyed(encoder, index), scene)
    assert len(Index.open(index.folder)) == 2


def test_an_index_with_its_own_ids_is_changed_by_them(encoder, tmp_path):
    tickets = [{"ticket": "A/1"}, {"ticket": "17"}]
    block = Block(["a cat", "a dog"], encoder.encode(["a cat", "a dog"], normalize=True), tickets)
    record = {"name": "tiny", "fingerprint": encoder.fingerprint}
    index = Index.from_blocks(tmp_path / "index", [block], model=record, id_column="ticket")

    async def scene(client: httpx.AsyncClient) -> None:
        client.headers.update(KEY)
        assert (await client.get("/index")).json()["id_column"] == "ticket"
        body = {"texts": ["a bird", "a fish"], "metadata": [{"ticket": "A/1"}, {"ticket": "B"}]}
        added = (await client.post("/index/texts", json=body)).json()
        assert added == {"added": 2, "skipped": 0, "replaced": 1, "truncated": 0, "rows": 3}
        found = (await client.get("/index/texts/A/1")).json()
        assert (found["id"], found["text"]) == ("A/1", "a bird")
        for wrong, says in (
            ({"texts": ["x"]}, "expected an id, but there is no column 'ticket'"),
            ({"texts": ["x", "y"], "metadata": [{"ticket": "C"}] * 2}, "occurs twice"),
            ({"texts": ["x"], "metadata": [{"ticket": "C"}], "unique": True}, "got both"),
        ):
            refused = await client.post("/index/texts", json=wrong)
            assert refused.status_code == 400 and says in error_of(refused)["message"]
        assert (await client.delete("/index/texts/A/1")).json() == {"removed": 1, "rows": 2}
        assert (await client.post("/index/texts/delete", json={"ids": [17, "B"]})).json()["rows"] == 0

    play(keyed(encoder, index), scene)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "with a key only. Start the service with --api-key"),
        ({"api_key": "sesame", "read_only": True}, "read-only"),
    ],
)
def test_without_a_key_or_where_it_is_read_only_nothing_is_changed(encoder, index, options: Any, says: str):
    service = Service(encoder, index, **options)
    for method, path, body in (
        ("POST", "/index/texts", {"texts": ["x"]}),
        ("POST", "/index/texts/delete", {"ids": [0]}),
        ("DELETE", "/index/texts/0", None),
    ):
        answer = ask(service, method, path, json=body, headers=KEY)
        assert answer.status_code == 403 and says in error_of(answer)["message"]
    assert len(Index.open(index.folder)) == len(TEXTS)


def test_a_wrong_key_changes_nothing(encoder, index):
    for method, path in (("POST", "/index/texts"), ("POST", "/index/texts/delete"), ("DELETE", "/index/texts/0")):
        assert ask(keyed(encoder, index), method, path, json={"texts": ["x"]}).status_code == 401
    assert len(Index.open(index.folder)) == len(TEXTS)


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("", {"texts": []}, 400, "at least 1"),
        ("", {"texts": ["a"], "metadata": []}, 400, "expected metadata for each of 1 texts, got 0"),
        ("", {"texts": ["a"], "metadata": [{"a": [1]}]}, 400, "metadata"),
        ("", {"texts": ["a"], "metadata": [{"a": "\ud800"}]}, 400, "lone surrogate"),
        ("", {"texts": ["\ud800"]}, 400, "lone surrogate"),
        ("", {"texts": ["a"] * 9}, 400, "9 inputs; at most 8"),
        ("", {"texts": ["a"] * 4}, 413, "holds 7 texts; with 4 more it exceeds 10"),
        ("", {"texts": ["a"], "metadata": [{f"c{n}": 1 for n in range(5)}]}, 413, "6 metadata columns; at most 5"),
        ("/delete", {}, 400, "expected one of `ids`, `texts` and `where`"),
        ("/delete", {"ids": [1], "texts": ["a"]}, 400, "expected one of"),
        ("/delete", {"where": "place ="}, 400, "cannot read the filter"),
        ("/delete", {"where": "colour = red"}, 400, "no metadata column named 'colour'"),
        ("/delete", {"ids": []}, 400, "at least 1"),
        ("/delete", {"ids": [0] * 9}, 400, "9 inputs; at most 8"),
        ("/delete", {"texts": ["a"] * 9}, 400, "9 inputs; at most 8"),
        ("/delete", {"texts": ["\ud800"]}, 400, "lone surrogate"),
        ("/delete", {"ids": ["\ud800"]}, 400, "lone surrogate"),
    ],
)
def test_mistakes_change_nothing_and_name_no_file(encoder, index, path: str, body: Any, status: int, says: str):
    service = keyed(encoder, index, limits=Limits(max_inputs=8, max_texts=10, max_columns=5))
    import json

    headers = KEY | {"content-type": "application/json"}
    answer = ask(service, "POST", f"/index/texts{path}", content=json.dumps(body).encode(), headers=headers)
    assert answer.status_code == status and says in error_of(answer)["message"]
    assert str(index.folder) not in answer.text and len(Index.open(index.folder)) == len(TEXTS)


def test_searches_go_on_while_texts_are_added(encoder, index, monkeypatch):
    begun, go = threading.Event(), threading.Event()

    def slow(*arguments: Any, real: Any = writer.add, **options: Any) -> Any:
        begun.set()
        assert go.wait(60)
        return real(*arguments, **options)

    monkeypatch.setattr(writer, "add", slow)

    async def scene(client: httpx.AsyncClient) -> None:
        client.headers.update(KEY)
        adding = asyncio.create_task(client.post("/index/texts", json={"texts": ["a bird sings"]}))
        await asyncio.to_thread(begun.wait, 60)
        for _ in range(10):
            assert (await client.post("/search", json={"query": "a dog", "k": 1})).status_code == 200
        assert (await client.get("/index")).json()["rows"] == len(TEXTS)
        go.set()
        assert (await adding).json()["rows"] == len(TEXTS) + 1
        assert (await client.get("/index")).json()["rows"] == len(TEXTS) + 1

    play(keyed(encoder, index), scene)


def hold_removals(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Let removals wait; return the event that one began, and the event that lets them go on."""
    begun, go = threading.Event(), threading.Event()

    def slow(*arguments: Any, real: Any = writer.remove) -> Any:
        begun.set()
        assert go.wait(60)
        return real(*arguments)

    monkeypatch.setattr(writer, "remove", slow)
    return begun, go


def test_changes_are_made_one_after_another_and_too_many_are_refused(encoder, index, monkeypatch):
    begun, go = hold_removals(monkeypatch)
    service = keyed(encoder, index, limits=Limits(max_changes=1))

    async def scene(client: httpx.AsyncClient) -> None:
        client.headers.update(KEY)
        first = asyncio.create_task(client.delete("/index/texts/0"))
        await asyncio.to_thread(begun.wait, 60)
        second = asyncio.create_task(client.delete("/index/texts/1"))
        for _ in range(10_000):
            if service.index._changing.unfinished == 2:
                break
            await asyncio.sleep(0.001)
        assert service.index._changing.unfinished == 2, "the second change does not wait"
        third = await client.delete("/index/texts/2")
        assert third.status_code == 503 and error_of(third)["code"] == "index_busy" and "retry-after" in third.headers
        go.set()
        assert [(await each).json()["removed"] for each in (first, second)] == [1, 1]

    play(service, scene)
    assert len(Index.open(index.folder)) == len(TEXTS) - 2


def test_a_locked_index_is_a_conflict_and_a_full_disk_the_servers_fault(encoder, index, monkeypatch):
    with disk.locked(index.folder):
        locked = change(keyed(encoder, index), texts=["x"])
    assert locked.status_code == 409 and error_of(locked)["code"] == "index_locked"

    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device", str(index.folder))

    monkeypatch.setattr(writer, "write_segment", lambda *arguments, **options: full())
    failed = change(keyed(encoder, index), texts=["x"])
    assert failed.status_code == 500 and error_of(failed)["code"] == "index_not_changed"
    assert str(index.folder) not in failed.text and len(Index.open(index.folder)) == len(TEXTS)


def test_a_change_that_began_is_finished_though_its_client_gets_504(encoder, index, monkeypatch):
    begun, go = hold_removals(monkeypatch)
    service, wait = keyed(encoder, index, limits=Limits(timeout=0.1)), index_routes.while_connected

    async def once_it_began(request: Any, work: Any, **options: Any) -> Any:
        working = asyncio.create_task(work)
        await asyncio.to_thread(begun.wait, 60)  # a change that has not begun when its time is up is not made
        return await wait(request, working, **options)

    monkeypatch.setattr(index_routes, "while_connected", once_it_began)

    async def scene(client: httpx.AsyncClient) -> None:
        answer = await client.delete("/index/texts/0", headers=KEY)
        assert answer.status_code == 504 and begun.is_set()
        go.set()
        while service.at_work:
            await asyncio.sleep(0.001)

    play(service, scene)
    assert len(Index.open(index.folder)) == len(TEXTS) - 1


def test_vectors_of_an_export_are_not_added(encoder, index):
    service = keyed(encoder, index)
    service.index.model.fingerprint = "f" * 64  # as of an export, which may search but not add
    answer = change(service, texts=["x"])
    assert answer.status_code == 409 and error_of(answer)["code"] == "model_differs"
    assert str(index.folder.parent) not in answer.text


def test_the_corpus_is_measured_as_it_was_when_texts_are_removed_meanwhile(encoder, index, monkeypatch):
    from twinpass.analysis import sampling

    choose = sampling.some_rows

    def after_a_removal(*args: Any, **options: Any) -> Any:
        index.remove(ids=[0])
        return choose(*args, **options)

    monkeypatch.setattr(sampling, "some_rows", after_a_removal)
    answer = ask(keyed(encoder, index), "GET", "/analysis", headers=KEY)
    assert answer.status_code == 200 and answer.json()["of"] == len(TEXTS) and len(index) == len(TEXTS) - 1
