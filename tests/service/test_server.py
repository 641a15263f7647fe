"""A real server process, asked by the real openai package; signals, sockets, many clients at once."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest
from tests.tiny import SENTENCES, WORDS

from twinpass.encoder.encoder import Encoder
from twinpass.search.index import Block, Index
from twinpass.service.server import listen

KEY = "open sesame"


HELD = """
import os, sys, threading
from twinpass.encoder.encoder import Encoder

go, encode = threading.Event(), Encoder.encode_ids
threading.Thread(target=lambda: (os.read(0, 1), go.set()), daemon=True).start()
Encoder.encode_ids = lambda self, ids, **options: go.wait() and encode(self, ids, **options)
from twinpass.cli.main import main
main(sys.argv[1:])
"""


@contextlib.contextmanager
def serving(*options: str, program: Sequence[str] = ("-m", "twinpass")) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start `twinpass serve` on any free port; yield the process and its address."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TWINPASS_API_KEY": KEY}
    process = subprocess.Popen(
        [sys.executable, *program, "serve", "--port", "0", "--device", "cpu", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:"), process.stderr.read()
        yield process, url
    finally:
        process.kill()
        process.communicate()


def connect(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=60)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with serving(str(folder)) as started:
        yield started


@pytest.fixture(scope="module")
def url(server) -> str:
    return server[1]


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def truth(folder: Path) -> Encoder:
    return Encoder.load(folder, device="cpu")


def vectors(answer: openai.types.CreateEmbeddingResponse) -> np.ndarray:
    assert [each.index for each in answer.data] == list(range(len(answer.data)))
    return np.array([each.embedding for each in answer.data], dtype=np.float32)


@pytest.mark.parametrize("form", ["float", "base64", None])
def test_strings_come_back_as_encode_gives_them(client, truth, form):
    options = {} if form is None else {"encoding_format": form}  # without, the client asks for base64 itself
    answer = client.embeddings.create(model="tiny", input=SENTENCES, **options)
    if form == "base64":
        raw = [np.frombuffer(base64.b64decode(each.embedding), "<f4") for each in answer.data]
        np.testing.assert_allclose(raw, truth.encode(SENTENCES), atol=1e-5)
    else:
        np.testing.assert_allclose(vectors(answer), truth.encode(SENTENCES), atol=1e-5)
    tokens = sum(map(len, truth.tokenize(SENTENCES)))
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (tokens, tokens)
    assert (answer.model, answer.object, answer.data[0].object) == ("tiny", "list", "embedding")


def test_every_form_of_input(client, truth):
    ids = truth.tokenize(SENTENCES)
    expected = truth.encode(SENTENCES)
    one = client.embeddings.create(model="tiny", input=SENTENCES[0])
    row = client.embeddings.create(model="tiny", input=ids[3])
    rows = client.embeddings.create(model="tiny", input=ids)
    np.testing.assert_allclose(vectors(one), expected[:1], atol=1e-5)
    np.testing.assert_allclose(vectors(row), expected[3:4], atol=1e-5)
    np.testing.assert_allclose(vectors(rows), expected, atol=1e-5)
    assert row.usage.prompt_tokens == len(ids[3])


def test_dimensions_cut_and_scale_again(client, truth):
    answer = client.embeddings.create(model="tiny", input=SENTENCES, dimensions=8, user="somebody")
    cut = truth.encode(SENTENCES)[:, :8]
    np.testing.assert_allclose(vectors(answer), cut / np.linalg.norm(cut, axis=1, keepdims=True), atol=1e-5)


def test_models_are_listed(client, truth):
    (only,) = client.models.list()
    assert only.id == "tiny" and only.object == "model" and only.fingerprint == truth.fingerprint
    assert client.models.retrieve("tiny").id == "tiny"


def test_errors_arrive_as_the_client_knows_them(client, url):
    with pytest.raises(openai.NotFoundError) as missing:
        client.embeddings.create(model="gpt", input="a")
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as bad:
        client.embeddings.create(model="tiny", input="a", dimensions=33)
    assert bad.value.param == "dimensions" and "32" in bad.value.message
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model="tiny", input=[])
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError) as unknown,
    ):
        stranger.models.list()
    assert unknown.value.code == "invalid_api_key"


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl, which is not installed")
def test_curl_needs_no_content_type(url, truth):
    command = ["curl", "-sS", "--max-time", "30", "-H", f"Authorization: Bearer {KEY}"]
    for path, body in (("/v1/embeddings", {"input": "a dog"}), ("/embed", {"inputs": "a dog", "normalize": False})):
        ran = subprocess.run([*command, url + path, "-d", json.dumps(body)], capture_output=True, text=True, check=True)
        answer = json.loads(ran.stdout)
        found = answer[0] if path == "/embed" else answer["data"][0]["embedding"]
        np.testing.assert_allclose(found, truth.encode(["a dog"])[0], atol=1e-5)


def test_thirty_two_clients_at_once_each_get_their_own(url, truth):
    draw = np.random.default_rng(0)
    asked = [
        [" ".join(draw.choice(WORDS, draw.integers(1, 40))) for _ in range(draw.integers(1, 6))] for _ in range(32 * 2)
    ]
    expected = [truth.encode(texts) for texts in asked]

    def ask(texts: list[str]) -> np.ndarray:
        answer = session.post("/v1/embeddings", json={"input": texts})
        return np.array([each["embedding"] for each in answer.json()["data"]], dtype=np.float32)

    limits = httpx.Limits(max_connections=32)
    headers = {"authorization": f"Bearer {KEY}"}
    with (
        httpx.Client(base_url=url, headers=headers, limits=limits, timeout=60) as session,
        ThreadPoolExecutor(32) as pool,
    ):
        for found, wanted in zip(pool.map(ask, asked), expected, strict=True):
            np.testing.assert_allclose(found, wanted, atol=1e-5)
        page = session.get("/metrics").text
    batches = float(page.split("twinpass_batch_texts_count ")[1].split()[0])
    texts = float(page.split("twinpass_batch_texts_sum ")[1].split()[0])
    assert texts > batches  # some were encoded together


def test_a_body_too_large_is_refused_before_it_is_sent(url):
    with connect(url) as connection:
        connection.sendall(
            b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer open sesame\r\n"
            b"Content-Type: application/json\r\nContent-Length: 9999999999\r\n\r\n"
        )
        answer = connection.makefile("rb").read()  # ends, since the server closes
    assert answer.startswith(b"HTTP/1.1 413 ") and json.loads(answer.split(b"\r\n\r\n")[1])["error"]["message"]


def test_the_page_and_health_need_no_key(url):
    assert httpx.get(f"{url}/health", timeout=60).json() == {"status": "alive"}
    assert httpx.get(f"{url}/ready", timeout=60).json() == {"status": "ready"}
    assert "<html" in httpx.get(url, timeout=60).text


def test_an_index_is_searched_and_ctrl_c_is_a_good_end(folder, truth, tmp_path):
    block = Block(SENTENCES, truth.encode(SENTENCES, normalize=True))
    Index.from_blocks(tmp_path / "index", [block], model={"name": str(folder), "fingerprint": truth.fingerprint})
    with serving("--index", str(tmp_path / "index"), "--name", "mine") as (process, url):  # the index knows its model
        options = {"headers": {"authorization": f"Bearer {KEY}"}, "timeout": 60}
        answer = httpx.post(f"{url}/search", json={"query": SENTENCES[3], "k": 2}, **options).json()
        assert answer["results"][0]["hits"][0]["text"] == SENTENCES[3] and answer["model"] == "mine"
        added = Block(["a bird sings"], truth.encode(["a bird sings"], normalize=True))
        Index.open(tmp_path / "index").add_blocks([added])  # in this process, while the other one serves
        answer = httpx.post(f"{url}/search", json={"query": "a bird sings", "k": 1}, **options).json()
        assert answer["results"][0]["hits"][0]["text"] == "a bird sings"
        assert httpx.get(f"{url}/index", **options).json()["rows"] == len(SENTENCES) + 1
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_what_was_accepted_is_answered_before_the_end(folder):
    headers = {"authorization": f"Bearer {KEY}"}
    statuses: list[int] = []

    def ask(word: str) -> None:
        texts = [f"{word} {place} {' '.join(WORDS[:25])}" for place in range(512)]
        answer = httpx.post(f"{url}/v1/embeddings", json={"input": texts}, headers=headers, timeout=600)
        statuses.append(answer.status_code)

    # The model waits until it is told to go on: else it may have finished before this process sends the signal.
    with serving(str(folder), "--timeout", "600", program=("-c", HELD)) as (process, url):
        threads = [threading.Thread(target=ask, args=(word,)) for word in WORDS[:6]]
        for thread in threads:
            thread.start()
        while counts(url, headers) != (6 * 512, 6 * 512) and not statuses:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        with pytest.raises(ConnectionError):
            for _ in range(10_000):
                connect(url).close()
                time.sleep(0.01)
        assert statuses == []
        process.stdin.write("\n")
        process.stdin.flush()
        for thread in threads:
            thread.join(600)
        assert statuses == [200] * 6
        assert process.wait(600) == 0
        assert process.stderr.read().endswith("stopped.\n")


def counts(url: str, headers: dict[str, str]) -> tuple[float, float]:
    """Return how many texts were accepted so far, and how many of them wait."""
    page = httpx.get(f"{url}/metrics", headers=headers, timeout=60).text
    found = [page.split(f"\n{name} ")[1].split()[0] for name in ("twinpass_texts_total", "twinpass_queue_texts")]
    return float(found[0]), float(found[1])


def test_an_answer_does_not_wait_for_the_first_part_to_be_acknowledged() -> None:
    """The server's side of a connection sends at once: small answers would else take 40 ms more."""
    with listen("127.0.0.1", 0) as bound, socket.create_connection(bound.getsockname()), bound.accept()[0] as ours:
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
