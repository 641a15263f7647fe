"""Clients that ask too much, too slowly, under a wrong name, or not at all: each costs something bounded."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.service.test_api import EMBEDDINGS, add_elsewhere, ask, error_of, play
from tests.tiny import SENTENCES

from twinpass.encoder.encoder import Encoder
from twinpass.search import checksums
from twinpass.search.index import Block, Index
from twinpass.service import connections, index_routes
from twinpass.service.app import Service, app_of
from twinpass.service.connections import Server
from twinpass.service.limits import Limits
from twinpass.service.served_index import SEARCH_THREADS
from twinpass.service.server import listen
from twinpass.service.workers import Full, Workers

HALF = b"GET /health HTTP/1.1\r\nHost: localh"
WHOLE = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
UPGRADE = WHOLE[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


def make_index(encoder: Encoder, folder: Path) -> Index:
    texts = list(dict.fromkeys(SENTENCES))
    block = Block(texts, encoder.encode(texts, normalize=True), [{"place": place} for place in range(len(texts))])
    facts = {"name": "tiny", "fingerprint": encoder.fingerprint}
    return Index.from_blocks(folder, [block], model=facts)


@pytest.fixture
def index(encoder: Encoder, tmp_path: Path) -> Index:
    return make_index(encoder, tmp_path / "index")


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the service logs."""
    messages: list[str] = []
    logger, handler = logging.Logger("service"), logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    monkeypatch.setattr("twinpass.service.served_index.LOG", logger)
    return messages


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"query": "a", "where": ["place>1"] * 65}, "got 65 filters; at most 64"),
        ({"query": "a", "where": " or ".join(["place>1"] * 65)}, "65 conditions; at most 64"),
        ({"query": "a", "where": "place >"}, "cannot read the filter: expected a value"),
        ({"query": "a", "where": "place!=" + "9" * 4_090}, "4,097 characters; at most 4,096"),
        ({"query": "a", "where": ["place!=" + "9" * 100] * 64}, "6,848 characters; at most 4,096"),
        ({"query": ["a"] * 31, "k": 3}, "31 queries x k = 3 hits; at most 90"),
        ({"query": ["a b c", "d e f"], "mode": "keyword"}, "more than 5 words to look for"),
        ({"query": "a b c d e f", "mode": "hybrid"}, "more than 5 words to look for"),
    ],
)
def test_a_search_that_asks_too_much_is_refused_before_any_work(encoder, index, body: dict[str, Any], says: str):
    service = Service(encoder, index, limits=Limits(max_hits=90, max_words=5))
    answer = ask(service, "POST", "/search", json=body)
    assert answer.status_code == 400 and says in error_of(answer)["message"]
    assert service.metrics.registry.get_sample_value("twinpass_texts_total") == 0


@pytest.mark.parametrize(
    "body", [{"query": "cat " * 50, "mode": "keyword"}, {"query": "a b c d e f g", "mode": "dense"}]
)
def test_only_words_that_are_looked_for_count(encoder, index, body: dict[str, Any]):
    service = Service(encoder, index, limits=Limits(max_words=5))
    assert ask(service, "POST", "/search", json=body).status_code == 200


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_damage_that_a_search_finds_is_the_servers_fault_and_names_no_file(encoder, tmp_path, logged, monkeypatch):
    for name, value in (("WHOLE", 0), ("SAMPLED", 0), ("BLOCK", 256)):  # as if the file were large
        monkeypatch.setattr(checksums, name, value)
    folder = make_index(encoder, tmp_path / "index").folder
    flip(folder / "segment-000001" / "vectors.f32", 300)
    service = Service(encoder, Index.open(folder))
    for method, path, body in (("POST", "/search", {"query": "a dog"}), ("GET", "/analysis", None)):
        answer = ask(Service(encoder, Index.open(folder)), method, path, json=body)
        error = error_of(answer)
        assert (answer.status_code, error["code"], error["type"]) == (500, "index_damaged", "server_error")
        assert "vectors" not in answer.text and str(tmp_path) not in answer.text
        assert "vectors.f32 is damaged" in logged[-1]
    wrong = ask(service, "POST", "/search", json={"query": "a dog", "where": "year > 2"})
    assert wrong.status_code == 400 and "no metadata column named 'year'" in error_of(wrong)["message"]


