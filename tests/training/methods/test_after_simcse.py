"""The methods that build on SimCSE compute their papers' equations, written out in loops here."""

from __future__ import annotations

import math
import os
import signal
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny import make_checkpoint
from tests.training.tiny_runs import AFTER_SIMCSE, build, make_sentences, rows_for, run_for
from torch import Tensor
from transformers import AutoModel, AutoModelForMaskedLM

from twinpass.config import Run
from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError, ModelError
from twinpass.log import Stepped
from twinpass.text.negation import negate
from twinpass.training.loop import train
from twinpass.training.methods.rankcse import consistency, list_mle, list_net
from twinpass.training.methods.sncse import bidirectional_margin

pytestmark = pytest.mark.filterwarnings("ignore:sentence-transformers cannot load this model")

SENTENCES = make_sentences(12, seed=5)


def cosine(a: Tensor, b: Tensor) -> float:
    return float(a @ b / a.norm() / b.norm())


def run_eval(method: Any, step: int, examples: list[int]) -> Any:
    """One backward pass without dropout."""
    for encoder in method.encoders:
        encoder.model.transformer.eval()
    return method.backward(step, np.array(examples))


def vectors_in_training(encoder: Any, ids: list[Any]) -> Tensor:
    """The vectors that training compares, dropout left out, one sentence at a time."""
    encoder.model.transformer.eval()
    with torch.no_grad():
        return torch.cat([encoder.model(encoder.pad([row])) for row in ids]).double()


@pytest.mark.parametrize("name", AFTER_SIMCSE)
def test_chunks_change_nothing_but_memory(name, models, tmp_path) -> None:
    found = []
    for chunk in (None, 40):
        run = run_for(name, models, tmp_path / str(chunk), chunk_tokens=chunk, dropout=0.0)
        method = build(run, rows_for(name))
        losses = [method.backward(step, np.arange(8)).loss for step in range(2)]
        found.append((losses, {each: parameter.grad for parameter, each in method.parameters().items()}))
    (losses, gradients), (chunked_losses, chunked) = found
    assert chunked_losses == pytest.approx(losses, rel=1e-4)
    for each, gradient in gradients.items():
        if gradient is not None:
            torch.testing.assert_close(
                chunked[each], gradient, rtol=1e-3, atol=1e-4 * max(1.0, float(gradient.abs().max()))
            )


# ESimCSE.


def naive_queue_loss(h: Tensor, h_pos: Tensor, queue: list[Tensor], temperature: float) -> float:
    total = 0.0
    for place, anchor in enumerate(h):
        batch = sum(math.exp(cosine(anchor, other) / temperature) for other in h_pos)
        earlier = sum(math.exp(cosine(anchor, other) / temperature) for other in queue)
        total -= math.log(math.exp(cosine(anchor, h_pos[place]) / temperature) / (batch + earlier))
    return total / len(h)


def test_esimcses_loss_counts_the_queue_and_its_encoder_follows_slowly(models, tmp_path) -> None:
    method = build(run_for("esimcse", models, tmp_path, batch_size=4, queue=1.5, momentum=0.9), SENTENCES)
    queue: list[Tensor] = []
    slow = {name: tensor.clone() for name, tensor in method.momentum.model.named_parameters()}
    for step, examples in enumerate(([3, 1, 4, 0], [5, 9, 2, 6], [8, 7, 10, 11])):
        ids, repeated = method.passes(step, np.array(examples))
        h, h_pos = (vectors_in_training(method.encoder, each) for each in (ids, repeated))
        outcome = run_eval(method, step, examples)
        assert outcome.loss == pytest.approx(naive_queue_loss(h, h_pos, queue, 0.05), rel=1e-4)
        assert outcome.negatives == 3 + len(queue)
        for name, fast in method.encoder.model.named_parameters():
            slow[name] = 0.9 * slow[name] + 0.1 * fast.detach()
        torch.testing.assert_close(dict(method.momentum.model.named_parameters()), slow)
        queue = [*queue, *vectors_in_training(method.momentum, ids)][-6:]
        torch.testing.assert_close(method.tensors["queue"].double(), torch.stack(queue), atol=1e-4, rtol=1e-4)
        with torch.no_grad():  # as an optimizer's step would
            for parameter in method.encoder.model.parameters():
                parameter.mul_(1.01)


def test_a_sentence_that_comes_again_is_no_negative_of_itself(models, tmp_path) -> None:
    for keep, negatives in ((False, 3 + 4 - 1), (True, 3 + 4)):
        run = run_for("esimcse", models, tmp_path, batch_size=4, keep_duplicates=keep)
        method = build(run, SENTENCES)
        method.backward(0, np.array([0, 1, 2, 3]))
        assert method.backward(1, np.array([0, 1, 2, 3])).negatives == negatives


