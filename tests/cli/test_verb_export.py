"""`twinpass export`: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path


def test_it_prints_what_it_wrote(run, model: str, tmp_path: Path):
    ran = run("export", model, "-o", tmp_path / "out", "--json")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["model"]["name"] == model and document["apart"] == 0 and "model.safetensors" in document["files"]
    assert "model.safetensors" in run("export", model, "-o", tmp_path / "out", "--overwrite").out


def test_what_is_missing_is_an_error_in_one_line(run, model: str, tmp_path: Path):
    ran = run("export", model)
    assert (ran.code, ran.out) == (2, "") and "expected a folder (--output) or a name on the hub" in ran.err


def test_without_a_network_the_hub_is_an_error_and_the_folder_is_kept(run, model: str, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    ran = run("export", model, "-o", tmp_path / "out", "--to-hub", "me/x", "-q")
    assert ran.code == 2 and ran.err.count("\n") == 1, ran.err
    assert "me/x could not be uploaded to the hub" in ran.err and "offline" in ran.err.lower()
    assert f"The folder {tmp_path / 'out'} is complete" in ran.err
    assert (tmp_path / "out" / "model.safetensors").is_file()
