"""`twinpass serve`: what is said before it runs, and what it hands to the server."""

from __future__ import annotations

import json
import socket
import sys
from typing import Any

import pytest


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would have been served, instead of serving it."""
    seen: list[Any] = []
    monkeypatch.setattr("twinpass.service.server.run_server", lambda app, bound: seen.append(app))
    monkeypatch.delenv("TWINPASS_API_KEY", raising=False)
    return seen


def test_the_address_is_the_result(run, served, model):
    ran = run("serve", model, "--port", 0, "--device", "cpu")
    assert ran.code == 0 and ran.out.startswith("http://127.0.0.1:") and ran.out.count("\n") == 1
    assert "serving model at http://127.0.0.1:" in ran.err and "warning" not in ran.err
    document = json.loads(run("serve", model, "--port", 0, "--json").out)
    assert document["url"].startswith("http://127.0.0.1:") and document["model"]["name"] == model
    assert len(served) == 2


def test_options_reach_the_service(run, served, model):
    options = ["--max-queue", 7, "--max-inputs", 5, "--max-chars", 9, "--max-body", 99, "--max-batch-tokens", 11]
    more = ["--timeout", 2.5, "--name", "a", "--name", "b", "--api-key", "k", "--normalize", "--max-tokens", 16]
    assert run("serve", model, "--port", 0, *options, *more).code == 0
    service = served[0].state.service
    limits = service.limits
    assert (limits.max_queue, limits.max_inputs, limits.max_chars) == (7, 5, 9)
    assert (limits.max_body, limits.max_batch_tokens, limits.timeout) == (99, 11, 2.5)
    served_model = service.models[0]
    assert served_model.name == "a" and service.model("b") is service.model("default") is served_model
    assert service.api_key == "k" and served_model.normalize and served_model.encoder.max_tokens == 16


def test_several_models_are_served_by_name(run, served, model):
    assert run("serve", "-m", f"a={model}", "-m", f"b={model}", "--port", 0, "--open-metrics", "--read-only").code == 0
    ran = run("serve", f"a={model}", f"b={model}", "--port", 0, "--json")
    assert json.loads(ran.out)["models"] == ["a", "b"] and "serving a, b at http://" in ran.err
    for app in served:
        assert [each.name for each in app.state.service.models] == ["a", "b"]
    assert (served[0].state.service.open_metrics, served[0].state.service.read_only) == (True, True)
    assert (served[1].state.service.open_metrics, served[1].state.service.read_only) == (False, False)
    assert run("serve", f"only={model}", "--port", 0).code == 0
    assert served[2].state.service.models[0].name == "only"


def test_names_of_models_are_told_from_folders(tmp_path):
    from twinpass.cli.serve import named_models

    (tmp_path / "a=b").mkdir()
    assert named_models([str(tmp_path / "a=b")]) == str(tmp_path / "a=b")
    assert named_models([]) is None and named_models(["minilm"]) == "minilm"
    assert named_models(["x=a=b", "y=minilm"]) == {"x": "a=b", "y": "minilm"}


def test_a_key_may_come_from_the_environment_and_an_empty_one_is_none(run, served, model, monkeypatch):
    for value in ("secret", ""):
        monkeypatch.setenv("TWINPASS_API_KEY", value)
        assert run("serve", model, "--port", 0).code == 0
    assert [app.state.service.api_key for app in served] == ["secret", None]


def test_an_open_door_is_pointed_out(run, served, model):
    assert "warning" in run("serve", model, "--port", 0, "--host", "0.0.0.0").err
    assert "warning" not in run("serve", model, "--port", 0, "--host", "0.0.0.0", "--api-key", "k").err


def test_mistakes(run, served, model):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = run("serve", model, "--port", taken.getsockname()[1])
        assert ran.code == 2 and "cannot serve at 127.0.0.1" in ran.err and "loading" not in ran.err
    for arguments, says in (
        (["--host", "192.0.2.1"], "cannot serve at 192.0.2.1"),
        (["--max-queue", 3], "--max-inputs"),
        (["another"], "expected NAME=MODEL for each of several models"),
        (["-m", "a=minilm"], "expected NAME=MODEL"),
        (["--index", "missing"], "is not an index"),
        (["--port", 70000], "--port"),
    ):
        ran = run("serve", model, "--port", 0, *arguments)
        assert ran.code == 2 and says in ran.err, (arguments, ran.err)
    for arguments, says in (
        (["-m", f"a={model}", "-m", f"a={model}"], "got 'a' twice"),
        (["-m", f"a={model}", "--name", "x"], "only for one model"),
    ):
        ran = run("serve", "--port", 0, *arguments)
        assert ran.code == 2 and says in ran.err, (arguments, ran.err)
    assert not served


def test_without_the_extra_it_says_what_to_install(run, served, model, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("twinpass.service")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("twinpass.provenance.installed", lambda name: None)
    ran = run("serve", model)
    assert ran.code == 2 and "pip install 'twinpass[serve]'" in ran.err


def test_the_limits_of_the_verb_are_those_of_the_library():
    from dataclasses import fields

    from twinpass.cli.serve import LimitOptions
    from twinpass.service.limits import Limits

    defaults = {field.name: field.default for field in fields(Limits)}
    assert {field.name: field.default for field in fields(LimitOptions)}.items() <= defaults.items()
