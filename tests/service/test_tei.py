"""The routes of text-embeddings-inference: its requests, its answers, its errors, and a client of it."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest
from tests.service.test_api import ask, play
from tests.service.toy_service import serving
from tests.tiny import SENTENCES

from twinpass.encoder.encoder import Encoder
from twinpass.service.app import Service, app_of, create_app
from twinpass.service.limits import Limits


def test_vectors_are_a_list_of_lists_of_length_one_unless_asked_otherwise(encoder):
    raw, units = encoder.encode(SENTENCES), encoder.encode(SENTENCES, normalize=True)

    async def scene(client: httpx.AsyncClient) -> None:
        async def embed(path: str = "/embed", **body: Any) -> Any:
            answer = await client.post(path, json=body)
            assert answer.status_code == 200, answer.text
            return answer.json()

        np.testing.assert_allclose(await embed(inputs=SENTENCES), units, atol=1e-6)
        np.testing.assert_allclose(await embed(inputs=SENTENCES[0]), units[:1], atol=1e-6)
        np.testing.assert_allclose(await embed("/", inputs=SENTENCES), units, atol=1e-6)
        np.testing.assert_allclose(await embed(inputs=SENTENCES, normalize=False, truncate=True), raw, atol=1e-6)
        np.testing.assert_allclose(await embed(inputs=encoder.tokenize(SENTENCES)), units, atol=1e-6)
        short = await embed(inputs=SENTENCES[:2], dimensions=5, prompt_name=None)
        expected = raw[:2, :5] / np.linalg.norm(raw[:2, :5], axis=1, keepdims=True)
        np.testing.assert_allclose(short, expected, atol=1e-6)

    play(Service(encoder), scene)


def test_a_long_text_loses_tokens_on_the_side_that_is_asked_for_or_is_refused(folder):
    encoder = Encoder.load(folder, device="cpu", max_tokens=6)
    words = ["the", "cat", "sat", "on", "the", "mat", "a", "dog", "the", "cat"]  # a token each
    start, end = encoder.encode([" ".join(words[:4]), " ".join(words[-4:])], normalize=True)

    async def scene(client: httpx.AsyncClient) -> None:
        for side, vector in (("right", start), ("Left", end), ("left", end), (None, start)):
            body = {"inputs": " ".join(words)} | ({"truncation_direction": side} if side else {})
            answer = await client.post("/embed", json=body)
            np.testing.assert_allclose(answer.json(), [vector], atol=1e-6)
            assert answer.headers["x-truncated-inputs"] == "1"
        # Far longer than what is tokenised of a text.
        answer = await client.post("/embed", json={"inputs": " ".join(words * 200), "truncation_direction": "left"})
        np.testing.assert_allclose(answer.json(), [end], atol=1e-6)
        refused = await client.post("/embed", json={"inputs": ["a cat", " ".join(words)], "truncate": False})
        assert refused.status_code == 413
        assert refused.json()["error_type"] == "Validation"
        assert refused.json()["error"].startswith("text 1 has more than 6 tokens, and may not be truncated.")
        assert (await client.post("/embed", json={"inputs": "a cat", "truncate": False})).status_code == 200

    assert len(encoder.tokenize([" ".join(words[:4])])[0]) == 6
    play(Service(encoder), scene)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "kind", "says"),
    [
        ("POST", "/embed", {"inputs": []}, 400, "Validation", "at least 1"),
        ("POST", "/embed", {"input": "a"}, 400, "Validation", "inputs: Field required"),
        ("POST", "/", {"inputs": 3}, 400, "Validation", "inputs: "),
        ("POST", "/embed", {"inputs": ["a"] * 9}, 400, "Validation", "9 inputs; at most 8"),
        ("POST", "/embed", {"inputs": "a", "prompt_name": "query"}, 400, "Validation", "no prompt is named 'query'"),
        ("POST", "/embed", {"inputs": "a", "dimensions": 33}, 400, "Validation", "have 32"),
        ("POST", "/embed", {"inputs": "a", "model": "x"}, 404, "Validation", "'x' does not exist here"),
        ("POST", "/embed", {"inputs": "a" * 400}, 413, "Validation", "larger than 300 bytes"),
    ],
)
def test_errors_have_its_shape(encoder, method: str, path: str, body: Any, status: int, kind: str, says: str):
    answer = ask(Service(encoder, limits=Limits(max_inputs=8, max_body=300)), method, path, json=body)
    assert answer.status_code == status and set(answer.json()) == {"error", "error_type"}
    assert answer.json()["error_type"] == kind and says in answer.json()["error"]


def test_a_failing_model_and_a_full_queue_have_its_shape_too(encoder):
    encoder.encode_ids = lambda ids, **options: 1 / 0
    failed = ask(Service(encoder), "POST", "/embed", json={"inputs": "a"})
    assert (failed.status_code, failed.json()["error_type"]) == (500, "Backend")
    full = Service(encoder, limits=Limits(max_queue=2, max_inputs=2))
    full.held = 2
    refused = ask(full, "POST", "/embed", json={"inputs": "a"})
    assert (refused.status_code, refused.json()["error_type"]) == (429, "Overloaded")


def test_the_root_answers_posts_with_the_key_only_and_the_page_without(encoder):
    async def scene(client: httpx.AsyncClient) -> None:
        assert (await client.get("/")).headers["content-type"].startswith("text/html")
        for path in ("/", "/embed"):
            refused = await client.post(path, json={"inputs": "a"})
            assert refused.status_code == 401 and "API key" in refused.json()["error"]
            headers = {"authorization": "Bearer sesame"}
            assert (await client.post(path, json={"inputs": "a"}, headers=headers)).status_code == 200
        assert (await client.get("/info")).status_code == 401

    play(Service(encoder, api_key="sesame"), scene)


def test_info_describes_the_first_model(encoder):
    info = ask(Service(encoder, names=["mine"]), "GET", "/info").json()
    assert (info["model_id"], info["model_sha"], info["model_dtype"]) == ("mine", encoder.fingerprint, "float32")
    assert info["model_type"] == {"embedding": {"pooling": "avg"}} and info["max_input_length"] == 64
    assert info["max_client_batch_size"] == 2_048 and info["auto_truncate"] is True


def test_a_client_of_hugging_face_gets_its_vectors(encoder):
    hub = pytest.importorskip("huggingface_hub", reason="needs huggingface_hub")
    with serving(app_of(Service(encoder))) as address:
        for url in (address, f"{address}/embed"):
            client = hub.InferenceClient(model=url, token="none")
            found = client.feature_extraction("a dog", normalize=True, truncate=True)
            np.testing.assert_allclose(found, encoder.encode(["a dog"], normalize=True), atol=1e-6)


def test_below_a_prefix_the_shape_is_the_same(encoder):
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    parent = FastAPI()
    parent.mount("/vectors", create_app(encoder, api_key="sesame"))
    with TestClient(parent) as client:
        assert set(client.post("/vectors/embed", json={"inputs": "a"}).json()) == {"error", "error_type"}
        headers = {"authorization": "Bearer sesame"}
        assert set(client.post("/vectors/embed", json={}, headers=headers).json()) == {"error", "error_type"}
        assert len(client.post("/vectors/embed", json={"inputs": "a"}, headers=headers).json()[0]) == 32