def test_subwords_are_repeated_in_place_and_special_ones_never(models, tmp_path) -> None:
    method = build(run_for("esimcse", models, tmp_path), SENTENCES)
    ids = np.array([2, *range(70, 80), 3], dtype=np.int32)
    lengths = set()
    for seed in range(200):
        longer = method.repeat(ids, np.random.default_rng(seed))
        lengths.add(len(longer) - len(ids))
        assert longer[longer != np.roll(longer, 1)].tolist() == ids.tolist(), "each repetition follows its subword"
        assert (longer[0], longer[-1], (longer == 2).sum(), (longer == 3).sum()) == (2, 3, 1, 1)
    assert lengths == {0, 1, 2, 3}, "at most 32 % of ten subwords"
    short = {len(method.repeat(ids[[0, 1, 2, -1]], np.random.default_rng(seed))) for seed in range(60)}
    assert short == {4, 5, 6}, "of short sentences up to two"
    method.longest = 13
    assert {len(method.repeat(ids, np.random.default_rng(seed))) for seed in range(60)} == {12, 13}


def test_without_repetition_and_queue_esimcse_is_simcse(models, tmp_path) -> None:
    fields = {"steps": 2, "batch_size": 4, "learning_rate": 1e-3, "dropout": 0.0, "seed": 3, "device": "cpu"}
    losses = []
    for method, more in (("simcse", {}), ("esimcse", {"repetition": 0.0, "queue": 0.0})):
        run = Run(method=method, model=str(models["esimcse"]), output=str(tmp_path), **fields, **more)
        losses.append(build(run, SENTENCES).backward(0, np.array([0, 1, 2, 3])).loss)
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("esimcse", {"repetition": 1.5}, "repetition is a share of the subwords"),
        ("esimcse", {"momentum": -0.1}, "momentum is a share"),
        ("esimcse", {"queue": -1.0}, "queue must not be negative"),
        ("esimcse", {"batch_size": 1}, "batch_size must be 2 or more"),
        ("distill", {"batch_size": 1}, "batch_size must be 2 or more: a row is compared"),
        ("esimcse", {"mlm_weight": 0.1}, "esimcse does not use mlm_weight"),
        ("promptbert", {"pooler": "cls"}, "promptbert's vector is that of its template's mask token"),
        ("promptbert", {"template": "no place"}, r"template must have \[X\] once"),
        ("sncse", {"margin_low": 0.5}, "margin_low must not be above margin_high"),
        ("rankcse", {"ranking": "listwise"}, "ranking must be one of listmle, listnet"),
        ("rankcse", {"teacher_share": 2.0}, "teacher_share is a share"),
        ("ct", {"queue": 1.0}, r"ct does not use queue; got 1.0. Leave it out \(it is for: esimcse"),
    ],
)
def test_what_makes_no_sense_is_explained(name, fields, message, models, tmp_path) -> None:
    with pytest.raises(ConfigError, match=message):
        run_for(name, models, tmp_path, **fields).check()


# PromptBERT.


def naive_info_nce(h: list[Tensor], h_pos: list[Tensor], temperature: float) -> float:
    total = 0.0
    for place, anchor in enumerate(h):
        everything = sum(math.exp(cosine(anchor, other) / temperature) for other in h_pos)
        total -= math.log(math.exp(cosine(anchor, h_pos[place]) / temperature) / everything)
    return total / len(h)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_promptberts_loss_subtracts_the_template_at_its_positions(family, tmp_path) -> None:
    model = make_checkpoint(tmp_path / "model", family)
    method = build(run_for("promptbert", {"promptbert": model}, tmp_path / "out"), SENTENCES)
    examples = [3, 1, 4, 0, 7]
    outcome = run_eval(method, 0, examples)
    network, tokenizer = method.encoders[0].model.transformer, method.encoders[0].tokenizer
    start = 1 if family == "roberta" else 0  # its positions start after the padding token's, 0 here
    passes: list[list[Tensor]] = []
    for text in (method.run.template, method.run.second_template):
        denoised = []
        for sentence in (SENTENCES[place] for place in examples):
            before, after = text.replace("[MASK]", tokenizer.mask_token).split("[X]")
            parts = [tokenizer(each, add_special_tokens=False)["input_ids"] for each in (before, sentence, after)]
            head, tail = [tokenizer.cls_token_id, *parts[0]], [*parts[2], tokenizer.sep_token_id]
            rows = [*head, *parts[1], *tail], [*head, *tail]
            gap = len(parts[1])
            places = [list(range(len(rows[0]))), [*range(len(head)), *range(len(head) + gap, len(rows[0]))]]
            with torch.no_grad():
                states = [
                    network(input_ids=torch.tensor([ids]), position_ids=start + torch.tensor([where]))
                    .last_hidden_state[0][ids.index(tokenizer.mask_token_id)]
                    .double()
                    for ids, where in zip(rows, places, strict=True)
                ]
                denoised.append(method.mlp.double()(states[0] - states[1]))
        passes.append(denoised)
    assert outcome.loss == pytest.approx(naive_info_nce(*passes, 0.05), rel=1e-4)


