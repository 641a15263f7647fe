"""Masked-language-model pretraining: its loss, the model it leaves, and a start from nothing."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.training.tiny_runs import build, make_documents, make_sentences
from transformers import AutoModelForMaskedLM

from twinpass.config import Run, new_model
from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError
from twinpass.files import sha256
from twinpass.training.loop import train
from twinpass.training.methods.mlm import IGNORED

NEW = "new:layers=2,width=32,vocabulary=300"


def make_run(model: Path | str, output: Path, **fields: Any) -> Run:
    short = {"steps": 3, "batch_size": 8, "learning_rate": 1e-3, "device": "cpu", "seed": 1}
    return Run(**({"method": "mlm", "model": str(model), "output": str(output)} | short | fields))


def naive_loss(model: Any, sentences: list[Any]) -> float:
    """The mean negative log-probability of the original token at every masked place, one sentence at a time."""
    total, count = 0.0, 0
    for ids, labels in sentences:
        logits = model(torch.tensor([ids.tolist()])).logits[0].double()
        for place, label in enumerate(labels.tolist()):
            if label != IGNORED:
                shares = [math.exp(score) for score in logits[place].tolist()]
                total -= math.log(shares[label] / sum(shares))
                count += 1
    return total / count


def test_the_loss_is_that_of_the_masked_tokens(masked: Path, tmp_path: Path) -> None:
    method: Any = build(make_run(masked, tmp_path, dropout=0.0), make_sentences(12))
    examples, seen = np.array([3, 0, 7, 5]), []
    corrupt = method.mlm.corrupt
    method.mlm.corrupt = lambda ids, random: seen.append(corrupt(ids, random)) or seen[-1]
    outcome = method.backward(4, examples)
    with method.mlm.whole() as whole, torch.no_grad():
        assert outcome.loss == pytest.approx(naive_loss(whole, seen), rel=1e-4)
    assert outcome.texts == 4 and outcome.mlm_loss == outcome.loss
    again: list[Any] = []
    method.mlm.corrupt = lambda ids, random: again.append(corrupt(ids, random)) or again[-1]
    method.backward(5, examples)
    assert any((one.ids != other.ids).any() for one, other in zip(seen, again, strict=True)), "masked anew"


def test_the_model_is_kept_with_its_head(masked: Path, tmp_path: Path) -> None:
    result = train(make_run(masked, tmp_path / "out"), rows=make_sentences(24))
    start, trained = (AutoModelForMaskedLM.from_pretrained(folder) for folder in (masked, result.output))
    assert not torch.equal(start.cls.predictions.transform.dense.weight, trained.cls.predictions.transform.dense.weight)
    encoder = Encoder.load(result.output)
    states = trained.bert.state_dict()
    own = encoder.model.transformer.state_dict()
    assert all(torch.equal(states[name], own[name]) for name in states)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no new head is made up
        after = Run(model=str(result.output), output=str(tmp_path / "simcse"), steps=2, batch_size=4, mlm_weight=0.1)
        assert train(after, rows=make_sentences(8)).finished


def test_the_best_model_keeps_its_head_too(masked: Path, tmp_path: Path) -> None:
    scores = iter([0.0, 3.0, 2.0, 1.0])
    run = make_run(masked, tmp_path / "out", eval_every=1)
    result = train(run, rows=make_sentences(24), evaluate=lambda encode: next(scores))
    assert result.best_step == 1
    last = train(make_run(masked, tmp_path / "last"), rows=make_sentences(24))
    start, best, after = (
        AutoModelForMaskedLM.from_pretrained(folder).cls.predictions.bias
        for folder in (masked, result.output, last.output)
    )
    assert not torch.equal(best, start) and not torch.equal(best, after)


def test_an_encoder_from_nothing(tmp_path: Path) -> None:
    rows = make_documents(10)
    one, two = (train(make_run(NEW, tmp_path / name), rows=rows) for name in ("one", "two"))
    assert sha256(one.output / "model.safetensors") == sha256(two.output / "model.safetensors")
    assert sha256(one.output / "tokenizer.json") == sha256(two.output / "tokenizer.json")
    encoder = Encoder.load(one.output)
    config = encoder.model.transformer.config
    assert (config.num_hidden_layers, config.hidden_size, encoder.pooler) == (2, 32, "avg")
    assert 261 < config.vocab_size <= 300 and config.vocab_size == len(encoder.tokenizer)
    assert encoder.encode(rows[:3]).shape == (3, 32)
    assert Run.read(one.output / "run.json").model == NEW and not (one.output / "start").exists()


def test_a_start_from_nothing_that_fails_leaves_no_encoder(tmp_path: Path, monkeypatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ConfigError("it cannot be loaded.")

    monkeypatch.setattr("twinpass.training.methods.pretraining.load_mlm", fail)
    (tmp_path / "out").mkdir()
    with pytest.raises(ConfigError, match="cannot be loaded"):
        train(make_run(NEW, tmp_path / "out"), rows=make_documents(10))
    assert not (tmp_path / "out" / "start").exists()


def test_a_stopped_start_from_nothing_ends_the_same(tmp_path: Path) -> None:
    rows = make_documents(10)
    whole = train(make_run(NEW, tmp_path / "whole", steps=4, save_every=2), rows=rows)
    run = make_run(NEW, tmp_path / "stopped", steps=4, save_every=2)

    def stop(event: Any) -> None:
        if getattr(event, "event", type(event).__name__) == "Saved" and event.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(run, rows=rows, on_event=stop)
    resumed = train(run, rows=rows, resume=True)
    assert sha256(whole.output / "model.safetensors") == sha256(resumed.output / "model.safetensors")


@pytest.mark.parametrize("name", ["new:layers=0", "new:depth=3", "new:layers=x", "new:width=200"])
def test_sizes_that_cannot_be_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="new:"):
        make_run(name, tmp_path).check()


def test_sizes_have_defaults_and_only_mlm_starts_from_nothing(tmp_path: Path) -> None:
    assert new_model("new:") == {"layers": 6, "width": 256, "vocabulary": 8_000}
    with pytest.raises(ConfigError, match="pretrain it with the method mlm"):
        Run(model="new:", output=str(tmp_path)).check()
