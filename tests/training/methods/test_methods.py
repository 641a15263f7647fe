"""Every method computes its paper's loss, trains what it should, learns, and leaves a model that loads."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.training.tiny_runs import (
    AFTER_SIMCSE,
    NAMES,
    build,
    make_documents,
    make_labelled,
    make_sentences,
    naive_jensen_shannon,
    naive_nt_xent,
    naive_softmax,
    naive_tension,
    rows_for,
    run_for,
)

from twinpass.config import METHOD_DEFAULTS, Run
from twinpass.encoder.any_model import open_model
from twinpass.encoder.encoder import Encoder
from twinpass.encoder.model import Dense
from twinpass.errors import ConfigError, InputError, OutputError, TrainingError, UserError
from twinpass.files import sha256
from twinpass.log import Evaluated, Started, Stepped, Stopped
from twinpass.text.corpus import open_corpus
from twinpass.training.loop import train
from twinpass.training.methods import METHODS
from twinpass.training.methods.ct import tension
from twinpass.training.methods.declutr import Frame, draw_length, draw_spans, first_lines, group_lines, nt_xent
from twinpass.training.methods.isbert import Ngrams, jensen_shannon
from twinpass.training.methods.sbert import pair_features, softmax_loss

pytestmark = pytest.mark.filterwarnings("ignore:.*no masked-language-model head")
SENTENCES = make_sentences(12, seed=5)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# The losses, against loops.


def test_tension_is_its_formula() -> None:
    anchors, candidates = normal(3, 4), normal(3, 8, 4, seed=1)
    assert float(tension(anchors, candidates)) == pytest.approx(naive_tension(anchors, candidates))


def test_softmax_loss_is_its_formula() -> None:
    classifier = torch.nn.Linear(12, 3, dtype=torch.float64)
    u, v, classes = normal(5, 4), normal(5, 4, seed=1), [0, 1, 2, 0, 1]
    found = softmax_loss(classifier, u, v, torch.tensor(classes), "difference")
    wanted = naive_softmax(classifier.weight, classifier.bias, u, v, classes)
    assert found.item() == pytest.approx(wanted)


def test_infersents_features_add_the_product() -> None:
    u, v = normal(2, 3), normal(2, 3, seed=1)
    wanted = [[*a, *b, *abs(a - b), *(a * b)] for a, b in zip(u.numpy(), v.numpy(), strict=True)]
    np.testing.assert_allclose(pair_features(u, v, "difference and product"), wanted)


def test_jensen_shannon_is_its_formula_and_a_duplicate_is_no_negative() -> None:
    sentences = [normal(length, 4, seed=length) for length in (3, 1, 2)]
    sentences.append(sentences[0])
    texts = ["a", "b", "c", "a"]
    owners = torch.repeat_interleave(torch.arange(4), torch.tensor([3, 1, 2, 3]))
    means = torch.stack([local.mean(dim=0) for local in sentences])
    same = torch.tensor([[left == right for right in texts] for left in texts])
    found = jensen_shannon(torch.cat(sentences), owners, means, same)
    assert found.item() == pytest.approx(naive_jensen_shannon(sentences, texts))


def test_nt_xent_is_its_formula() -> None:
    anchors, positives = normal(4, 5), normal(4, 5, seed=1)
    assert float(nt_xent(anchors, positives)) == pytest.approx(naive_nt_xent(anchors, positives, 0.05))


def test_ngrams_are_windows_of_a_ring_and_their_mean_is_one_linear_layer() -> None:
    states, mask = normal(2, 6, 4), torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    ngrams = Ngrams(4, 3).double()
    dense = Dense(4, 9, activation="Identity").double()
    ngrams.fold_into(dense)
    features = ngrams(states, mask)
    for row, length in ((0, 6), (1, 4)):
        for token in range(length):
            parts = []
            for window, linear in zip((1, 3, 5), ngrams.maps, strict=True):
                around = range(token - window // 2, token + window // 2 + 1)
                parts.append(linear(torch.cat([states[row, place % length] for place in around])))
            torch.testing.assert_close(features[row, token], torch.cat(parts))
        mean = features[row, :length].mean(dim=0)
        torch.testing.assert_close(dense(states[row, :length].mean(dim=0)), mean)


# A batch's loss, from the texts on.


def test_ct_compares_an_anchor_with_itself_and_seven_others(models, tmp_path) -> None:
    baseline: Any = build(run_for("ct", models, tmp_path), [*SENTENCES, SENTENCES[0]])
    drawn = np.stack([baseline.draw_candidates(0, np.random.default_rng(seed)) for seed in range(50)])
    assert drawn.shape == (50, 8) and (drawn[:, 0] == 0).all()
    assert set(drawn[:, 1:].ravel()) == set(range(1, 12))  # never 12, which has the anchor's text

    found = baseline.loss(np.array([3, 5]), np.random.default_rng(7))
    random = np.random.default_rng(7)
    candidates = [baseline.draw_candidates(anchor, random) for anchor in (3, 5)]
    first, second = (torch.from_numpy(encoder.encode(SENTENCES)).double() for encoder in baseline.encoders)
    chosen = torch.stack([second[[place % 12 for place in row]] for row in candidates])
    assert found.item() == pytest.approx(naive_tension(first[[3, 5]], chosen), rel=1e-4)


def test_sbert_classifies_its_pairs(models, tmp_path) -> None:
    rows = make_labelled(9)
    baseline: Any = build(run_for("sbert", models, tmp_path), rows)
    baseline.encoder.model.eval()
    found = baseline.loss(np.array([4, 2, 0]), np.random.default_rng())
    u, v = (
        torch.from_numpy(baseline.encoder.encode([rows[place][column] for place in (4, 2, 0)])).double()
        for column in (0, 1)
    )
    (linear,) = baseline.classifier
    assert found.item() == pytest.approx(naive_softmax(linear.weight, linear.bias, u, v, [1, 2, 0]), rel=1e-4)


def test_isberts_vector_is_the_mean_of_its_local_features(models, tmp_path) -> None:
    baseline: Any = build(run_for("is-bert", models, tmp_path), SENTENCES)
    baseline.encoder.model.eval()
    local, owners, means = baseline.features(baseline.encoder.tokenize(SENTENCES))
    sentences = [local[owners == place].detach().double() for place in range(12)]
    vectors = baseline.candidates()["encoder"].encode(SENTENCES)
    np.testing.assert_allclose(means.detach(), vectors, atol=1e-5)
    np.testing.assert_allclose([each.mean(dim=0).numpy() for each in sentences], vectors, atol=1e-5)
    found = baseline.loss(np.arange(12), np.random.default_rng())
    assert found.item() == pytest.approx(naive_jensen_shannon(sentences, SENTENCES), rel=1e-4)


def test_declutr_contrasts_anchors_with_the_mean_of_their_positives(models, tmp_path) -> None:
    baseline: Any = build(run_for("declutr", models, tmp_path), make_documents(4))
    baseline.encoder.model.eval()
    examples = np.array([0, 2, 1])
    documents = baseline.draw(examples, np.random.default_rng([1, 5, 1]))
    found = baseline.contrast(documents)
    spans = [group for document in documents for group in document]
    assert len(spans) == 6 and all(len(group) == 3 for group in spans)
    with torch.no_grad():
        vectors = [
            [baseline.encoder.model(baseline.encoder.pad([ids]))[0].double() for ids in group] for group in spans
        ]
    anchors = torch.stack([group[0] for group in vectors])
    positives = torch.stack([(group[1] + group[2]) / 2 for group in vectors])
    assert found.item() == pytest.approx(naive_nt_xent(anchors, positives, 0.05), rel=1e-4)

    outcome = baseline.backward(5, examples)
    assert outcome.loss == pytest.approx(found.item() + outcome.mlm_loss) and outcome.mlm_loss > 0


# DeCLUTR's spans.


def test_lines_are_grouped_into_documents_in_order() -> None:
    ends = np.cumsum([3, 4, 10, 2, 2, 2, 1])
    assert group_lines(ends, [0], least=6) == [(0, 7), (7, 17), (17, 24)]  # the last line joins the part before it
    assert group_lines(ends, [0], least=25) == []


def test_declutr_joins_no_lines_of_different_documents(tmp_path):
    path = tmp_path / "documents.txt"
    path.write_text("a b\nc d\n\ne f\n\ng h\ni j\nk l\n")
    rows = open_corpus(path, skip_bad_rows=True)
    assert first_lines(rows) == [0, 2, 3]
    ends = np.array([2, 4, 6, 8, 10, 12])
    assert group_lines(ends, first_lines(rows), least=3) == [(0, 4), (6, 12)], "the document of one line is too short"
    assert group_lines(ends, [0], least=3) == [(0, 4), (4, 8), (8, 12)]


def test_spans_stay_inside_and_positives_touch_their_anchor() -> None:
    random = np.random.default_rng(0)
    kinds = set()
    for _ in range(300):
        groups = draw_spans(130, 32, random)
        (first, *_), (second, *_) = groups
        assert first.end <= 65 <= second.start
        for anchor, *positives in groups:
            for span in (anchor, *positives):
                assert 0 <= span.start < span.end <= 130 and 2 <= span.end - span.start <= 32
            for positive in positives:
                assert positive.start <= anchor.end and positive.end >= anchor.start
                adjacent = positive.start == anchor.end or positive.end == anchor.start
                inside = anchor.start <= positive.start and positive.end <= anchor.end
                kinds.add("adjacent" if adjacent else "subsumed" if inside else "overlapping")
    assert kinds == {"adjacent", "subsumed", "overlapping"}


def test_anchors_are_long_and_positives_short() -> None:
    random = np.random.default_rng(0)
    anchors, positives = (np.mean([draw_length(shape, 512, random) for _ in range(4000)]) for shape in ((4, 2), (2, 4)))
    assert anchors == pytest.approx(32 + 480 * 4 / 6, abs=8)
    assert positives == pytest.approx(32 + 480 * 2 / 6, abs=8)


def test_the_frame_of_special_tokens_comes_off_and_on(tiny) -> None:
    encoder = Encoder.load(tiny, pooler="avg", device="cpu")
    frame = Frame(encoder.tokenizer)
    (ids,) = encoder.tokenize(["日 the cat 日"])
    assert (frame.before, frame.after, frame.special) == ([2], [3], 2)
    assert frame(np.array(frame.strip(ids))) == ids and 2 not in frame.strip(ids)


# All of them alike.


@pytest.mark.parametrize("name", NAMES)
def test_gradients_reach_what_trains_and_nothing_else(name, models, tmp_path) -> None:
    baseline: Any = build(run_for(name, models, tmp_path), rows_for(name))
    baseline.backward(0, np.arange(8))
    unused = ("pooler.dense", "key.bias")  # BERT's own pooler; a bias that a softmax does not see
    for parameter, parameter_name in baseline.parameters().items():
        reached = parameter.grad is not None and bool(parameter.grad.abs().sum() > 0)
        assert reached or any(part in parameter_name for part in unused), parameter_name
    trained = set(baseline.parameters())
    for candidate in baseline.candidates().values():
        others = [each for each in candidate.model.parameters() if each not in trained]
        assert all(each.grad is None for each in others)
        assert bool(others) == (name == "is-bert")  # the layer that only mirrors the convolutions
    if name == "infersent":
        assert not baseline.encoder.table.requires_grad


@pytest.mark.parametrize(
    ("name", "steps", "share"),
    [
        *(("ct", 40, 0.5), ("sbert", 40, 0.5), ("is-bert", 40, 0.5)),
        *(("declutr", 100, 0.8), ("infersent", 60, 0.5), ("mlm", 60, 0.8), ("distill", 40, 0.5)),
        *(
            ("esimcse", 30, 0.7),
            ("promptbert", 60, 0.7),
            ("sncse", 30, 0.8),
            ("rankcse", 30, 0.9),
            ("diffcse", 30, 0.8),
        ),
    ],
)
def test_it_learns_a_toy(name, steps, share, models, tmp_path) -> None:
    events: list[Any] = []
    run = run_for(name, models, tmp_path / "out", steps=steps)
    result = train(run, rows=rows_for(name), on_event=events.append)
    losses = [event.loss for event in events if isinstance(event, Stepped)]
    # IS-BERT's loss lies between -2 log 2, perfect information, and what a bad start makes of it.
    floor = -2 * math.log(2) if name == "is-bert" else 0.0
    assert np.mean(losses[-6:]) - floor < share * (np.mean(losses[:3]) - floor)
    assert isinstance(events[0], Started) and isinstance(events[-1], Stopped)
    assert (result.steps, result.reason, result.loss) == (steps, "finished", losses[-1])


@pytest.mark.parametrize("name", NAMES)
def test_the_model_that_was_best_is_the_one_that_loads(name, models, tmp_path) -> None:
    seen: list[np.ndarray] = []

    def evaluate(encode) -> float:
        torch.rand(3)  # which must not touch the training
        seen.append(encode(SENTENCES))
        return -float(len(seen))  # the first after training is the best

    run = run_for(name, models, tmp_path / "out", steps=2, eval_every=1)
    events: list[Any] = []
    result = train(run, rows=rows_for(name), evaluate=evaluate, on_event=events.append)
    assert [event.best for event in events if isinstance(event, Evaluated)] == [False, True, False]
    assert (result.best_step, result.before) == (1, {"score": -1.0})
    assert result.kept == ("first" if name == "ct" else "encoder")
    loaded = open_model(result.output)
    np.testing.assert_array_equal(loaded.encode(SENTENCES), seen[1])
    assert np.abs(seen[-1] - seen[1]).max() > 0
    if name != "infersent":
        np.testing.assert_array_equal(Encoder.load(result.output).encode(SENTENCES), seen[1])

    assert loaded.fingerprint
    stored = json.loads((result.output / "run.json").read_text())
    assert stored["method"] == name and stored["batch_size"] == run.batch_size
    card = (result.output / "README.md").read_text()
    assert METHODS[name].title in card and f"- method: `{name!r}`" in card
    assert "stepped" in (result.output / "log.jsonl").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_weight_file(name, models, tmp_path) -> None:
    kinds = []
    for folder, seed in (("one", 1), ("two", 1), ("other", 2)):
        run = run_for(name, models, tmp_path / folder, seed=seed, steps=2)
        kinds.append(sha256(train(run, rows=rows_for(name)).output / "model.safetensors"))
    assert kinds[0] == kinds[1] != kinds[2]


def test_the_better_copy_of_ct_is_kept(models, tmp_path) -> None:
    scores = iter([0.1, 0.2, 0.3])  # before; then the first copy and the second
    run = run_for("ct", models, tmp_path / "out", steps=1)
    result = train(run, rows=SENTENCES, evaluate=lambda encode: next(scores))
    assert (result.kept, result.best["score"]) == ("second", 0.3)


def test_a_copy_of_ct_without_a_score_does_not_hide_the_others(models, tmp_path) -> None:
    scores = iter([0.1, math.nan, 0.3])
    run = run_for("ct", models, tmp_path / "ct", steps=1)
    result = train(run, rows=make_sentences(20), evaluate=lambda _: next(scores))
    assert (result.kept, result.best) == ("second", {"score": 0.3})


def test_isberts_folder_is_one_that_sentence_transformers_loads(models, tmp_path) -> None:
    transformers = pytest.importorskip("sentence_transformers")
    result = train(run_for("is-bert", models, tmp_path / "out"), rows=SENTENCES)
    theirs = transformers.SentenceTransformer(str(result.output), device="cpu").encode(SENTENCES)
    np.testing.assert_allclose(Encoder.load(result.output).encode(SENTENCES), theirs, atol=1e-5)


def test_labels_can_be_learned_from_one_premise(models, tmp_path) -> None:
    """The other rows are not the negatives here, so a column may hold one text."""
    rows = [("a dog", other, label) for _, other, label in make_labelled(6)]
    assert train(run_for("sbert", models, tmp_path / "out", steps=1), rows=rows).finished


# Rates.


def rates(name: str, models, tmp_path: Path, steps: list[int], *, of: int, **fields: Any) -> list[float]:
    run = run_for(name, models, tmp_path, **fields)
    baseline = build(run, rows_for(name))
    optimizer = baseline.make_optimizer(list(baseline.parameters()))
    found = []
    for step in steps:
        baseline.set_rate(optimizer, step, of)
        found.append(optimizer.param_groups[0]["lr"])
    return found


def test_cts_rate_goes_down_five_stairs(models, tmp_path) -> None:
    steps = [0, 499, 500, 1000, 1500, 2000, 9000]
    found = rates("ct", models, tmp_path, steps, of=10_000, learning_rate=1e-5)
    assert found == pytest.approx([1e-5, 1e-5, 8e-6, 6e-6, 4e-6, 2e-6, 2e-6])


def test_sberts_rate_rises_for_a_tenth_and_falls_to_nothing(models, tmp_path) -> None:
    found = rates("sbert", models, tmp_path, [0, 9, 10, 55, 99], of=100, learning_rate=2e-5)
    assert found == pytest.approx([2e-5 / 11, 2e-5 * 10 / 11, 2e-5, 1e-5, 2e-5 / 90])


def test_infersents_rate_decays_by_the_epoch_and_shrinks_when_dev_does_not_rise(models, tmp_path) -> None:
    assert rates("infersent", models, tmp_path, [0, 2, 3, 9], of=20, batch_size=16, learning_rate=0.1) == (
        pytest.approx([0.1, 0.1, 0.099, 0.1 * 0.99**3])
    )
    run = run_for("infersent", models, tmp_path / "out", epochs=20, steps=None, learning_rate=0.1)
    events: list[Any] = []
    result = train(run, rows=rows_for("infersent"), evaluate=lambda encode: 0.5, on_event=events.append)
    # One gain, then 0.1 is divided by 5 after each epoch until it is below 1e-5.
    found = [event.learning_rate for event in events if isinstance(event, Stepped)]
    assert found[:4] == pytest.approx([0.1, 0.099, 0.1 * 0.99**2 / 5, 0.1 * 0.99**3 / 25])
    assert (result.reason, result.steps, found[-1] > 1e-5) == ("early stop", 7, True)


# What a user may get wrong.


def test_labels_come_in_the_spellings_of_the_releases(models, tmp_path) -> None:
    spellings = ["entailment", "n", "2", "E", " Neutral", "contradiction"]
    rows = [(f"the cat {label}", f"a dog {label}", label) for label in spellings]
    assert build(run_for("sbert", models, tmp_path), rows).classes.tolist() == [0, 1, 2, 0, 1, 2]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "rows", "fields", "message"),
    [
        ("sbert", [("a", "b", "-"), ("a", "c", "neutral")], {}, r"row 0: expected a label \(entailment"),
        ("sbert", [("a", "b", "neutral"), ("c", "d", "neutral")], {}, "every pair .* is labelled neutral"),
        ("infersent", SENTENCES, {}, "has 1 text column.s.; expected premise, hypothesis and label"),
        ("infersent", make_labelled(6), {"pooler": "avg"}, "infersent does not use pooler; got 'avg'"),
        ("infersent", make_labelled(6), {"model": "minilm"}, "infersent starts from word vectors. Name their file"),
        ("ct", SENTENCES, {"batch_size": 12}, "multiple of 8; got 12"),
        ("ct", SENTENCES, {"width": 9}, r"ct does not use width; got 9. Leave it out \(it is for: infersent\)"),
        ("ct", None, {}, "ct learns from sentences"),
        ("is-bert", SENTENCES, {"pooler": "cls"}, "its pooler is avg; got 'cls'"),
        ("declutr", SENTENCES, {"max_tokens": 30}, r"12 lines hold \d+ tokens, and a document holds 112"),
        ("ct", SENTENCES, {"steps": 0}, "steps must be 1 or more"),
        ("ct", SENTENCES, {"learning_rate": 0.0}, "learning_rate must be above 0"),
        ("esimcse", SENTENCES, {"queue": float("inf")}, "queue must be a finite number"),
        ("ct", SENTENCES, {"max_tokens": 2}, "max_tokens must be 3 or more"),
        ("ct", SENTENCES, {"output": ""}, "needs an output folder"),
    ],
)
def test_what_makes_no_sense_is_explained(name, rows, fields, message, models, tmp_path) -> None:
    run = run_for(name, models, tmp_path / "out").replace(**fields)
    with pytest.raises(UserError, match=message):
        train(run, rows=rows)
    assert not (tmp_path / "out").exists()


def test_an_unknown_method_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"no method named 'sbret'. Did you mean 'sbert'"):
        train(Run(method="sbret", output="x"))
    assert set(METHODS) == set(METHOD_DEFAULTS) == {*NAMES, "simcse"}


def test_a_loss_that_is_not_finite_stops_the_run_and_leaves_no_model(models, tmp_path) -> None:
    run = run_for("ct", models, tmp_path / "out", learning_rate=1e30, steps=5)
    with pytest.raises(TrainingError, match=r"the loss is .* at step 2, on 2 of 2 rows:\n  row \d+: "):
        train(run, rows=SENTENCES)
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_only_a_run_is_overwritten_and_only_if_allowed(models, tmp_path) -> None:
    run = run_for("ct", models, tmp_path / "out", steps=1)
    train(run, rows=SENTENCES)
    with pytest.raises(OutputError, match=r"already holds a model .*replace it \(--overwrite\)"):
        train(run, rows=SENTENCES)
    train(run, rows=SENTENCES, overwrite=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    train(run_for("ct", models, tmp_path / "mine"), rows=SENTENCES, overwrite=True)
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"


def test_a_corpus_is_read_by_its_columns(models, tmp_path) -> None:
    lines = ["label\thypothesis\tpremise\n"] + [f"{label}\t{b}\t{a}\n" for a, b, label in make_labelled(9)]
    (tmp_path / "nli.tsv").write_text("".join(lines))
    from_file, from_rows = (
        train(run_for("sbert", models, tmp_path / folder, steps=1, data=data), rows=rows)
        for folder, data, rows in (("a", str(tmp_path / "nli.tsv"), None), ("b", "", make_labelled(9)))
    )
    assert sha256(from_file.output / "model.safetensors") == sha256(from_rows.output / "model.safetensors")
    (tmp_path / "pairs.csv").write_text("premise,hypothesis\na,b\n")
    with pytest.raises(InputError, match="no column 'label'"):
        train(run_for("sbert", models, tmp_path / "c", data=str(tmp_path / "pairs.csv")))


def test_a_batch_too_big_for_the_memory_is_explained(models, tmp_path, monkeypatch) -> None:
    run = run_for("ct", models, tmp_path / "out", save_every=1, steps=2)
    rows = rows_for("ct")
    compute = METHODS["ct"].backward
    calls: list[int] = []

    def full(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return compute(*arguments)

    monkeypatch.setattr(METHODS["ct"], "backward", full)
    with pytest.raises(TrainingError, match=r"machine ran out at step 2, with a batch of 16 .* smaller batch_size"):
        train(run, rows=rows)
    resumed = train(run, rows=rows, resume=True)
    assert resumed.finished and len(calls) == 3, "what was saved is there to go on from"


def test_only_methods_that_have_chunks_are_advised_to_use_smaller_ones(models, tmp_path, monkeypatch) -> None:
    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    for name, advice in (("is-bert", r"Start again with a smaller batch_size"), ("sbert", r"with chunk_tokens \d+")):
        monkeypatch.setattr(METHODS[name], "backward", full)
        with pytest.raises(TrainingError, match=advice):
            train(run_for(name, models, tmp_path / name), rows=rows_for(name))


def test_blank_lines_are_skipped_where_the_run_says_so(models, tmp_path) -> None:
    lines = make_documents(8)
    data = tmp_path / "documents.txt"
    data.write_text("\n".join([*lines[:5], "", *lines[5:]]) + "\n", encoding="utf-8")
    run = run_for("declutr", models, tmp_path / "out", data=str(data), steps=1)
    with pytest.raises(InputError, match=r"got a blank line \(.*documents.txt:6\)"):
        train(run)
    assert train(run.replace(skip_bad_rows=True)).finished


@pytest.mark.parametrize("name", ["ct", "sbert", "declutr"])
def test_chunks_change_nothing_but_memory(name, models, tmp_path) -> None:
    """Without dropout the gradient is the same, however the batch is encoded."""
    vectors = []
    for chunk in (None, 40):
        fields = {} if name == "ct" else {"dropout": 0.0}
        run = run_for(name, models, tmp_path / str(chunk), chunk_tokens=chunk, **fields)
        vectors.append(Encoder.load(train(run, rows=rows_for(name)).output).encode(SENTENCES))
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-4)


@pytest.mark.bf16
@pytest.mark.parametrize("name", ["ct", "sbert", "is-bert", "declutr", *AFTER_SIMCSE])
def test_mixed_precision_trains(name, models, tmp_path) -> None:
    run = run_for(name, models, tmp_path / "out", precision="bf16", steps=2)
    assert math.isfinite(train(run, rows=rows_for(name)).loss or math.nan)


def test_sentences_per_second_counts_texts_through_an_encoder(models, tiny, tmp_path, monkeypatch) -> None:
    """A second a step: 2 anchors of CT with 8 candidates each make 18; 8 sentences of SimCSE in two passes make 16."""
    for run, rows, texts in (
        (run_for("ct", models, tmp_path / "ct"), rows_for("ct"), 18),
        (run_for("sbert", models, tmp_path / "sbert"), rows_for("sbert"), 32),
        (Run(model=str(tiny), output=str(tmp_path / "simcse"), steps=3, batch_size=8), SENTENCES, 16),
    ):
        events: list[Any] = []
        seconds = map(float, range(1000))
        with monkeypatch.context() as patch:  # of the loop's clock alone: other threads look at the time too
            patch.setattr("twinpass.training.loop.time", SimpleNamespace(monotonic=seconds.__next__))
            train(run, rows=rows, on_event=events.append)
        assert next(event for event in events if isinstance(event, Stepped)).sentences_per_second == texts