def test_a_prompted_model_encodes_by_its_first_template_wherever_it_is_loaded(models, tmp_path) -> None:
    result = train(run_for("promptbert", models, tmp_path / "out", steps=2), rows=SENTENCES)
    loaded = Encoder.load(result.output)
    assert (loaded.pooler, loaded.settings.template) == ("mask", "the [X] is [MASK] .")
    network = AutoModel.from_pretrained(result.output).eval()
    for text, vector in zip(SENTENCES, loaded.encode(SENTENCES), strict=True):
        inputs = loaded.tokenizer(f"the {text} is [MASK] .", return_tensors="pt")
        with torch.no_grad():
            states = network(**inputs).last_hidden_state[0]
        np.testing.assert_allclose(vector, states[-3], atol=1e-5)
    assert (result.output / "twinpass.json").is_file() and not (result.output / "training_head").exists()


# SNCSE.


def naive_margins(h: Tensor, h_pos: Tensor, h_soft: Tensor, alpha: float, beta: float) -> float:
    total = 0.0
    for one, positive, soft in zip(h, h_pos, h_soft, strict=True):
        difference = cosine(one, soft) - cosine(one, positive)
        total += max(0.0, difference + alpha) + max(0.0, -difference - beta)
    return total / len(h)


@pytest.mark.parametrize("pooler", ["mask", "cls_mlp_train"])
def test_sncses_loss_adds_the_margins_of_the_negations(pooler, models, tmp_path) -> None:
    fields = {"pooler": pooler, "soft_negative_weight": 0.7, "margin_low": 0.01, "margin_high": 0.02}
    method = build(run_for("sncse", models, tmp_path, **fields), SENTENCES)
    examples = [3, 1, 4, 0, 7]
    outcome = run_eval(method, 0, examples)
    texts, fields = [SENTENCES[place] for place in examples], method.run
    negated = [negate(text) for text in texts]
    with_pooler = {"pooler": pooler} | ({"template": fields.second_template} if pooler == "mask" else {})
    first, second = method.encoders[0], Encoder.load(fields.model, **with_pooler)  # the weights are not trained yet
    second = second if pooler == "mask" else first
    h, h_pos, soft = (
        vectors_in_training(encoder, encoder.tokenize(each))
        for encoder, each in ((first, texts), (second, texts), (second, negated))
    )
    if method.mlp is not None:
        h, h_pos, soft = (method.mlp.double()(each).detach() for each in (h, h_pos, soft))
    assert torch.equal(h, h_pos) == (pooler != "mask"), "the positive has a template of its own"
    wanted = naive_info_nce(list(h), list(h_pos), 0.05) + 0.7 * naive_margins(h, h_pos, soft, 0.01, 0.02)
    assert outcome.loss == pytest.approx(wanted, rel=1e-4)
    assert naive_margins(h, h_pos, soft, 0.01, 0.02) > 0
    assert (method.mlp is None) == (pooler != "mask") and outcome.texts == 15


def test_the_margin_pushes_from_both_sides() -> None:
    def loss(angle: float) -> tuple[float, float]:
        soft = torch.tensor(angle, dtype=torch.float64, requires_grad=True)
        one = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
        other = torch.stack([soft.cos(), soft.sin()])[None]
        value = bidirectional_margin(one, one, other, alpha=0.1, beta=0.3)
        value.backward()
        return float(value), float(soft.grad)

    assert loss(0.1)[0] > 0 and loss(0.1)[1] < 0, "too near: the angle grows"
    assert loss(0.6)[0] == 0, "between the margins nothing moves"
    assert loss(1.5)[0] > 0 and loss(1.5)[1] > 0, "too far: the angle shrinks"


# RankCSE.


def softmax(values: list[float]) -> list[float]:
    total = sum(map(math.exp, values))
    return [math.exp(value) / total for value in values]


