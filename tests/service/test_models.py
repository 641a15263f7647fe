"""Several models behind one service: chosen by name, batched for themselves, sharing queue, places and cores."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.service.test_api import EMBEDDINGS, ask, error_of, play

from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError, ModelError
from twinpass.search.index import Block, Index
from twinpass.service.app import Service, create_app
from twinpass.service.limits import Limits
from twinpass.service.served_model import Shared


@pytest.fixture
def short(folder: Path) -> Encoder:
    """The same weights with another token limit: another model, with other vectors of long texts."""
    return Encoder.load(folder, device="cpu", max_tokens=4)


LONG = "the cat sat on the mat"
pytestmark = pytest.mark.filterwarnings("ignore::twinpass.encoder.encoder.TruncationWarning")


def test_the_name_in_the_request_chooses_the_model(encoder, short):
    async def scene(client: httpx.AsyncClient) -> None:
        listed = (await client.get("/v1/models")).json()["data"]
        assert [(each["id"], each["max_tokens"]) for each in listed] == [("whole", 64), ("short", 4)]
        assert (await client.get("/v1/models/short")).json()["fingerprint"] == short.fingerprint
        for name, model in (("whole", encoder), ("short", short), ("default", encoder), (None, encoder)):
            answer = (await client.post(EMBEDDINGS, json={"input": LONG, "model": name})).json()
            assert answer["model"] == ("short" if model is short else "whole")
            np.testing.assert_allclose(answer["data"][0]["embedding"], model.encode([LONG])[0], atol=1e-6)
            tei = (await client.post("/embed", json={"inputs": LONG, "model": name})).json()
            np.testing.assert_allclose(tei, model.encode([LONG], normalize=True), atol=1e-6)
            both = {"sentences": [LONG, "a dog"], "model": name}
            matrix = (await client.post("/similarity", json=both)).json()["matrix"]
            units = model.encode([LONG, "a dog"], normalize=True)
            np.testing.assert_allclose(matrix, units @ units.T, atol=2e-6)
        unknown = await client.post(EMBEDDINGS, json={"input": "a", "model": "other"})
        assert unknown.status_code == 404 and "Served: 'whole', 'short'." in error_of(unknown)["message"]

    play(Service({"whole": encoder, "short": short}), scene)


def test_the_index_is_searched_with_its_own_model_wherever_that_stands(encoder, short, tmp_path):
    record = {"name": "anything", "fingerprint": short.fingerprint}
    index = Index.from_blocks(tmp_path / "index", [Block([LONG], short.encode([LONG]))], model=record)

    async def scene(client: httpx.AsyncClient) -> None:
        found = (await client.post("/search", json={"query": LONG})).json()
        assert found["model"] == "short" and found["results"][0]["hits"][0]["score"] == pytest.approx(1, abs=1e-5)
        assert (await client.get("/index")).json()["model"] == "short"

    play(Service({"whole": encoder, "short": short}, index), scene)
    with pytest.raises(ModelError, match="was built with the model anything"):
        Service({"whole": encoder, "also": encoder}, index)


def test_models_wait_for_the_same_places(encoder, short, monkeypatch):
    """With one place for batches, a model encodes only when the other does not."""
    lock, together, order = threading.Lock(), [], []

    def watched(name: str, encode: Any) -> Any:
        def encode_ids(ids: Any, **options: Any) -> Any:
            together.append(lock.acquire(blocking=False))
            order.append(name)
            try:
                return encode(ids, **options)
            finally:
                lock.release()

        return encode_ids

    for name, model in (("whole", encoder), ("short", short)):
        monkeypatch.setattr(model, "encode_ids", watched(name, model.encode_ids))

    async def scene(client: httpx.AsyncClient) -> None:
        bodies = [{"input": f"text {n}", "model": ("whole", "short")[n % 2]} for n in range(20)]
        answers = await asyncio.gather(*(client.post(EMBEDDINGS, json=body) for body in bodies))
        assert {answer.status_code for answer in answers} == {200}

    play(Service({"whole": encoder, "short": short}, limits=Limits(max_batches=1)), scene)
    assert all(together) and set(order) == {"whole", "short"}


def test_batches_that_run_together_share_the_cores(encoder, monkeypatch):
    monkeypatch.setattr("twinpass.service.served_model._torch_threads", lambda: 8)
    service = Service({"a": encoder, "b": encoder}, limits=Limits(max_batches=3))
    shared: Shared = service._shared
    assert (shared.places, shared.cores_per_batch) == (3, 8)
    for batcher, running, cores in zip(shared.batchers, (1, 2), (8, 2), strict=True):
        batcher.running = running
        assert shared.cores_per_batch == cores


def test_the_queue_is_one_for_all(encoder, short):
    for model in ("whole", "short"):
        service = Service({"whole": encoder, "short": short}, limits=Limits(max_queue=2, max_inputs=2))
        service.held = 1
        answer = ask(service, "POST", EMBEDDINGS, json={"input": ["a", "b"], "model": model})
        assert answer.status_code == 429


def test_a_chosen_name_comes_before_those_that_models_bring_along(encoder, short):
    service = Service({"first": encoder, encoder.name: short, "default": short})
    assert service.model(encoder.name).encoder is service.model("default").encoder is short
    assert service.model().encoder is encoder


def test_create_app_takes_several(encoder, folder, tmp_path):
    short = Encoder.load(folder, device="cpu", max_tokens=4)
    entry = {"name": str(folder), "fingerprint": short.fingerprint, "pooler": None, "max_tokens": 4}
    Index.from_blocks(tmp_path / "index", [Block(["a dog"], short.encode(["a dog"]))], model=entry)
    service = create_app({"a": encoder, "b": folder}, tmp_path / "index").state.service
    assert [model.name for model in service.models] == ["a", "b"]
    assert service.model("b").encoder.max_tokens == 4 and service.index.model.name == "b"
    with pytest.raises(ConfigError, match=r"--name .* is only for one model that is given without a name, got 'x'"):
        create_app({"a": encoder}, name="x")
    with pytest.raises(ConfigError, match="expected at least one model by name, got none"):
        create_app({})
