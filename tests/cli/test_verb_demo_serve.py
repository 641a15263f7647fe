"""`twinpass demo --serve`: the page over an index of the documentation, made by the model that was just trained."""

from __future__ import annotations

import json
import socket

import pytest

pytest.importorskip("fastapi", reason="needs the service (pip install 'twinpass[serve]')")

from fastapi.testclient import TestClient

from twinpass.workflows.demo import demo

SIZE = ("--packages", "typer,click,safetensors,tokenizers", "--steps", 2, "--batch-size", 4, "--device", "cpu")


def test_demo_serves_what_it_trained_and_at_once_the_next_time(run, model, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "cache"))
    seen: list[dict[str, object]] = []

    def ask_instead_of_waiting(app, bound) -> None:
        with TestClient(app) as client:
            assert "<title>twinpass</title>" in client.get("/").text
            found = client.post("/search", json={"query": "a file", "k": 3}).json()["results"][0]["hits"]
            seen.append(client.get("/index").json() | {"texts": [hit["text"] for hit in found]})

    monkeypatch.setattr("twinpass.service.server.run_server", ask_instead_of_waiting)
    command = ("demo", "--serve", "--port", 0, "-m", model, "-o", tmp_path / "demo", *SIZE)
    first = run(*command, "--json")
    assert first.code == 0, first.err
    document = json.loads(first.out)
    assert document["url"].startswith("http://127.0.0.1:") and set(document["scores"]) >= {"base", "pairs"}
    assert "indexing" in first.err and len(seen[0]["texts"]) == 3

    again = run(*command)
    assert again.code == 0, again.err
    assert "is trained already" in again.err and "indexing" not in again.err and "training on" not in again.err
    assert again.out.startswith("http://127.0.0.1:") and again.out.count("\n") == 1
    assert seen[1] == seen[0]

    told: list[object] = []
    size = {"packages": "typer,click,safetensors,tokenizers", "device": "cpu"}
    result = demo(tmp_path / "demo", **size, serve=True, port=0, found=told.append, started=told.append)
    assert told == [result, result.url] and result.scores == {} and seen[2] == seen[0]


def test_a_port_that_is_taken_is_said_before_the_work(run, tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("demo", "--serve", "--port", taken.getsockname()[1], "-o", tmp_path / "demo")
    assert done.code == 2 and "--port" in done.err and "reading the documentation" not in done.err
    assert not (tmp_path / "demo").exists()
