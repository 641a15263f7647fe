"""`twinpass demo` at a small scale: one package's documentation, a tiny model, two steps."""

from __future__ import annotations

import json

import pytest

from twinpass.config import Run
from twinpass.encoder.encoder import Encoder
from twinpass.text.corpus import open_corpus
from twinpass.text.docs.prose import sentences
from twinpass.workflows.demo import Demo, demo
from twinpass.workflows.dev import open_dev, rows_to_learn_from, split_documentation


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
    found = Demo(tmp_path, protocol="R@1 x 100", scores=document["scores"], answers=document["answers"])
    assert "trained on single sentences" in repr(found) and "query: wait until another thread" in repr(found)
    assert found._repr_html_().count("<table>") == 4 and found.records()[1]["model"] == "trained on pairs"
    again = run("demo", "-m", model, "-o", tmp_path / "demo", *size, "--device", "cpu", "--quiet")
    assert again.code == 0
    assert "trained on pairs" in again.out and "R@1" in again.out and "query:" in again.out


def test_the_demo_encodes_no_text_twice_with_one_model(model, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "cache"))
    encode, seen = Encoder.encode, []

    def encode_and_note(self, texts, **options):
        seen.append((self.fingerprint, [*texts]))
        return encode(self, texts, **options)

    monkeypatch.setattr(Encoder, "encode", encode_and_note)
    result = demo(tmp_path / "demo", packages="typer,rich,click", model=model, steps=1, batch_size=4, device="cpu")
    texts = [(fingerprint, text) for fingerprint, several in seen for text in {*several}]
    assert len({*texts}) == len(texts)
    monkeypatch.undo()
    learned = Encoder.load(tmp_path / "demo" / "pairs", device="cpu")
    for answer in result.answers:  # vectors kept from the evaluation are those of the model that is left
        for near in answer["pairs"]:
            cosine = float(learned.similarity(answer["query"], near["text"]))
            assert cosine == pytest.approx(near["cosine"], abs=1e-4)


def test_what_is_held_out_is_never_trained_on(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "cache"))
    pairs, held_out = split_documentation("docs-pairs:rich,click,typer")
    assert held_out and len(pairs) > 3 * len(held_out)
    assert not {text for pair in pairs for text in pair} & {text for pair in held_out for text in pair}
    assert split_documentation("docs-pairs:rich,click,typer") == (pairs, held_out)


@pytest.mark.parametrize("data", ["docs:rich,click", "docs-pairs:rich,click"])
@pytest.mark.parametrize("dev", ["docs:rich,click,typer", "docs-pairs:rich,click", "docs:rich"])
def test_no_sentence_of_the_dev_set_is_learned_from(tmp_path, monkeypatch, data: str, dev: str) -> None:
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "cache"))
    rows = rows_to_learn_from(data, dev=dev)
    everything = [row.texts for row in open_corpus(data)]
    assert rows and set(rows) < set(everything)
    asked = {text for pair in open_dev(dev).pairs for text in pair}
    asked |= {sentence for text in asked for sentence in sentences(text)}
    assert not asked & {text for row in rows for text in row}
    assert any(asked & set(row) for row in everything)


def test_only_the_built_in_corpus_is_held_out_from() -> None:
    assert rows_to_learn_from("docs:rich", dev=None) is None
    assert rows_to_learn_from("docs:rich", dev="pairs.csv") is None
    assert rows_to_learn_from("news.txt", dev="docs:") is None


@pytest.mark.parametrize("name", ["pairs/model.safetensors", "dropout/run.json", "dropout", "report.html"])
def test_demo_overwrites_nothing_but_a_demo(run, tmp_path, name: str) -> None:
    there = tmp_path / "demo" / name
    there.parent.mkdir(parents=True)
    there.write_text(Run(data="docs-pairs:", output=str(there.parent)).to_json())
    done = run("demo", "-o", tmp_path / "demo")
    assert done.code == 2 and done.err.count("\n") == 1
    assert "is already there and no demo wrote it" in done.err and "--output" in done.err
    assert Run.read(there).data == "docs-pairs:" and len([*(tmp_path / "demo").rglob("*")]) <= 2


def test_a_run_that_cannot_be_read_is_no_demo(run, tmp_path) -> None:
    (tmp_path / "demo" / "pairs").mkdir(parents=True)
    (tmp_path / "demo" / "pairs" / "run.json").write_bytes(b"\xff\xfe")
    done = run("demo", "-o", tmp_path / "demo")
    assert done.code == 2 and "no demo wrote it" in done.err
