"""Matryoshka: the loss against naive loops, every view, chunks, exact resume, what the folder keeps."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.training.tiny_runs import gradient_of, make_sentences, make_triplets

from twinpass import equations
from twinpass.config import Run
from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError
from twinpass.files import sha256
from twinpass.log import Stepped
from twinpass.training.loop import train
from twinpass.training.matryoshka import over_prefixes, sizes_of
from twinpass.training.objectives import Lesson

SIZES = "32,16,8"


def naive(h: np.ndarray, h_pos: np.ndarray, sizes: tuple[int, ...], tau: float) -> float:
    """The mean over sizes of Eq. 1 on the first numbers of each vector, number by number."""
    total = 0.0
    for size in sizes:
        for i in range(len(h)):
            exps = []
            for j in range(len(h)):
                dot = sum(h[i][k] * h_pos[j][k] for k in range(size))
                lengths = [math.sqrt(sum(row[k] ** 2 for k in range(size))) for row in (h[i], h_pos[j])]
                exps.append(math.exp(dot / lengths[0] / lengths[1] / tau))
            total += -math.log(exps[i] / sum(exps)) / len(h)
    return total / len(sizes)


def test_the_loss_is_the_mean_over_the_first_numbers_of_each_vector() -> None:
    vectors = torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def learn(passes: list[torch.Tensor]) -> Lesson:
        return Lesson(equations.info_nce(*passes, temperature=0.2), negatives=4.0)

    found = over_prefixes(learn, [*vectors], (12, 7, 3))
    assert found.loss.item() == pytest.approx(naive(*vectors.numpy(), (12, 7, 3), 0.2), rel=1e-12)
    assert found.negatives == 4.0
    assert torch.equal(over_prefixes(learn, [*vectors], ()).loss, learn([*vectors]).loss)


def test_gradients_agree_with_finite_differences() -> None:
    vectors = torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)

    def loss(vectors: torch.Tensor) -> torch.Tensor:
        return over_prefixes(
            lambda part: Lesson(equations.info_nce(*part, temperature=0.5), 2.0), [*vectors], (6, 2)
        ).loss

    assert torch.autograd.gradcheck(loss, (vectors,))


def test_the_whole_vector_is_always_one_of_the_sizes() -> None:
    assert sizes_of(Run(matryoshka="8, 16,8"), 32) == (32, 16, 8)
    assert sizes_of(Run(matryoshka="32,8"), 32) == (32, 8)
    assert sizes_of(Run(), 32) == ()


@pytest.mark.parametrize(
    ("rows", "fields"),
    [
        (make_sentences(9), {}),
        (make_sentences(9), {"share_dropout_mask": True}),
        ([row[:2] for row in make_triplets(9)], {"similarity": "dot"}),
        (make_triplets(9), {"hard_negative_weight": 2.0}),
        (make_triplets(9), {"dual_encoder": True}),
        ([(*row, text) for row, text in zip(make_triplets(9), make_sentences(9, seed=4), strict=True)], {}),
        ([(text, "ab"[place % 2]) for place, text in enumerate(make_sentences(9))], {"label": "1"}),
        ([(*row[:2], place) for place, row in enumerate(make_triplets(9))], {"score": "2"}),
    ],
    ids=["dropout", "shared", "pairs", "triplets", "dual", "several", "classes", "scores"],
)
def test_every_view_trains_prefixes_and_chunks_give_the_same_gradient(make_run, rows, fields) -> None:
    batch = [3, 1, 4, 0, 5, 8, 2]
    loss, gradients = gradient_of(make_run(dropout=0.0, clip=1e9, matryoshka=SIZES, **fields), rows, batch)
    alone, _ = gradient_of(make_run(dropout=0.0, clip=1e9, **fields), rows, batch)
    chunked = make_run(dropout=0.0, clip=1e9, matryoshka=SIZES, chunk_tokens=30, **fields)
    chunked_loss, chunked_gradients = gradient_of(chunked, rows, batch)
    assert loss != alone and chunked_loss == pytest.approx(loss, rel=1e-4)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(
            chunked_gradients[name], gradient, rtol=1e-4, atol=5e-5 * max(1.0, np.abs(gradient).max())
        )


def test_an_interrupted_run_ends_bit_identical_and_the_folder_knows_its_sizes(make_run, tmp_path: Path) -> None:
    rows, steps = make_sentences(30), {"steps": 5, "save_every": 2, "matryoshka": "16,8"}
    whole = train(make_run(output=str(tmp_path / "whole"), **steps), rows=rows)
    run = make_run(output=str(tmp_path / "stopped"), **steps)

    def stop(event: object) -> None:
        if isinstance(event, Stepped) and event.step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    assert not train(run, rows=rows, on_event=stop).finished
    resumed = train(run, rows=rows, resume=True)
    assert resumed.finished and resumed.loss == whole.loss
    assert sha256(resumed.output / "model.safetensors") == sha256(whole.output / "model.safetensors")
    assert Encoder.load(resumed.output, device="cpu").settings.matryoshka == (32, 16, 8)
    again = make_run(model=str(resumed.output), pooler=None, output=str(tmp_path / "again"), steps=1)
    train(again, rows=rows)  # trained further without them: shorter vectors are no longer promised
    assert Encoder.load(tmp_path / "again", device="cpu").settings.matryoshka == ()


def test_sizes_that_cannot_be_are_refused(make_run) -> None:
    for sizes in ("", "16,x", "0", "-4", "1.5"):
        with pytest.raises(ConfigError, match="expected comma-separated sizes"):
            make_run(matryoshka=sizes).check()
    with pytest.raises(ConfigError, match="asks for 64 dimensions, and the model's vectors have 32"):
        train(make_run(matryoshka="64,8"), rows=make_sentences(9))
    with pytest.raises(ConfigError, match="ct does not use matryoshka"):
        Run(method="ct", matryoshka="8").check()
