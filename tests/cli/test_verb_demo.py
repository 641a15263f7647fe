"""`twinpass demo` at a small scale: one package's documentation, a tiny model, two steps."""

from __future__ import annotations

import json

from twinpass.cli.dev import split_documentation
from twinpass.encoder.encoder import Encoder


def test_demo_measures_trains_and_answers(run, model, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "cache"))
    size = ("--packages", "typer,rich,safetensors,click,tokenizers", "--steps", 2, "--batch-size", 4)
    done = run("demo", "-m", model, "-o", tmp_path / "demo", *size, "--device", "cpu", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert set(document["scores"]) == {"base", "pairs", "dropout"}
    assert document["scores"]["pairs"] != document["scores"]["base"] != document["scores"]["dropout"]
    assert [len(answer["pairs"]) for answer in document["answers"]] == [3, 3, 3]
    assert Encoder.load(tmp_path / "demo" / "dropout", device="cpu").dimensions == 32
    again = run("demo", "-m", model, "-o", tmp_path / "demo", *size, "--device", "cpu", "--quiet")
    assert again.code == 0
    assert "trained on pairs" in again.out and "R@1" in again.out and "query:" in again.out


def test_what_is_held_out_is_never_trained_on(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "cache"))
    pairs, held_out = split_documentation("docs-pairs:rich,click,typer")
    assert held_out and len(pairs) > 3 * len(held_out)
    assert not {text for pair in pairs for text in pair} & {text for pair in held_out for text in pair}
    assert split_documentation("docs-pairs:rich,click,typer") == (pairs, held_out)
