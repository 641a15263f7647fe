"""`twinpass doctor`: answers whatever is missing."""

from __future__ import annotations

import builtins
import importlib.metadata
import json
from pathlib import Path

import pytest

from twinpass.encoder import load
from twinpass.errors import ModelError
from twinpass.workflows import doctor as checkup


def test_document(run):
    ran = run("doctor", "--json")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["libraries"]["torch"] == importlib.metadata.version("torch")
    assert document["threads"]["torch"] >= 1 and document["threads"]["cores"] >= 1
    assert document["devices"][0].startswith("cpu")
    assert document["memory"]["total"] > document["memory"]["available"] > 0
    assert all(cache["free"] > 0 for cache in document["caches"])
    assert document["extras"]["demo"]["enables"].startswith("the built-in model")
    assert document["model"]["name"] == "minilm"


def test_page_names_missing_parts_and_their_cure(run, monkeypatch):
    monkeypatch.setattr(checkup, "installed", lambda name: None)
    monkeypatch.setattr("twinpass.workflows.doctor.devices", lambda: ["cpu (x)", "cuda:0 (y)"])
    ran = run("doctor")
    assert ran.code == 0
    assert "torch MISSING" in ran.out and "pip install 'twinpass[openvino]'" in ran.out and "cuda:0 (y)" in ran.out


def test_works_without_torch_psutil_and_metadata(run, monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **options):
        if name.split(".")[0] in ("torch", "psutil"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    def unknown(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(builtins, "__import__", without)
    for question in ("version", "requires", "metadata"):
        monkeypatch.setattr(importlib.metadata, question, unknown)
    ran = run("doctor", "--json")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["memory"] == {"total": None, "available": None}
    assert document["threads"]["torch"] is None and document["versions"]["torch"] is None
    assert document["extras"] == {}


def test_a_missing_model_is_told_not_raised(run, monkeypatch):
    def missing():
        raise ModelError("not on this machine. Install it with: ...")

    monkeypatch.setattr(load, "find_minilm", missing)
    document = json.loads(run("doctor", "--json").out)
    assert document["model"]["genuine"] is False and "Install it" in document["model"]["verdict"]


def test_a_forged_model_is_told(run, monkeypatch, tmp_path: Path):
    package = tmp_path / "forged_minilm"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "model" / "model.safetensors").write_bytes(b"forged")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(load, "_BUILTIN_PACKAGE", package.name)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    ran = run("doctor")
    assert ran.code == 0 and "is not the published all-MiniLM-L6-v2" in ran.out


def test_every_extra_of_the_installed_package_is_explained():
    extras = importlib.metadata.metadata("twinpass").get_all("Provides-Extra")
    assert extras and {*extras} <= {*checkup.ENABLES}
    assert set(checkup.extras()) <= {*checkup.ENABLES} and all(checkup.ENABLES.values())


def test_no_extra_is_promised_that_the_project_does_not_have():
    tomllib = pytest.importorskip("tomllib", reason="reading pyproject.toml needs Python 3.11")
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    assert {*checkup.ENABLES} == {*project["project"]["optional-dependencies"]}


def test_a_runtime_that_cannot_run_the_model_is_told_not_raised(run, model, monkeypatch, tmp_path):
    def refuse(self, precision):
        raise ModelError(f"{precision} is too far")

    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(load, "find_minilm", lambda: Path(model))
    monkeypatch.setattr(checkup, "installed", lambda name: "1.0")
    monkeypatch.setattr("twinpass.encoder.runtime.choose.Source.export", refuse)
    monkeypatch.setattr("twinpass.encoder.export.measure_rates", lambda encoders, texts: dict.fromkeys(encoders, 50.0))
    for arguments in (["--measure"], []):
        ran = run("doctor", *arguments)
        assert ran.code == 0, ran.err
        assert "torch fp32: 50 sentences/s" in ran.out and "openvino int8: does not run here" in ran.out
        assert ("int8 is too far" in ran.err) == bool(arguments)


def test_a_cache_in_an_unknown_home_folder_is_a_mistake(run, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", "~nobody-here/hub")
    ran = run("doctor")
    assert ran.code == 2 and "no home folder '~nobody-here'" in ran.err