def test_a_change_that_cannot_be_read_is_logged_once_and_the_index_searched_as_it_was(encoder, index, logged):
    async def scene(client: httpx.AsyncClient) -> None:
        for count in range(1, 3):
            for _ in range(3):
                found = (await client.post("/search", json={"query": "a dog", "k": 1})).json()
                assert found["results"][0]["hits"][0]["text"] == "a dog" and len(logged) == count
            shutil.rmtree(index.folder, ignore_errors=True)

    add_elsewhere(index.folder, encoder, ["a bird sings"])
    flip(index.folder / "segment-000002" / "ids.i64", 0)
    play(Service(encoder, index), scene)
    assert "ids.i64 is damaged" in logged[0] and "is not an index" in logged[1]


def test_an_answer_is_made_in_the_thread_and_bounded(encoder, index, monkeypatch):
    write, threads = index_routes.json_of, []
    monkeypatch.setattr(
        index_routes, "json_of", lambda value: threads.append(threading.current_thread().name) or write(value)
    )
    limits = Limits(max_answer=500)
    answer = ask(Service(encoder, index, limits=limits), "POST", "/search", json={"query": ["a dog", "a cat"], "k": 2})
    assert [len(found["hits"]) for found in answer.json()["results"]] == [2, 2]
    assert answer.json()["usage"]["total_tokens"] > 2
    assert threads[:2] == ["searching"] * 2
    answer = ask(Service(encoder, index, limits=limits), "POST", "/search", json={"query": ["a dog"] * 9, "k": 3})
    assert answer.status_code == 400 and error_of(answer)["code"] == "answer_too_large"
    assert "larger than 500 bytes. Lower k" in error_of(answer)["message"]