def naive_consistency(h: Tensor, h_pos: Tensor, temperature: float) -> float:
    total = 0.0
    for place in range(len(h)):
        p = softmax([cosine(h[place], other) / temperature for other in h_pos])
        q = softmax([cosine(h_pos[place], other) / temperature for other in h])
        m = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
        total += sum(a * math.log(a / c) + b * math.log(b / c) for a, b, c in zip(p, q, m, strict=True)) / 2
    return total / len(h)


def naive_ranking(kind: str, h: Tensor, h_pos: Tensor, teachers: list[Any], temperature: float) -> float:
    losses = []
    for place in range(len(h)):
        others = [other for other in range(len(h)) if other != place]
        student = [cosine(h[place], h_pos[other]) / temperature for other in others]
        teacher = [sum(share * cosine(t[place], t[other]) for share, t in teachers) for other in others]
        if kind == "listnet":
            expected = softmax([value / (temperature / 2) for value in teacher])
            found = softmax(student)
            losses.append(-sum(a * math.log(b) for a, b in zip(expected, found, strict=True)))
            continue
        order = sorted(range(len(others)), key=lambda other: -teacher[other])
        for rank in range(len(order)):
            left = sum(math.exp(student[other]) for other in order[rank:])
            losses.append(-math.log(math.exp(student[order[rank]]) / left))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("ranking", ["listmle", "listnet"])
def test_rankcses_loss_adds_consistency_and_the_teachers_ranking(ranking, models, tmp_path) -> None:
    other = make_checkpoint(tmp_path / "other", seed=3)
    fields = {"teacher": f"{models['teacher']}, {other}", "teacher_share": 0.3, "ranking": ranking}
    fields |= {"consistency_weight": 0.5, "ranking_weight": 2.0, "ranking_temperature": 0.1, "temperature": 0.2}
    method = build(run_for("rankcse", models, tmp_path / "out", **fields), SENTENCES)
    examples = [3, 1, 4, 0, 7]
    texts = [SENTENCES[place] for place in examples]
    teachers = [
        (share, torch.from_numpy(Encoder.load(name, pooler="avg").encode(texts)).double())
        for share, name in ((0.3, models["teacher"]), (0.7, other))
    ]
    h, h_pos = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = method.compare(torch.stack([h, h_pos]), None, 0, np.array(examples))
    wanted = naive_info_nce(list(h), list(h_pos), 0.2) + 0.5 * naive_consistency(h, h_pos, 0.2)
    wanted += 2.0 * naive_ranking(ranking, h, h_pos, teachers, 0.1)
    assert float(found) == pytest.approx(wanted, rel=1e-5)


