"""The app in this process: limits, queue, time, keys, and what every failure looks like."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from tests.tiny import SENTENCES

from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError, ModelError
from twinpass.search.index import Block, Index
from twinpass.service.app import Service, app_of, create_app
from twinpass.service.limits import Limits
from twinpass.service.server import Serving, serve

Scene = Callable[[httpx.AsyncClient], Awaitable[None]]
EMBEDDINGS = "/v1/embeddings"


def play(service: Service, scene: Scene) -> None:
    """Run a scene against the app as a client sees it."""

    async def run() -> None:
        transport = httpx.ASGITransport(app_of(service), raise_app_exceptions=False)
        async with service.running(), httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            await asyncio.wait_for(scene(client), 120)

    asyncio.run(run())


def ask(service: Service, method: str, path: str, **options: Any) -> httpx.Response:
    """Send one request and return the answer."""
    answers = []

    async def scene(client: httpx.AsyncClient) -> None:
        answers.append(await client.request(method, path, **options))

    play(service, scene)
    return answers[0]


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """Return the error of an answer that has the one shape."""
    assert answer.headers["content-type"] == "application/json"
    document = answer.json()
    assert set(document) == {"error"} and set(document["error"]) == {"message", "type", "param", "code"}
    assert document["error"]["message"]
    return document["error"]


@pytest.fixture
def held(encoder: Encoder) -> Any:
    """An encoder that waits for `go`, and says when it has begun."""
    encode = encoder.encode_ids
    encoder.begun, encoder.go, encoder.rows = threading.Event(), threading.Event(), []

    def wait(ids: Any, **options: Any) -> Any:
        encoder.rows += ids
        encoder.begun.set()
        assert encoder.go.wait(60)
        return encode(ids, **options)

    encoder.encode_ids = wait
    yield encoder
    encoder.go.set()


@pytest.mark.parametrize(
    ("body", "status", "param", "says"),
    [
        ({}, 400, "input", "required"),
        ({"input": "a", "modle": "tiny"}, 400, "modle", "not permitted"),
        ({"input": []}, 400, "input", "at least 1"),
        ({"input": [[]]}, 400, "input", "at least 1"),
        ({"input": ["a", 1]}, 400, "input", "valid string"),
        ({"input": [True]}, 400, "input", "valid"),
        ({"input": [-1]}, 400, "input", "greater than or equal to 0"),
        ({"input": None}, 400, "input", "valid"),
        ({"input": ["a"] * 9}, 400, "input", "9 inputs; at most 8"),
        ({"input": "a" * 501}, 400, "input", "501 characters; at most 500"),
        ({"input": [1_000_000]}, 400, "input", "not in the model's vocabulary"),
        ({"input": [[5] * 65]}, 400, "input", "65 token ids; the model reads 64"),
        ({"input": "a", "dimensions": 33}, 400, "dimensions", "dimensions is 33, but the model's vectors have 32"),
        ({"input": "a", "dimensions": 0}, 400, "dimensions", "greater than or equal to 1"),
        ({"input": "a", "dimensions": 2.5}, 400, "dimensions", "valid integer"),
        ({"input": "a", "encoding_format": "hex"}, 400, "encoding_format", "'float' or 'base64'"),
        ({"input": "a", "model": "gpt"}, 404, "model", "'gpt' does not exist here. Served: 'tiny'"),
        ({"input": "a", "model": "\ud800"}, 404, "model", "does not exist"),
        ({"input": ["a", "\ud800"]}, 400, "input", "text 1 contains a lone surrogate"),
        ([], 400, None, "not a JSON object"),
    ],
)
def test_mistakes_are_explained_in_the_one_shape(encoder, body: Any, status: int, param: Any, says: str):
    service = Service(encoder, limits=Limits(max_inputs=8, max_chars=500))
    content = json.dumps(body).encode()
    answer = ask(service, "POST", EMBEDDINGS, content=content, headers={"content-type": "application/json"})
    error = error_of(answer)
    assert (answer.status_code, error["param"]) == (status, param)
    assert says in error["message"] and error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("method", "path", "options", "status", "says"),
    [
        ("GET", "/v2/embeddings", {}, 404, "nothing is served at /v2/embeddings"),
        ("GET", "/v1/embeddings/", {}, 404, "nothing is served"),
        ("GET", "/page/none.js", {}, 404, "no file"),
        ("GET", EMBEDDINGS, {}, 405, "GET is not allowed here. Use POST."),
        ("POST", EMBEDDINGS, {"content": b'{"input": "a"'}, 400, "not JSON"),
        ("POST", EMBEDDINGS, {"content": b'{"input": "\xff"}'}, 400, "body"),
        ("POST", EMBEDDINGS, {"content": b"[" * 100_000}, 400, "body"),
        ("POST", EMBEDDINGS, {"content": b'{"input": "a"}', "headers": {"content-type": "x/y"}}, 400, "JSON"),
        ("POST", "/search", {"json": {"query": "a"}}, 404, "no index is served"),
        ("GET", "/index", {}, 404, "no index is served"),
        ("GET", "/analysis", {}, 404, "no index is served"),
        ("GET", "/v1/models/other", {}, 404, "does not exist"),
        ("POST", "/similarity", {"json": {"a": ["x"]}}, 400, "either `sentences`, or `a` and `b`"),
        ("POST", "/similarity", {"json": {"sentences": ["a"], "b": ["x"]}}, 400, "either"),
        ("POST", "/similarity", {"json": {"sentences": ["a", "b"] * 3}}, 400, "6 x 6 cosines; at most 30"),
    ],
)
def test_everything_else_that_fails_has_the_shape_too(encoder, method, path, options, status, says):
    options = {"headers": {"content-type": "application/json"}} | options
    answer = ask(Service(encoder, limits=Limits(max_cosines=30)), method, path, **options)
    assert answer.status_code == status and says in error_of(answer)["message"]
    if status == 405:
        assert answer.headers["allow"] == "POST"


def test_limits_that_can_never_be_met_are_refused():
    with pytest.raises(ConfigError, match="--max-queue"):
        Limits(max_queue=5, max_inputs=6)


def test_a_full_queue_answers_429_and_the_queue_empties_again(held):
    service = Service(held, limits=Limits(max_queue=3, max_inputs=3))

    async def scene(client: httpx.AsyncClient) -> None:
        first = asyncio.create_task(client.post(EMBEDDINGS, json={"input": ["a", "b"]}))
        await asyncio.to_thread(held.begun.wait, 60)
        refused = await client.post(EMBEDDINGS, json={"input": ["c", "d"]})
        assert refused.status_code == 429 and error_of(refused)["code"] == "queue_full"
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert (await client.get("/ready")).status_code == 200
        second = asyncio.create_task(client.post(EMBEDDINGS, json={"input": "c"}))
        while service.held < 3:
            await asyncio.sleep(0.001)
        unready = await client.get("/ready")
        assert unready.status_code == 503 and error_of(unready)["code"] == "queue_full"
        assert (await client.get("/health")).status_code == 200
        held.go.set()
        assert [(await each).status_code for each in (first, second)] == [200, 200]
        assert (await client.post(EMBEDDINGS, json={"input": ["c", "d"]})).status_code == 200
        assert service.held == 0

    play(service, scene)


def test_too_many_requests_at_once_are_refused_unread(held):
    service = Service(held, limits=Limits(max_requests=1))

    async def scene(client: httpx.AsyncClient) -> None:
        first = asyncio.create_task(client.post(EMBEDDINGS, json={"input": "a"}))
        await asyncio.to_thread(held.begun.wait, 60)
        refused = await client.post(EMBEDDINGS, json={"input": "b"})
        assert refused.status_code == 429 and "retry-after" in refused.headers
        assert (await client.get("/health")).status_code == 200
        held.go.set()
        assert (await first).status_code == 200

    play(service, scene)


def test_a_request_that_waits_too_long_gets_504_and_its_work_is_dropped(held):
    service = Service(held, limits=Limits(timeout=0.2))

    async def scene(client: httpx.AsyncClient) -> None:
        answers = asyncio.gather(*(client.post(EMBEDDINGS, json={"input": f"{word} cat"}) for word in "ab"))
        await asyncio.to_thread(held.begun.wait, 60)
        late = client.post(EMBEDDINGS, json={"input": "never encoded"})
        for answer in (*await answers, await late):
            assert answer.status_code == 504 and error_of(answer)["code"] == "timeout"
        held.go.set()
        service.limits = Limits()  # on a busy machine one sentence may take longer than it might until here
        assert (await client.post(EMBEDDINGS, json={"input": "a dog"})).status_code == 200
        assert service.held == 0

    play(service, scene)
    assert held.encode_ids and held.tokenize(["never encoded"])[0] not in [list(row) for row in held.rows]


def test_a_client_that_has_gone_takes_its_work_along(held):
    service = Service(held)
    app = app_of(service)
    body = json.dumps({"input": "gone"}).encode()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": EMBEDDINGS,
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/json")],
    }

    async def run() -> None:
        messages = [{"type": "http.request", "body": body}, {"type": "http.disconnect"}]

        async def receive() -> Any:
            return messages.pop(0)

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                assert message["status"] == 499

        async with service.running():
            first = asyncio.create_task(service.encode(["first"]))
            await asyncio.to_thread(held.begun.wait, 60)
            await app(scope, receive, send)
            assert service.held == 1
            held.go.set()
            await first
            await service.encode(["last"])

    asyncio.run(run())
    assert [list(row) for row in held.rows] == held.tokenize(["first", "last"])
    assert service.metrics.requests.labels("POST", EMBEDDINGS, "499").collect()[0].samples[0].value == 1


def test_a_model_that_fails_answers_500_and_serves_on(encoder):
    encode, broken = encoder.encode_ids, iter(["error", "nan"])

    def fail_at_first(ids: Any, **options: Any) -> Any:
        how = next(broken, None)
        if how == "error":
            raise RuntimeError("secret detail")
        return encode(ids, **options) * (np.nan if how else 1)

    encoder.encode_ids = fail_at_first

    async def scene(client: httpx.AsyncClient) -> None:
        answers = [await client.post(EMBEDDINGS, json={"input": "a"}) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [500, 500, 200]
        assert error_of(answers[0])["type"] == "server_error" and "secret" not in answers[0].text
        assert "NaN" in error_of(answers[1])["message"]

    play(Service(encoder), scene)


def test_a_body_too_large_is_refused_with_or_without_its_length(encoder):
    async def chunks() -> Any:
        for _ in range(10):
            yield b" " * 100

    async def scene(client: httpx.AsyncClient) -> None:
        for content in (b" " * 1000, chunks()):
            answer = await client.post(EMBEDDINGS, content=content, headers={"content-type": "application/json"})
            assert answer.status_code == 413 and "999 bytes" in error_of(answer)["message"]
            assert answer.headers["connection"] == "close"

    play(Service(encoder, limits=Limits(max_body=999)), scene)


def test_a_body_too_slow_is_given_up(encoder):
    async def chunks() -> Any:
        yield b"{"
        await asyncio.sleep(5)

    async def scene(client: httpx.AsyncClient) -> None:
        answer = await client.post(EMBEDDINGS, content=chunks(), headers={"content-type": "application/json"})
        assert answer.status_code == 408 and "too slowly" in error_of(answer)["message"]

    play(Service(encoder, limits=Limits(timeout=0.1)), scene)


def test_a_key_is_wanted_where_there_is_data_and_only_there(encoder):
    async def scene(client: httpx.AsyncClient) -> None:
        for path in ("/", "/page/app.js", "/health", "/ready", "/docs", "/openapi.json"):
            assert (await client.get(path)).status_code == 200, path
        for path in ("/v1/models", "/metrics", "/index", "/analysis", "/nothing", "/docs/x", "/page"):
            assert (await client.get(path)).status_code == 401, path
        for sent in ("", "Bearer", "Bearer ", "Bearer wrong", "Basic sesame", "Bearer sesame2", "sesame"):
            answer = await client.post(EMBEDDINGS, json={"input": "a"}, headers={"authorization": sent})
            assert answer.status_code == 401 and error_of(answer)["code"] == "invalid_api_key"
            assert answer.headers["www-authenticate"] == "Bearer"
        for sent in ("Bearer sesame", "bearer  sesame"):
            answer = await client.post(EMBEDDINGS, json={"input": "a"}, headers={"authorization": sent})
            assert answer.status_code == 200

    play(Service(encoder, api_key="sesame"), scene)


def test_metrics_are_open_on_request_and_nothing_else_is(encoder):
    service = Service(encoder, api_key="sesame", open_metrics=True)
    for method, path, status in (("GET", "/metrics", 200), ("POST", "/metrics", 401), ("GET", "/v1/models", 401)):
        assert ask(service, method, path).status_code == status
    described = ask(service, "GET", "/openapi.json").json()["paths"]
    assert "security" not in described["/metrics"]["get"] and "security" in described["/v1/models"]["get"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "application/x-www-form-urlencoded"}, 200),  # as curl -d sends it
        ({"content-type": "Application/X-WWW-Form-Urlencoded; charset=utf-8"}, 200),
        ({}, 200),
        ({"content-type": "application/json", "origin": "http://test"}, 200),
        # A page of another site can make a browser send this without asking first.
        ({"content-type": "application/x-www-form-urlencoded", "origin": "https://evil.example"}, 400),
        ({"content-type": "text/plain", "origin": "https://evil.example"}, 400),
        ({"origin": "https://evil.example"}, 400),  # of a Blob without a type
        ({"content-type": "text/plain"}, 400),
    ],
)
def test_a_form_is_taken_for_json_unless_a_page_sent_it(encoder, headers: dict[str, str], status: int):
    service = Service(encoder)
    answer = ask(service, "POST", EMBEDDINGS, content=b'{"input": "a dog"}', headers=headers)
    assert answer.status_code == status
    if status == 400:
        assert "not sent as application/json" in error_of(answer)["message"]
    counted = service.metrics.registry.get_sample_value(
        "twinpass_requests_total", {"method": "POST", "route": EMBEDDINGS, "status": str(status)}
    )
    assert counted == 1


def test_similarity_is_the_cosine(encoder):
    units = encoder.encode(SENTENCES, normalize=True)

    async def scene(client: httpx.AsyncClient) -> None:
        whole = (await client.post("/similarity", json={"sentences": SENTENCES})).json()
        np.testing.assert_allclose(whole["matrix"], units @ units.T, atol=2e-6)
        part = (await client.post("/similarity", json={"a": SENTENCES[:2], "b": SENTENCES[3:]})).json()
        np.testing.assert_allclose(part["matrix"], units[:2] @ units[3:].T, atol=2e-6)
        assert part["usage"]["total_tokens"] == sum(map(len, encoder.tokenize(SENTENCES[:2] + SENTENCES[3:])))

    play(Service(encoder), scene)


@pytest.fixture
def index(encoder: Encoder, tmp_path: Path) -> Index:
    texts = [*dict.fromkeys(SENTENCES), "<script>alert(1)</script>"]
    vectors = encoder.encode(texts, normalize=True)
    block = Block(texts, vectors, [{"place": place} for place in range(len(texts))])
    facts = {"name": str(tmp_path / "somewhere" / "tiny"), "fingerprint": encoder.fingerprint}
    return Index.from_blocks(tmp_path / "index", [block], model=facts)


def test_search_finds_the_text_itself_first(encoder, index):
    async def scene(client: httpx.AsyncClient) -> None:
        one = (await client.post("/search", json={"query": "a dog", "k": 3})).json()
        assert len(one["results"]) == 1 and len(one["results"][0]["hits"]) == 3
        best = one["results"][0]["hits"][0]
        assert best["text"] == "a dog" and best["score"] == pytest.approx(1, abs=1e-5)
        assert best["metadata"] == {"place": 2}
        two = {"query": ["a dog", "the cat sat on the mat"], "k": 1, "min_score": 0.99}
        results = (await client.post("/search", json=two)).json()["results"]
        assert [found["query"] for found in results] == two["query"]
        texts = [[hit["text"] for hit in found["hits"]] for found in results]
        assert texts == [["a dog"], ["the cat sat on the mat"]]
        words = (await client.post("/search", json={"query": "dog", "mode": "keyword"})).json()
        assert words["results"][0]["hits"][0]["text"] == "a dog" and words["usage"]["total_tokens"] == 0
        both = (await client.post("/search", json={"query": "a dog", "mode": "hybrid", "group": False})).json()
        assert both["results"][0]["hits"][0]["text"] == "a dog" and both["usage"]["total_tokens"] > 0
        filtered = {"query": "a dog", "where": ["place>2", "place!=4"]}
        (found,) = (await client.post("/search", json=filtered)).json()["results"]
        places = [hit["metadata"]["place"] for hit in found["hits"]]
        assert sorted(places) == [3, 5, 6, 7]
        for where, says in (("nothing", "cannot read the filter"), ("colour=red", "no metadata column named 'colour'")):
            wrong = await client.post("/search", json={"query": "a", "where": where})
            assert wrong.status_code == 400 and says in error_of(wrong)["message"]
        for empty in ("", " \n", ["a dog", ""]):
            wrong = await client.post("/search", json={"query": empty, "mode": "keyword"})
            assert wrong.status_code == 400 and error_of(wrong)["param"] == "query"
            assert error_of(wrong)["code"] == "invalid_value" and "a query is empty" in error_of(wrong)["message"]
        for bad in ({"k": 0}, {"k": 1001}, {"mode": "magic"}, {"min_score": "high"}, {"where": 3}):
            assert (await client.post("/search", json={"query": "a"} | bad)).status_code == 400

    play(Service(encoder, index), scene)


def test_the_index_is_described_and_measured_once(encoder, index, monkeypatch):
    calls = []
    monkeypatch.setattr(Index, "numbers", lambda self, real=Index.numbers: calls.append(1) or real(self))
    vectors = index.vectors(np.arange(8))

    async def scene(client: httpx.AsyncClient) -> None:
        info = (await client.get("/index")).json()
        assert info["rows"] == 8 and info["model"] == "tiny" and info["columns"] == ["place"]
        assert str(index.folder.parent) not in json.dumps(info)  # neither its place nor its model's
        found = [(await each).json() for each in [client.get("/analysis") for _ in range(3)]]
        assert found[0] == found[1] == found[2] and len(calls) == 1
        cosines = (vectors @ vectors.T)[np.triu_indices(8, 1)]
        naive = np.log(np.mean(np.exp(-2 * (2 - 2 * cosines.astype(float)))))
        assert found[0]["uniformity"] == pytest.approx(naive, abs=1e-4) and found[0]["alignment"] is None
        assert found[0]["singular_values"][0] == 1 and found[0]["sample"] == found[0]["of"] == 8
        assert sum(found[0]["cosines"]["counts"]) == 28 and len(found[0]["cosines"]["edges"]) == 51

    play(Service(encoder, index), scene)


LINE = re.compile(r'[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? (\d+\.?\d*(e[+-]?\d+)?|\+Inf)')


def test_metrics_count_what_happened(encoder):
    async def scene(client: httpx.AsyncClient) -> None:
        long = "the cat " * 100
        answer = await client.post(EMBEDDINGS, json={"input": ["a dog", "a dog", long]})
        assert answer.headers["x-truncated-inputs"] == "1"
        assert answer.json()["usage"]["prompt_tokens"] == 4 + 4 + 64
        await client.get("/nowhere/1")
        await client.get("/nowhere/2")
        page = await client.get("/metrics")
        assert page.headers["content-type"].startswith("text/plain; version=")
        lines = page.text.splitlines()
        assert all(LINE.fullmatch(line) for line in lines if not line.startswith("# "))
        assert {
            'twinpass_requests_total{method="POST",route="/v1/embeddings",status="200"} 1.0',
            'twinpass_requests_total{method="GET",route="other",status="404"} 2.0',
            'twinpass_request_seconds_bucket{le="+Inf",route="/v1/embeddings"} 1.0',
            'twinpass_batch_texts_bucket{le="1.0"} 0.0',
            'twinpass_batch_texts_bucket{le="2.0"} 1.0',
            "twinpass_batch_texts_sum 2.0",
            "twinpass_tokens_total 68.0",
            "twinpass_texts_total 3.0",
            "twinpass_texts_shared_total 1.0",
            "twinpass_texts_truncated_total 1.0",
            "twinpass_queue_texts 0.0",
            "twinpass_active_requests 1.0",
        } <= set(lines)

    play(Service(encoder), scene)


def test_names_and_normalizing(encoder, folder):
    service = Service(encoder, names=["mine", "text-embedding-3-small"], normalize=True)

    async def scene(client: httpx.AsyncClient) -> None:
        for name in ("mine", "text-embedding-3-small", "default", str(folder), None):
            answer = (await client.post(EMBEDDINGS, json={"input": "a dog", "model": name})).json()
            assert answer["model"] == "mine"
            assert np.linalg.norm(answer["data"][0]["embedding"]) == pytest.approx(1, abs=1e-6)
        assert (await client.get(f"/v1/models/{folder}")).json()["id"] == "mine"

    play(service, scene)


def test_the_description_is_a_page_without_anything_from_elsewhere(encoder):
    page = ask(Service(encoder, api_key="x"), "GET", "/docs")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "POST /v1/embeddings" in page.text and "base64" in page.text and "$ref" not in page.text
    assert "http" not in re.sub(r"<pre>.*?</pre>", "", page.text, flags=re.DOTALL)


def add_elsewhere(folder: Path, encoder: Encoder, texts: list[str]) -> None:
    """Add texts as another process does: through an Index of its own."""
    block = Block(texts, encoder.encode(texts, normalize=True), [{"place": 100}] * len(texts))
    Index.open(folder).add_blocks([block])


def test_what_is_added_to_the_index_is_found_without_a_restart(encoder, index):
    async def scene(client: httpx.AsyncClient) -> None:
        async def best(query: str) -> str:
            found = (await client.post("/search", json={"query": query, "k": 1})).json()
            return str(found["results"][0]["hits"][0]["text"])

        before = [(await client.get(path)).json() for path in ("/index", "/analysis")]
        assert (before[0]["rows"], before[1]["of"]) == (8, 8) and await best("a bird sings") != "a bird sings"
        add_elsewhere(index.folder, encoder, ["a bird sings", "two birds"])
        assert await best("a bird sings") == "a bird sings"
        after = [(await client.get(path)).json() for path in ("/index", "/analysis")]
        assert (after[0]["rows"], after[1]["of"]) == (10, 10)
        assert after[1]["uniformity"] != before[1]["uniformity"]
        Index.open(index.folder).remove(texts=["a bird sings"])
        assert (await client.get("/analysis")).json()["of"] == 9  # asked for before any search
        assert await best("a bird sings") != "a bird sings"
        assert (await client.get("/index")).json()["rows"] == 9

    play(Service(encoder, index), scene)


def test_an_index_rebuilt_with_another_model_is_not_searched(encoder, index):
    async def scene(client: httpx.AsyncClient) -> None:
        assert (await client.get("/index")).status_code == 200
        block = Block(["other"], np.ones((1, 32), np.float32))
        Index.from_blocks(index.folder, [block], model={"name": "x", "fingerprint": "f" * 64}, overwrite=True)
        for method, path, body in (("POST", "/search", {"query": "a"}), ("GET", "/index", None)):
            answer = await client.request(method, path, json=body)
            assert answer.status_code == 503 and "rebuilt with another model" in error_of(answer)["message"]
        assert (await client.post(EMBEDDINGS, json={"input": "a"})).status_code == 200

    play(Service(encoder, index), scene)


def test_an_index_on_milvus_is_described_and_searched(encoder, index, tmp_path, monkeypatch):
    pytest.importorskip("milvus_lite", reason="needs Milvus (extra [milvus])")
    rows = Block([hit.text for hit in index.entries(index.ids())], index.vectors())
    from twinpass.search.engines.milvus import Address, MilvusIndex

    served = MilvusIndex.from_blocks(Address(str(tmp_path / "m.db"), "docs"), [rows], model=index.model)

    async def scene(client: httpx.AsyncClient) -> None:
        info = (await client.get("/index")).json()
        assert (info["rows"], info["distinct"], info["fingerprint"]) == (len(index), None, encoder.fingerprint)
        found = (await client.post("/search", json={"query": rows.texts[2], "k": 1})).json()["results"]
        assert found[0]["hits"][0]["text"] == rows.texts[2]

    play(Service(encoder, served), scene)
    started: list[Serving] = []
    monkeypatch.setattr("twinpass.service.server.run_server", lambda app, bound: None)
    serve(encoder, served, port=0, started=started.append)
    assert started[0].index == f"docs at {tmp_path / 'm.db'}"


def test_an_index_whose_folder_is_gone_is_still_searched(encoder, index):
    async def scene(client: httpx.AsyncClient) -> None:
        assert (await client.get("/index")).status_code == 200
        shutil.rmtree(index.folder)
        found = (await client.post("/search", json={"query": "a dog", "k": 1})).json()
        assert found["results"][0]["hits"][0]["text"] == "a dog"

    play(Service(encoder, index), scene)


def test_create_app_takes_names_and_folders_or_what_they_stand_for(encoder, folder, index):
    apps = [
        create_app(folder, index.folder, device="cpu"),
        create_app(encoder, index, name="mine", api_key="k", normalize=True, limits=Limits(timeout=9)),
        create_app(encoder, name=["a", "b"]),
    ]
    services = [app.state.service for app in apps]
    assert [service.models[0].name for service in services] == ["tiny", "mine", "a"]
    assert services[1].limits.timeout == 9 and services[1].api_key == "k" and services[1].models[0].normalize
    assert {services[2].model(name) for name in ("a", "b", "default", None)} == {services[2].models[0]}
    assert services[0].models[0].fingerprint == encoder.fingerprint
    with pytest.raises(ConfigError, match="the model is an Encoder already"):
        create_app(encoder, pooler="cls")
    with pytest.raises(ModelError, match="was built with the model"):
        create_app(Encoder.load(folder, device="cpu", max_tokens=9), index)


def test_the_index_names_its_model_and_its_options(encoder, folder, tmp_path):
    short = Encoder.load(folder, device="cpu", max_tokens=9)
    entry = {"name": str(folder), "fingerprint": short.fingerprint, "pooler": None, "max_tokens": 9}
    Index.from_blocks(tmp_path / "index", [Block(["a dog"], short.encode(["a dog"]))], model=entry)
    assert create_app(index=tmp_path / "index", device="cpu").state.service.models[0].encoder.max_tokens == 9


def test_mounted_in_another_app_it_works_below_its_path(encoder, index):
    """A mounted app is never started by its parent, and its paths have a prefix."""
    parent = FastAPI()
    parent.mount("/embed", create_app(encoder, index, api_key="sesame"))
    with TestClient(parent) as client:
        assert client.get("/embed/health").json() == {"status": "alive"}
        assert "<title>twinpass</title>" in client.get("/embed/").text
        assert client.get("/embed/page/app.js").status_code == 200
        assert client.get("/embed/docs").status_code == 200 and client.get("/embed/v1/models").status_code == 401
        headers = {"authorization": "Bearer sesame"}
        found = client.post("/embed/search", json={"query": "a dog", "k": 1}, headers=headers).json()
        assert found["results"][0]["hits"][0]["text"] == "a dog"
        assert client.get("/embed/v1/models/tiny", headers=headers).json()["id"] == "tiny"


def test_two_apps_count_for_themselves(encoder):
    first, second = Service(encoder), Service(encoder)
    assert ask(first, "POST", EMBEDDINGS, json={"input": ["a", "b"]}).status_code == 200
    counted = [service.metrics.registry.get_sample_value("twinpass_texts_total") for service in (first, second)]
    assert counted == [2, 0]
