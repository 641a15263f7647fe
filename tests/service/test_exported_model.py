"""A service of an exported model: vectors, token ids, and an index of the model that it was made from."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from twinpass import create_app
from twinpass.encoder.encoder import Encoder
from twinpass.search.index import Index


def test_it_serves_vectors_ids_and_an_index_of_its_source(model: str, exported: str, tmp_path: Path):
    Index.build(tmp_path / "index", ["the cat sat", "a dog"], encoder=Encoder.load(model, device="cpu"))
    with TestClient(create_app(exported, tmp_path / "index"), base_url="http://localhost") as client:
        found = client.post("/search", json={"query": "a dog", "k": 1})
        assert found.status_code == 200, found.text
        assert "a dog" in found.text
        known = client.post("/v1/embeddings", json={"input": [[2, 30, 3]]})
        assert len(known.json()["data"][0]["embedding"]) == 32
        unknown = client.post("/v1/embeddings", json={"input": [[2, 30_000, 3]]})
        assert unknown.status_code == 400
        assert client.get("/v1/models").json()["data"][0]["precision"] == "fp32"


@pytest.mark.filterwarnings("ignore:.*once, and cached")
def test_an_index_that_openvino_built_brings_its_runtime(model: str, tmp_path: Path, monkeypatch):
    pytest.importorskip("openvino")
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "cache"))
    Index.build(tmp_path / "index", ["the cat sat", "a dog"], encoder=model, runtime="openvino")
    for given in (None, model):
        assert create_app(given, tmp_path / "index").state.service.models[0].encoder.runtime_name == "openvino"