class HeldIndex:
    """An index whose searches wait for `go`."""

    def __init__(self, index: Index) -> None:
        self.index, self.go, self.calls = index, threading.Event(), 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.index, name)

    def __len__(self) -> int:
        return len(self.index)

    def search_vectors(self, vectors: np.ndarray, *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        assert self.go.wait(60)
        return self.index.search_vectors(vectors, *arguments, **options)


def test_searches_that_hang_hold_a_bounded_number_of_threads(encoder, index):
    held: Any = HeldIndex(index)
    service = Service(encoder, held, limits=Limits(max_searches=2))

    async def scene(client: httpx.AsyncClient) -> None:
        searches = {asyncio.create_task(client.post("/search", json={"query": f"{n} cat"})) for n in range(9)}
        refused: set[asyncio.Task[httpx.Response]] = set()
        while len(refused) < 9 - SEARCH_THREADS - 2 or held.calls < SEARCH_THREADS:
            done, _ = await asyncio.wait(searches - refused, return_when=asyncio.FIRST_COMPLETED, timeout=0.01)
            refused |= done
        for each in refused:
            busy = each.result()
            assert busy.status_code == 503 and error_of(busy)["code"] == "search_busy"
            assert busy.headers["retry-after"] == "1"
        await give_up(*searches - refused)
        assert held.calls == SEARCH_THREADS and service.at_work
        assert (await client.post(EMBEDDINGS, json={"input": "a"})).status_code == 200  # it has a thread of its own
        held.go.set()
        while service.at_work:
            await asyncio.sleep(0.001)
        assert held.calls == SEARCH_THREADS  # what waited was dropped with its request
        assert (await client.post("/search", json={"query": "a dog"})).status_code == 200

    play(service, scene)


def test_a_search_that_nobody_waits_for_ends_after_its_block(encoder, index):
    held: Any = HeldIndex(index)
    service = Service(encoder, held)
    body = {"query": ["a dog"] * 600, "k": 1}

    async def scene(client: httpx.AsyncClient) -> None:
        search = asyncio.create_task(client.post("/search", json=body))
        while not held.calls:
            await asyncio.sleep(0.001)
        await give_up(search)
        held.go.set()
        while service.at_work:
            await asyncio.sleep(0.001)
        assert held.calls == 1
        found = (await client.post("/search", json=body)).json()["results"]
        assert [each["hits"][0]["text"] for each in found] == ["a dog"] * 600 and held.calls == 1 + 3

    play(service, scene)


def test_many_hits_for_each_query_make_small_blocks(encoder, index):
    held: Any = HeldIndex(index)
    held.go.set()
    answer = ask(Service(encoder, held), "POST", "/search", json={"query": ["a dog"] * 5, "k": 1_000})
    assert len(answer.json()["results"]) == 5 and held.calls == 3


async def give_up(*requests: asyncio.Task[Any]) -> None:
    for request in requests:
        request.cancel()
    await asyncio.gather(*requests, return_exceptions=True)


def test_workers_keep_to_their_bounds_and_deliver_errors():
    async def scene() -> None:
        workers, go = Workers(1, name="one", line=1), threading.Event()
        first = asyncio.create_task(workers.run(lambda: go.wait(60)))
        second = asyncio.create_task(workers.run(lambda: 1 // 0))
        await asyncio.sleep(0)
        with pytest.raises(Full):
            await workers.run(int)
        go.set()
        assert await first
        with pytest.raises(ZeroDivisionError):
            await second
        assert await workers.run(int) == 0 and workers.unfinished == 0
        workers.close(60)

    asyncio.run(scene())


def test_a_thread_that_cannot_be_started_does_not_block_the_pool(monkeypatch):
    start, full = threading.Thread.start, threading.Event()

    def refuse(thread: threading.Thread) -> None:
        if full.is_set() and thread.name == "pool":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)

    async def scene() -> None:
        workers, go = Workers(2, name="pool", line=0), threading.Event()
        full.set()
        for _ in range(3):
            with pytest.raises(RuntimeError, match="new thread"):
                await workers.run(int)
        full.clear()
        assert await workers.run(int) == 0 and workers.unfinished == 0
        full.set()
        both = [asyncio.create_task(workers.run(work)) for work in (lambda: go.wait(60), int)]
        await asyncio.sleep(0)
        go.set()
        assert await asyncio.gather(*both) == [True, 0]  # the one thread does the work of two
        workers.close(60)

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("host", "served"),
    [
        ("localhost", True),
        ("LOCALHOST:80", True),
        ("app.localhost", True),
        ("127.0.0.1:8000", True),
        ("127.9.9.9", True),
        ("[::1]:8000", True),
        ("box.example.com:9", True),
        ("Box.Example.com.", True),
        ("evil.example.com", False),
        ("localhost.evil.com", False),
        ("127.0.0.1.evil.com", False),
        ("192.168.1.7", False),
        ("[::2]", False),
        ("", False),
        ("\xff", False),
    ],
)
def test_only_names_that_are_ours_are_answered(encoder, index, host: str, served: bool):
    service = Service(encoder, index, allow_hosts=["box.example.com"])
    for method, path in (("GET", "/health"), ("GET", "/"), ("GET", "/index")):
        answer = ask(service, method, path, headers={"host": host.encode("latin-1")})
        assert answer.status_code == (200 if served else 421), (path, answer.text)
        if not served:
            assert "--allow-host" in error_of(answer)["message"] and answer.headers["connection"] == "close"


@pytest.mark.parametrize(
    ("reached_at", "key", "public", "status"),
    [
        ("127.0.0.1", None, False, 421),
        ("::1", None, False, 421),
        ("127.0.0.1", "k", False, 200),  # a page of another origin does not know the key
        ("127.0.0.1", None, True, 200),  # other machines know it by names of their own
        ("10.0.0.5", None, False, 200),
    ],
)
def test_a_foreign_name_is_refused_on_loopback_without_a_key(encoder, reached_at, key, public, status):
    service = Service(encoder, api_key=key)
    service.public = public
    app = app_of(service)

    async def reached(scope: Any, receive: Any, send: Any) -> None:
        await app(scope | {"server": (reached_at, 8000)}, receive, send)

    async def scene() -> None:
        transport = httpx.ASGITransport(reached)
        async with httpx.AsyncClient(transport=transport, base_url="http://evil.example.com") as client:
            assert (await client.get("/health")).status_code == status

    asyncio.run(scene())


@contextlib.contextmanager
def running(service: Service) -> Iterator[tuple[Server, tuple[str, int]]]:
    """Run the real server in a thread."""
    with listen("127.0.0.1", 0) as bound:
        address = bound.getsockname()
        server = Server(app_of(service))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            yield server, address
        finally:
            server.should_exit = True
            thread.join(60)


def connect(address: tuple[str, int], sends: bytes) -> socket.socket:
    connection = socket.create_connection(address, timeout=60)
    connection.sendall(sends)
    return connection


def rest(connection: socket.socket) -> bytes:
    """Return all that still comes until the other side closes; without a close this times out."""
    with connection, contextlib.suppress(ConnectionResetError):
        return b"".join(iter(lambda: connection.recv(4096), b""))
    return b""


def test_connections_that_stand_still_are_closed(encoder):
    head = b"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n"
    body = b"POST /v1/embeddings HTTP/1.1\r\n" + head
    with running(Service(encoder, limits=Limits(timeout=3.0))) as (_, address):
        still = [connect(address, sends) for sends in (b"", HALF, WHOLE, WHOLE + HALF, body + b'{"inp')]
        answers = [rest(connection) for connection in still]
    assert answers[:2] == [b"", b""]
    assert all(answer.count(b"HTTP/1.1 200 OK") == 1 for answer in answers[2:4])
    assert answers[4].startswith(b"HTTP/1.1 408 ")


def test_a_request_to_upgrade_does_not_end_the_service(encoder, monkeypatch):
    class Upgraded:
        """What uvicorn turns a connection into where a library for WebSocket is installed: it has no cycle."""

        def __init__(self, server_state: Any, **_: Any) -> None:
            server_state.connections.add(self)

        def __getattr__(self, name: str) -> Any:
            if name == "cycle":
                raise AttributeError(name)
            return lambda *_: None

    monkeypatch.setattr("uvicorn.protocols.websockets.auto.AutoWebSocketsProtocol", Upgraded)
    with running(Service(encoder)) as (_, address):
        upgrading = connect(address, UPGRADE)
        assert b" 200 OK" in upgrading.recv(4096)
        for _ in range(2):
            assert httpx.get(f"http://{address[0]}:{address[1]}/health", timeout=60).status_code == 200
        upgrading.close()


def test_an_answer_that_nobody_reads_is_given_up(encoder):
    class Connection:
        cycle: Any = None
        aborted = False

        def __init__(self) -> None:
            self.transport = self

        def abort(self) -> None:
            self.aborted = True

    class Cycle:
        response_complete = False

    server = Server(app_of(Service(encoder, limits=Limits(timeout=10))))
    reading, idle = Connection(), Connection()
    server.server_state.connections |= {reading, idle}  # type: ignore[arg-type]
    server.close_stale(100.0)
    reading.cycle = Cycle()
    server.close_stale(109.0)
    server.close_stale(111.0)
    assert idle.aborted and not reading.aborted
    server.close_stale(138.0)
    assert not reading.aborted
    server.close_stale(140.0)
    assert reading.aborted


def test_idle_connections_make_room_for_new_ones(encoder):
    with running(Service(encoder, limits=Limits(max_connections=4, timeout=600))) as (server, address):
        idle = [connect(address, HALF) for _ in range(12)]
        for _ in range(3):
            assert httpx.get(f"http://{address[0]}:{address[1]}/health", timeout=60).status_code == 200
        assert [rest(connection) for connection in idle[:8]] == [b""] * 8
        assert len(server.server_state.connections) <= 4
        for connection in idle[8:]:
            connection.close()


def test_few_file_handles_mean_few_connections(monkeypatch):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (64, 64))
    monkeypatch.setattr(connections.os, "listdir", lambda path: ["0"] * 14)
    assert connections._shares(1_024) == (17, 5)  # of 64 - 14 - 16
    assert connections._shares(5) == (5, 9)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY,) * 2)
    assert connections._shares(1_024) == (1_024, connections.BACKLOG)


