"""Two processes with half a batch each give the gradient of one process with the whole batch."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from tests.training.tiny_runs import (
    AFTER_SIMCSE,
    gradient_in_process,
    gradient_of,
    make_sentences,
    make_triplets,
    rows_for,
    run_for,
    train_in_process,
)

from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError
from twinpass.training.loop import train
from twinpass.training.processes import Processes


def run_two(children, target, *arguments, after: tuple = ()) -> None:
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"{folder}/meeting"
        pair = [children.Process(target=target, args=(*arguments, rank, 2, meeting, *after)) for rank in range(2)]
        for child in pair:
            child.start()
        for child in pair:
            child.join(timeout=600)
    assert [child.exitcode for child in pair] == [0, 0]


@pytest.mark.parametrize(
    ("rows", "batch", "fields"),
    [
        (make_sentences(9), [3, 1, 4, 0, 5, 8, 2], {}),
        (make_triplets(9), [3, 1, 4, 0, 5, 8, 2], {"chunk_tokens": 30, "matryoshka": "16,8"}),
        (make_triplets(9), [6], {"hard_negative_weight": 2.0}),
    ],
    ids=["dropout", "triplets-chunked-matryoshka", "one-row"],
)
def test_the_gradient_of_two_processes_is_that_of_one(make_run, children, tmp_path: Path, rows, batch, fields) -> None:
    run = make_run(dropout=0.0, clip=1e9, **fields)
    loss, gradients = gradient_of(run, rows, batch)
    run_two(children, gradient_in_process, run, rows, batch, after=(str(tmp_path / "found.npz"),))
    found = np.load(tmp_path / "found.npz")
    assert float(found["loss"]) == pytest.approx(loss, rel=1e-4)
    assert max(np.abs(gradient).max() for gradient in gradients.values()) > 1e-4
    for name, gradient in gradients.items():
        # Sums in float32 come in another order; by how much that shows differs from processor to processor. A wrong
        # gradient is off by a factor.
        np.testing.assert_allclose(found[name], gradient, rtol=1e-4, atol=5e-5 * max(1.0, np.abs(gradient).max()))


def test_training_in_two_processes_with_ragged_batches(make_run, children, tmp_path) -> None:
    """11 rows in batches of 4 leave 3; one process trains the same way."""
    fields = {"dropout": 0.0, "batch_size": 4, "steps": 6, "eval_every": 3, "keep_checkpoints": 1}
    rows = make_sentences(11)
    two = make_run(output=str(tmp_path / "two"), **fields)
    run_two(children, train_in_process, two, rows)
    one = make_run(output=str(tmp_path / "one"), **fields)
    train(one, rows=rows)
    texts = make_sentences(5, seed=3)
    vectors = [Encoder.load(tmp_path / f"{name}/checkpoints/step-00000006").encode(texts) for name in ("one", "two")]
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-3)


@pytest.mark.filterwarnings("ignore:.*no masked-language-model head")
@pytest.mark.parametrize("name", ["ct", "sbert", "infersent", "declutr", "mlm", "distill", *AFTER_SIMCSE])
def test_other_methods_share_a_batch_too(models, children, tmp_path: Path, name: str) -> None:
    """Five examples over two processes: each takes its own, and the parts add up."""
    fields = {"clip": 1e9} | ({"dropout": 0.0} if name not in ("ct", "infersent", "distill") else {})
    run, batch = run_for(name, models, tmp_path / "out", **fields), [3, 1, 4, 0, 5]
    loss, gradients = gradient_of(run, rows_for(name), batch)
    run_two(children, gradient_in_process, run, rows_for(name), batch, after=(str(tmp_path / "found.npz"),))
    found = np.load(tmp_path / "found.npz")
    assert float(found["loss"]) == pytest.approx(loss, rel=1e-4)
    assert max(np.abs(gradient).max() for gradient in gradients.values()) > 1e-4
    for each, gradient in gradients.items():
        np.testing.assert_allclose(found[each], gradient, rtol=1e-4, atol=5e-5 * max(1.0, np.abs(gradient).max()))


def test_a_method_for_one_process_says_so(models, tmp_path: Path, monkeypatch) -> None:
    class Two(Processes):
        def __init__(self, accelerator) -> None:
            super().__init__(accelerator)
            self.count = 2

    monkeypatch.setattr("twinpass.training.setup.Processes", Two)
    with pytest.raises(ConfigError, match="is-bert trains in one process, and there are 2"):
        train(run_for("is-bert", models, tmp_path / "out"), rows=rows_for("is-bert"))
