"""Distillation into fewer layers: the losses, the layers that are kept, and the teacher's vectors."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny import FAMILIES, make_checkpoint
from tests.training.tiny_runs import build, gradient_of, make_sentences, naive_match, run_for

from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError, ModelError
from twinpass.files import sha256
from twinpass.log import Stepped
from twinpass.training.loop import train
from twinpass.training.methods.distill import choose_layers, match_cosines, match_vectors, with_layers

TEXTS = make_sentences(24)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_losses_are_their_formulas() -> None:
    student, teacher = normal(5, 4), normal(5, 4, seed=1)
    assert float(match_cosines(student, teacher)) == pytest.approx(naive_match(student, teacher, "cosines"))
    assert float(match_vectors(student, teacher)) == pytest.approx(naive_match(student, teacher, "vectors"))
    assert float(match_cosines(3 * teacher, teacher)) == pytest.approx(0, abs=1e-12)
    assert float(match_cosines(student[:1], teacher[:1])) == 0
    for loss in (match_cosines, match_vectors):
        assert torch.autograd.gradcheck(lambda given, loss=loss: loss(given, teacher), student.requires_grad_())


@pytest.mark.parametrize(
    ("depth", "count", "chosen"),
    [(6, 3, [0, 2, 5]), (12, 3, [0, 5, 11]), (12, 4, [0, 3, 7, 11]), (3, 2, [0, 2]), (6, 1, [0]), (12, 6, None)],
)
def test_layers_are_spread_from_the_first_to_the_last(depth: int, count: int, chosen: list[int] | None) -> None:
    found = choose_layers(depth, count)
    assert found == sorted(set(found)) and len(found) == count and found[0] == 0
    assert chosen is None or found == chosen


@pytest.mark.parametrize("family", FAMILIES)
def test_a_student_of_every_family_is_saved_and_loads(family: str, tmp_path: Path) -> None:
    teacher = Encoder.load(make_checkpoint(tmp_path / "teacher", family), pooler="avg", device="cpu")
    before = teacher.encode(TEXTS)
    if family == "albert":
        with pytest.raises(ModelError, match="albert model has no list of 3 layers"):
            with_layers(teacher, 2)
        return
    student = with_layers(teacher, 2)
    student.save(tmp_path / "student")
    again = Encoder.load(tmp_path / "student", device="cpu")
    assert again.model.transformer.config.num_hidden_layers == 2
    np.testing.assert_allclose(again.encode(TEXTS), student.encode(TEXTS), atol=1e-6)
    assert np.abs(student.encode(TEXTS) - before).max() > 1e-3
    np.testing.assert_array_equal(teacher.encode(TEXTS), before)  # it keeps all of its layers


def test_the_student_starts_as_the_layers_of_its_teacher(models: dict[str, Path], tmp_path: Path) -> None:
    method: Any = build(run_for("distill", models, tmp_path), TEXTS)
    teacher, student = (dict(each.model.named_parameters()) for each in (method.targets.teacher, method.student))
    for name, weight in student.items():
        source = name.replace(".layer.1.", ".layer.2.")
        assert torch.equal(weight, teacher[source]), name
    assert len(student) < len(teacher)


@pytest.mark.parametrize("match", ["cosines", "vectors"])
def test_a_batchs_loss_is_that_of_its_vectors(match: str, models: dict[str, Path], tmp_path: Path) -> None:
    method: Any = build(run_for("distill", models, tmp_path, match=match), TEXTS)
    chosen = np.arange(3, 9)
    texts = [TEXTS[place] for place in chosen]
    vectors = [torch.from_numpy(each.encode(texts)) for each in (method.student, method.targets.teacher)]
    assert method.backward(0, chosen).loss == pytest.approx(naive_match(*vectors, match), rel=1e-4)
    assert all(parameter.grad is None for parameter in method.targets.teacher.model.parameters())


def test_the_teacher_encodes_no_text_twice(models: dict[str, Path], tmp_path: Path) -> None:
    rows = TEXTS + TEXTS[:4]
    once: Any = build(run_for("distill", models, tmp_path, steps=1), TEXTS)
    often: Any = build(run_for("distill", models, tmp_path, steps=9), rows)
    assert once.targets._table is None and often.targets._table.shape == (24, 32)
    texts = np.array([0, 24, 7, 0])
    np.testing.assert_allclose(
        often.targets.of(texts), once.targets.teacher.encode([rows[t] for t in texts]), atol=1e-6
    )
    assert np.array_equal(often.targets.of(texts)[0], often.targets.of(texts)[1])


def test_chunks_give_the_same_gradient(models: dict[str, Path], tmp_path: Path) -> None:
    batch = list(range(12))
    whole = gradient_of(run_for("distill", models, tmp_path / "a"), TEXTS, batch)
    chunked = gradient_of(run_for("distill", models, tmp_path / "b", chunk_tokens=20), TEXTS, batch)
    assert chunked[0] == pytest.approx(whole[0], rel=1e-5)
    for name, gradient in whole[1].items():
        np.testing.assert_allclose(chunked[1][name], gradient, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("steps", [2, 6])  # without and with a table of the teacher's vectors
def test_a_run_that_was_stopped_ends_bit_identical(steps: int, models: dict[str, Path], tmp_path: Path) -> None:
    def stop(event: Any) -> None:
        if isinstance(event, Stepped) and event.step == 1:
            signal.raise_signal(signal.SIGINT)

    fields: dict[str, Any] = {"steps": steps, "batch_size": 8, "match": "vectors"}
    whole = train(run_for("distill", models, tmp_path / "whole", **fields), rows=TEXTS)
    run = run_for("distill", models, tmp_path / "stopped", **fields)
    assert train(run, rows=TEXTS, on_event=stop).reason == "interrupted"
    other = make_checkpoint(tmp_path / "other", seed=9)
    with pytest.raises(ConfigError, match="is not the teacher that this run began with"):
        train(run.replace(model=str(other)), rows=TEXTS, resume=True)
    resumed = train(run, rows=TEXTS, resume=True)
    assert resumed.loss == whole.loss
    assert sha256(resumed.output / "model.safetensors") == sha256(whole.output / "model.safetensors")


@pytest.mark.parametrize("layers", [3, 9])
def test_more_layers_than_the_teacher_has_are_refused(layers: int, models: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"has 3 layers, so a student has 1 to 2; got layers = {layers}"):
        train(run_for("distill", models, tmp_path / "out", layers=layers), rows=TEXTS)
    assert not (tmp_path / "out").exists()


def test_options_of_dropout_are_not_used(models: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="distill does not use dropout"):
        run_for("distill", models, tmp_path, dropout=0.1).check()