STUCK = """
import sys, threading
from twinpass import Encoder, serve
from twinpass.service import app, connections
from twinpass.service.limits import Limits

app.PATIENCE = 0.1
encoder = Encoder.load(sys.argv[1], device="cpu")
encoder.encode_ids = lambda ids, **options: threading.Event().wait()
serve(encoder, port=0, limits=Limits(timeout=3), started=lambda serving: print(serving.url, flush=True),
      log=lambda line: print(line, file=sys.stderr))
"""


def test_a_thread_that_never_returns_does_not_keep_the_process(folder):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", STUCK, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        url = process.stdout.readline().strip()
        assert httpx.post(f"{url}{EMBEDDINGS}", json={"input": "a"}, timeout=60).status_code == 504
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr.read().endswith("stopped.\n")
    finally:
        process.kill()
        process.communicate()


def test_stopping_has_a_last_resort(encoder, monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr(connections, "GRACE", 0)
    monkeypatch.setattr(connections, "_end_process", ended.set)
    server = Server(app_of(Service(encoder, limits=Limits(timeout=0.001))))
    server.handle_exit(signal.SIGTERM, None)
    assert server.should_exit and ended.wait(60)
    server = Server(app_of(Service(encoder, limits=Limits(timeout=100))))
    server.handle_exit(signal.SIGTERM, None)
    server.stopped()
    assert server._last_resort is not None and server._last_resort.finished.wait(60)


def test_the_last_resort_is_no_failure(monkeypatch):
    codes: list[int] = []
    monkeypatch.setattr(connections.os, "_exit", codes.append)
    connections._end_process()
    assert codes == [0]