def test_the_ranking_losses_have_the_gradients_of_their_values() -> None:
    generator = torch.Generator().manual_seed(1)
    student = torch.randn(4, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    teacher = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    for loss in (
        lambda s: list_mle(s, teacher, temperature=0.5),
        lambda s: list_net(s, teacher, temperature=0.5),
        lambda s: consistency(s, temperature=0.5),
    ):
        assert torch.autograd.gradcheck(loss, student)
    ranked = list_mle(10 * teacher, teacher, temperature=0.5)
    assert float(ranked) < float(list_mle(-teacher, teacher, temperature=0.5)), "the teacher's own order is the best"


def test_another_teacher_is_not_resumed_with(models, tmp_path) -> None:
    run = run_for("rankcse", models, tmp_path / "out", steps=3)

    def stop(event: Any) -> None:
        if isinstance(event, Stepped) and event.step == 2:
            os.kill(os.getpid(), signal.SIGINT)

    train(run, rows=SENTENCES, on_event=stop)
    other = make_checkpoint(tmp_path / "other", seed=3)
    with pytest.raises(ConfigError, match="is not the teacher that this run began with"):
        train(run.replace(teacher=str(other)), rows=SENTENCES, resume=True)
    assert train(run, rows=SENTENCES, resume=True).finished


@pytest.mark.parametrize("teacher", [None, "a,b,c"])
def test_one_teacher_or_two_are_needed(teacher, models, tmp_path) -> None:
    with pytest.raises(ConfigError, match="rankcse learns the ranking of one teacher or two; got"):
        build(run_for("rankcse", models, tmp_path, teacher=teacher), SENTENCES)


# DiffCSE.


def naive_batch_norm(rows: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    columns = []
    for place in range(rows.shape[1]):
        column = [float(value) for value in rows[:, place]]
        mean = sum(column) / len(column)
        deviation = math.sqrt(sum((value - mean) ** 2 for value in column) / len(column) + 1e-5)
        scale, shift = (1.0, 0.0) if weight is None else (float(weight[place]), float(bias[place]))
        columns.append([(value - mean) / deviation * scale + shift for value in column])
    return torch.tensor(columns, dtype=torch.float64).T


@torch.no_grad()
def naive_replaced(method: Any, edited: list[Any], original: list[Any], h: Tensor) -> float:
    """The mean over all tokens but the first, one sentence at a time."""
    bert, total, count = method.discriminator.transformer, 0.0, 0
    for ids, truth, vector in zip(edited, original, h, strict=True):
        embedded = bert.embeddings(torch.tensor([ids.tolist()]))
        embedded[0, 0] = vector.float()
        states = bert.encoder(embedded).last_hidden_state[0]
        for place in range(1, len(ids)):
            replaced = 1 / (1 + math.exp(-float(method.discriminator.found(states[place]))))
            total -= math.log(replaced if ids[place] != truth[place] else 1 - replaced)
            count += 1
    return total / count


def test_diffcses_loss_adds_the_replaced_tokens(models, tmp_path) -> None:
    method = build(run_for("diffcse", models, tmp_path, rtd_weight=0.7), SENTENCES)
    method.discriminator.transformer.eval()
    examples = [3, 1, 4, 0, 7]
    outcome = run_eval(method, 6, examples)
    original = [method.data.ids(place).astype(np.int64) for place in examples] * 2
    edited = method.edit(original, 6, examples * 2)
    assert any((a != b).any() for a, b in zip(edited, original, strict=True))
    h = vectors_in_training(method.encoder, original)
    first, norm, _, second, _ = method.projector.double()
    with torch.no_grad():
        middle = naive_batch_norm(first(h), norm.weight, norm.bias).clamp(min=0)
        h = naive_batch_norm(second(middle))
    wanted = naive_info_nce(list(h[:5]), list(h[5:]), 0.05) + 0.7 * naive_replaced(method, edited, original, h)
    assert outcome.loss == pytest.approx(wanted, rel=1e-3)


def test_the_vector_learns_from_the_discriminator(models, tmp_path) -> None:
    """The gradient that reaches the vectors by way of the discriminator is that of the loss."""
    method = build(run_for("diffcse", models, tmp_path, rtd_weight=0.7), SENTENCES)
    method.discriminator.transformer.eval()
    examples = np.array([3, 1, 4, 0])
    start = torch.randn(2, 4, 32, generator=torch.Generator().manual_seed(0))
    vectors = start.clone().requires_grad_()
    method.compare(vectors, None, 0, examples).backward()
    direction = torch.randn(start.shape, generator=torch.Generator().manual_seed(1))
    near = [float(method.compare(start + step * direction, None, 0, examples)) for step in (1e-2, -1e-2)]
    assert float((vectors.grad * direction).sum()) == pytest.approx((near[0] - near[1]) / 2e-2, rel=0.05, abs=2e-2)


def test_the_generator_fills_in_its_likeliest_words(models, tmp_path) -> None:
    method = build(run_for("diffcse", models, tmp_path), SENTENCES)
    theirs = AutoModelForMaskedLM.from_pretrained(models["diffcse"]).eval()
    rows = [method.data.ids(place).astype(np.int64) for place in range(12)] * 2
    edited, again = (method.edit(rows, 3, [*range(12)] * 2) for _ in range(2))
    masked = 0
    for place, (row, found) in enumerate(zip(rows, edited, strict=True)):
        draw = np.random.default_rng([1, 3, place % 12, place // 12])
        chosen = [bool(a < 0.3 and b not in range(5)) for a, b in zip(draw.random(len(row)), row, strict=True)]
        hidden = [method.generator.corrupt.mask_id if each else word for each, word in zip(chosen, row, strict=True)]
        with torch.no_grad():
            best = theirs(torch.tensor([[int(word) for word in hidden]])).logits[0].argmax(dim=1)
        assert [int(b) if c else int(w) for b, c, w in zip(best, chosen, row, strict=True)] == found.tolist()
        assert found.tolist() == again[place].tolist()
        masked += sum(chosen)
    assert 0.2 < masked / sum(len(row) - 2 for row in rows) < 0.4


def test_a_generator_must_know_the_words_and_guess_them(models, tiny, tmp_path) -> None:
    with pytest.raises(ModelError, match="has no masked-language-model head"):
        build(run_for("diffcse", models, tmp_path, generator=str(tiny)), SENTENCES)
    with pytest.raises(ConfigError, match="has another vocabulary than"):
        build(run_for("diffcse", models, tmp_path, generator="minilm"), SENTENCES)
    with pytest.raises(ConfigError, match="vectors of 64 dimensions and embeddings of 32"):
        build(run_for("diffcse", models, tmp_path, pooler="cls+avg"), SENTENCES)
