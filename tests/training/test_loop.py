"""Training from start to finish, on a tiny model."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.training.tiny_runs import make_sentences, make_triplets, spread

from twinpass.config import Run
from twinpass.encoder.encoder import Encoder
from twinpass.equations import uniformity
from twinpass.errors import ConfigError, InputError, MissingExtra, OutputError, TrainingError
from twinpass.files import sha256
from twinpass.log import Evaluated, Started, Stepped
from twinpass.training.loop import train
from twinpass.training.method import Method


def weights(folder: str | Path) -> str:
    return sha256(Path(folder) / "model.safetensors")


def test_unsupervised_training_spreads_sentences_out(make_run, tiny) -> None:
    sentences = make_sentences(40)
    run = make_run(steps=30, batch_size=20)
    events = []
    result = train(run, rows=sentences, on_event=events.append)
    assert isinstance(events[0], Started) and events[0].view == "dropout" and events[0].pooler == "cls_mlp_train"
    losses = [event.loss for event in events if isinstance(event, Stepped)]
    assert len(losses) == 30 and np.mean(losses[-5:]) < np.mean(losses[:5])
    before = Encoder.load(tiny, pooler="cls").encode(sentences)
    after = Encoder.load(result.output).encode(sentences)
    assert uniformity(torch.from_numpy(after)) < uniformity(torch.from_numpy(before))


def test_supervised_training_learns_its_triplets(make_run) -> None:
    events = []
    train(make_run(steps=40, batch_size=10, dropout=0.0), rows=make_triplets(10), on_event=events.append)
    losses = [event.loss for event in events if isinstance(event, Stepped)]
    assert losses[-1] < 0.3 * losses[0]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"chunk_tokens": 30},
        {"share_dropout_mask": True},
        {"dual_encoder": True, "pooler": "cls_mlp"},
        {"mlm_weight": 0.1},
        {"similarity": "dot", "pooler": "avg"},
        {"grad_checkpointing": True},
        pytest.param({"precision": "bf16"}, marks=pytest.mark.bf16),
        {"warmup": 0.5, "weight_decay": 0.01, "dropout": 0.3},
    ],
    ids=lambda fields: "-".join(fields) or "plain",
)
@pytest.mark.filterwarnings("ignore:.*no masked-language-model head")
def test_the_same_seed_gives_the_same_weight_file(make_run, tmp_path, fields) -> None:
    kinds = []
    for name, seed in (("one", 1), ("two", 1), ("other", 2)):
        run = make_run(output=str(tmp_path / name), seed=seed, steps=2, **fields)
        train(run, rows=make_sentences(20))
        kinds.append(weights(run.output))
    assert kinds[0] == kinds[1] != kinds[2]


def test_chunks_change_nothing_but_memory(make_run, tmp_path) -> None:
    vectors = []
    for chunk_tokens in (None, 25):
        run = make_run(output=str(tmp_path / str(chunk_tokens)), chunk_tokens=chunk_tokens, dropout=0.0)
        train(run, rows=make_triplets(16))
        vectors.append(Encoder.load(run.output).encode(["the cat sat", "a dog"]))
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-4)


def test_the_best_by_dev_is_kept_and_the_log_tells_all(make_run) -> None:
    scores = iter([0.1, 0.5, 0.9, 0.3])
    kept = {}

    def evaluate(encode) -> float:
        score = next(scores)
        kept[score] = encode(["the cat sat on the mat"])
        return score

    evaluate.protocol = "made up for this test"
    run = make_run(steps=6, eval_every=2, keep_checkpoints=1)
    result = train(run, rows=make_sentences(20), evaluate=evaluate)
    assert (result.before, result.best, result.last) == ({"score": 0.1}, {"score": 0.9}, {"score": 0.3})
    assert result.best_step == 4
    found = Encoder.load(result.output).encode(["the cat sat on the mat"])
    np.testing.assert_array_equal(found, kept[0.9])
    assert sorted(path.name for path in (result.output / "checkpoints").iterdir()) == ["best-00000004", "step-00000006"]

    lines = [json.loads(line) for line in (result.output / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["event"] == "stepped"] == [1, 2, 3, 4, 5, 6]
    assert [line["step"] for line in lines if line["event"] == "evaluated"] == [0, 2, 4, 6]
    card = (result.output / "README.md").read_text()
    assert "| 0.900 |" in card and "made up for this test" in card and "the data in memory" in card
    for folder in (result.output, result.output / "checkpoints/step-00000006"):
        assert Run.read(folder / "run.json").check().view == "dropout"


def test_patience_stops_early(make_run) -> None:
    scores = iter([0.0, 0.9, 0.8, 0.7, 0.6])
    run = make_run(steps=20, eval_every=1, patience=2)
    result = train(run, rows=make_sentences(20), evaluate=lambda _: next(scores))
    assert (result.reason, result.steps, result.best_step) == ("early stop", 3, 1)


def test_an_evaluation_does_not_touch_the_training(make_run, tmp_path) -> None:
    evaluated = make_run(output=str(tmp_path / "with"), eval_every=1, keep_checkpoints=1)
    train(evaluated, rows=make_sentences(20), evaluate=spread)
    train(make_run(output=str(tmp_path / "without")), rows=make_sentences(20))
    last = tmp_path / "with/checkpoints/step-00000004"
    assert weights(last) == weights(tmp_path / "without")


def test_the_rate_falls_linearly_to_zero() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=9.0)

    def rates(run: Run) -> list[float]:
        found = []
        for step in range(4):
            Method.set_rate(SimpleNamespace(run=run), optimizer, step, 4)
            found.append(optimizer.param_groups[0]["lr"])
        return found

    assert rates(Run(learning_rate=1.0)) == [1.0, 0.75, 0.5, 0.25]
    assert rates(Run(learning_rate=1.0, warmup=0.5)) == pytest.approx([1 / 3, 2 / 3, 1.0, 0.5])


def test_a_corpus_file_and_a_batch_larger_than_it(make_run, tmp_path) -> None:
    corpus = tmp_path / "five.txt"
    corpus.write_text("\n".join(make_sentences(5)))
    events = []
    result = train(make_run(data=str(corpus), batch_size=64, steps=None, epochs=3), on_event=events.append)
    assert result.steps == 3
    assert events[0].batch_size == 5 and "larger than the data" in events[0].notes[0]
    assert {event.negatives for event in events if isinstance(event, Stepped)} == {4.0}


def test_a_corpus_of_single_words(make_run) -> None:
    assert train(make_run(), rows=["cat", "dog", "the", "a", "of"]).finished


def test_a_corpus_of_one_row_is_refused_with_its_name(make_run, tmp_path) -> None:
    (tmp_path / "one.txt").write_text("cat\n")
    with pytest.raises(InputError, match=r"one\.txt has one row"):
        train(make_run(data=str(tmp_path / "one.txt")))


def test_duplicates_are_masked_and_counted(make_run, tmp_path) -> None:
    rows = ["the cat", "the cat", "a dog", "the mat"]
    events = []
    assert train(make_run(steps=1), rows=rows, on_event=events.append).masked == 2
    assert next(event for event in events if isinstance(event, Stepped)).negatives == 2.5
    kept = make_run(steps=1, keep_duplicates=True, output=str(tmp_path / "kept"))
    assert train(kept, rows=rows).masked == 0


def test_a_loss_that_is_no_number_stops_with_the_texts(make_run, tiny, tmp_path) -> None:
    """The embedding of one word is made infinite once a checkpoint stands; only rows with it are to blame."""
    encoder = Encoder.load(tiny, pooler="cls", device="cpu")
    sentences = [sentence.replace("oil", "see") for sentence in make_sentences(15)] + ["they find oil"]
    (tmp_path / "text.txt").write_text("\n".join(sentences))

    def poison(event) -> None:
        if isinstance(event, Stepped) and event.step == 2:
            place = encoder.tokenize(["oil"])[0][1]
            with torch.no_grad():
                encoder.model.transformer.get_input_embeddings().weight[place] = math.inf

    run = make_run(data=str(tmp_path / "text.txt"), batch_size=16, steps=5, save_every=2)
    with pytest.raises(TrainingError) as stopped:
        train(run, encoder=encoder, on_event=poison)
    message = str(stopped.value)
    assert "the loss is nan at step 3, on 1 of 16 rows" in message
    assert "text.txt:16: they find oil" in message
    assert "checkpoints/step-00000002" in message


def test_a_used_folder_is_guarded(make_run) -> None:
    run = make_run(steps=1)
    train(run, rows=make_sentences(9))
    with pytest.raises(OutputError, match="already holds a model"):
        train(run, rows=make_sentences(9))
    assert train(run, rows=make_sentences(9), overwrite=True).finished


@pytest.mark.parametrize(
    ("fields", "rows", "says"),
    [
        ({"view": "triplets"}, [("a", "b"), ("c", "d")], "triplets view takes 3"),
        ({"share_dropout_mask": True}, [("a", "b"), ("c", "d")], "needs the dropout view"),
        ({"hard_negative_weight": 2.0}, ["a", "b"], "needs hard negatives"),
        ({"batch_size": 1}, ["a", "b"], "2 or more"),
        ({"data": "", "steps": 1}, None, "needs training text"),
        ({"output": ""}, ["a", "b"], "needs an output folder"),
        ({"precision": "fp16"}, ["a", "b"], "fp16 needs a GPU"),
        ({"pooler": "cls_mpl"}, ["a", "b"], "Did you mean 'cls_mlp'"),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_step(make_run, fields, rows, says) -> None:
    with pytest.raises((ConfigError, InputError), match=says):
        train(make_run(**fields), rows=rows)


def test_an_evaluation_must_return_a_score(make_run) -> None:
    with pytest.raises(ConfigError, match="a dict with a 'score'"):
        train(make_run(), rows=make_sentences(9), evaluate=lambda _: {"spearman": 1.0})


def test_scores_beside_the_score_are_told(make_run) -> None:
    events = []
    train(make_run(), rows=make_sentences(9), evaluate=spread, on_event=events.append)
    evaluated = [event for event in events if isinstance(event, Evaluated)]
    assert [event.step for event in evaluated] == [0, 4]
    assert evaluated[0].scores["vectors"] == 6


def test_the_models_own_pooler_is_kept(make_run, tiny, tmp_path) -> None:
    Encoder.load(tiny, pooler="avg").save(tmp_path / "averaging")
    result = train(make_run(model=str(tmp_path / "averaging")), rows=make_sentences(9))
    assert Encoder.load(result.output).pooler == "avg"


def test_tensorboard_that_is_not_there_is_missed_before_the_first_step(make_run, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtra, match=r"twinpass\[tensorboard\]"):
        train(make_run(tensorboard=True), rows=make_sentences(9))


def test_a_score_that_is_no_number_is_never_the_best(make_run) -> None:
    scores = iter([0.5, 0.2, math.nan])
    result = train(make_run(eval_every=2), rows=make_sentences(20), evaluate=lambda _: next(scores))
    assert result.best_step == 2
    lines = [json.loads(line) for line in (result.output / "log.jsonl").read_text().splitlines()]
    assert [line["score"] for line in lines if line["event"] == "evaluated"] == [0.5, 0.2, None]


@pytest.mark.parametrize(("chunk", "advice"), [(None, 4096), (600, 300)])
def test_a_batch_too_big_for_the_memory_is_explained(tiny, tmp_path, monkeypatch, chunk, advice) -> None:
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    monkeypatch.setattr("twinpass.training.loop.compute_gradient", full)
    run = Run(model=str(tiny), output=str(tmp_path / "out"), steps=2, batch_size=4, chunk_tokens=chunk)
    with pytest.raises(TrainingError, match=rf"ran out at step 1, with a batch of 4 .* chunk_tokens {advice}:"):
        train(run, rows=["a b", "b c", "c d", "d e"])
    monkeypatch.setattr(
        "twinpass.training.loop.compute_gradient", lambda *_: (_ for _ in ()).throw(RuntimeError("else"))
    )
    with pytest.raises(RuntimeError, match="else"):
        train(run, rows=["a b", "b c", "c d", "d e"], overwrite=True)
