"""Small texts and short runs to train, what child processes of the tests do, and naive versions of the losses."""

from __future__ import annotations

import math
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from tests.tiny import WORDS
from torch import Tensor

from twinpass.config import Run
from twinpass.log import Event, Result, Stepped
from twinpass.training import checkpoint
from twinpass.training.data import InMemory
from twinpass.training.lean import lean_layers
from twinpass.training.loop import compute_gradient, train
from twinpass.training.method import Method, Start
from twinpass.training.methods import METHODS
from twinpass.training.processes import Processes
from twinpass.training.setup import prepare

AFTER_SIMCSE = ("esimcse", "promptbert", "diffcse", "sncse", "rankcse")
NAMES = ("ct", "sbert", "is-bert", "declutr", "infersent", "mlm", "distill", *AFTER_SIMCSE)


def make_sentences(count: int, *, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(2, 12))) + f" {number}" for number in range(count)]


def make_triplets(count: int) -> list[tuple[str, ...]]:
    columns = [make_sentences(count, seed=seed) for seed in (1, 2, 3)]
    return list(zip(*columns, strict=True))


def spread(encode: Callable[[list[str]], np.ndarray]) -> dict[str, float]:
    """A score that changes with training: how far apart a few sentences are; it draws at random on purpose."""
    vectors = encode(make_sentences(6, seed=9))
    noise = 0.0 * float(np.random.rand() + random.random() + torch.rand(()).item())
    return {"score": float(vectors.std(axis=0).mean()) + noise, "vectors": len(vectors)}


def train_until_killed(run: Run, rows: list[Any], kill_at: int, kill_when: str, resume: bool) -> None:
    """Train in this process and die by SIGKILL at the given occurrence of an event, or amid a save."""
    torch.set_num_threads(1)
    seen = 0

    def count(event: Event) -> None:
        nonlocal seen
        seen += type(event).__name__ == kill_when
        if seen == kill_at > 0:
            os.kill(os.getpid(), signal.SIGKILL)

    if kill_when == "half-written":
        checkpoint.save_file = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    train(run, rows=rows, evaluate=spread, on_event=count, resume=resume)


def train_and_wait(run: Run, rows: list[Any], reached: Any) -> None:
    """Train in this process up to the third step, and wait there to be killed."""
    torch.set_num_threads(1)

    def wait(event: Event) -> None:
        if isinstance(event, Stepped) and event.step == 3:
            reached.set()
            signal.pause()

    train(run, rows=rows, on_event=wait)


def join(rank: int, count: int, meeting: str) -> None:
    """Become one of several processes; they meet at a file, since a free port may be taken before it is used."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}  # asked for, but not used
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=count)


def gradient_in_process(
    run: Run, rows: list[Any], batch: list[int], rank: int, count: int, meeting: str, to: str
) -> None:
    """Compute one batch's gradient as one of several processes; the first writes it down."""
    join(rank, count, meeting)
    loss, gradients = gradient_of(run, rows, batch)
    if rank == 0:
        np.savez(to, loss=loss, **gradients)
    torch.distributed.destroy_process_group()


def gradient_of(run: Run, rows: list[Any], batch: list[int]) -> tuple[float, dict[str, np.ndarray]]:
    """Return a batch's loss and gradient by parameter name."""
    with prepare(run, rows=rows, encoder=None, resume=False, overwrite=True) as parts:
        models = (each.model for each in parts.method.models.values())
        with lean_layers(models, parts.method.device):  # as the loop does
            outcome, _ = compute_gradient(parts, 0, np.array(batch))
    gradients = {
        name: torch.zeros_like(parameter).numpy() if parameter.grad is None else parameter.grad.numpy()
        for parameter, name in parts.names.items()
    }
    return outcome.loss, gradients


def train_in_process(run: Run, rows: list[Any], rank: int, count: int, meeting: str) -> None:
    """Train as one of several processes."""
    join(rank, count, meeting)
    result: Result = train(run, rows=rows, evaluate=spread, resume=True)
    torch.distributed.destroy_process_group()
    if not result.finished:
        raise SystemExit(3)


def make_word_vectors(path: Path, *, width: int = 12) -> Path:
    draw = random.Random(0)
    lines = [f"{word} {' '.join(f'{draw.gauss(0, 1):.4f}' for _ in range(width))}" for word in dict.fromkeys(WORDS)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def make_labelled(count: int) -> list[tuple[str, str, str]]:
    """Pairs whose label can be seen: the same words, other words, or a 'not' before them."""
    draw = random.Random(3)
    rows = []
    for place in range(count):
        words = draw.sample(WORDS[:60], 5)
        label = ("entailment", "neutral", "contradiction")[place % 3]
        other = {"entailment": words, "neutral": draw.sample(WORDS[60:], 5), "contradiction": ["not", *words]}
        rows.append((" ".join(words), " ".join(other[label]), label))
    return rows


def make_documents(count: int, *, lines: int = 12) -> list[str]:
    """Lines of documents in order; a document keeps to a few words of its own."""
    draw = random.Random(4)
    topics = [draw.sample(WORDS, 6) for _ in range(count)]
    return [" ".join(draw.choices(topic, k=6)) for topic in topics for _ in range(lines)]


def rows_for(name: str) -> list[Any]:
    return {
        "ct": make_sentences(40),
        "is-bert": make_sentences(40),
        "distill": make_sentences(40),
        "mlm": make_documents(8),
        "sbert": make_labelled(48),
        "infersent": make_labelled(48),
        "declutr": make_documents(8),
        **dict.fromkeys(AFTER_SIMCSE, make_sentences(40)),
    }[name]


def run_for(name: str, models: dict[str, Path], output: Path, **fields: Any) -> Run:
    """A short run of a method on a tiny model."""
    own: dict[str, Any] = {
        "ct": {"learning_rate": 3e-4},
        "sbert": {"learning_rate": 2e-3},
        "is-bert": {"learning_rate": 1e-3, "batch_size": 8},
        "declutr": {"learning_rate": 1e-3, "batch_size": 4, "max_tokens": 10},
        "infersent": {"width": 16, "learning_rate": 0.5},
        "mlm": {"learning_rate": 3e-3, "batch_size": 16},
        "distill": {"learning_rate": 1e-3, "batch_size": 16, "layers": 2, "pooler": "avg"},
        "esimcse": {"learning_rate": 1e-3, "batch_size": 8},
        "sncse": {"learning_rate": 1e-3, "batch_size": 8, "template": "the [X] is [MASK] ."}
        | {"second_template": "a word of it [X] was [MASK] !"},
        "rankcse": {"learning_rate": 1e-3, "batch_size": 8, "teacher": str(models.get("teacher"))}
        | {"teacher_pooler": "avg"},
        "diffcse": {"learning_rate": 1e-3, "batch_size": 8, "rtd_weight": 0.5},
        "promptbert": {"learning_rate": 1e-3, "batch_size": 8, "template": "the [X] is [MASK] ."}
        | {"second_template": "a word of it [X] was [MASK] !"},
    }[name]
    common = {"model": str(models[name]), "output": str(output), "steps": 3, "device": "cpu", "seed": 1}
    return Run(method=name, **(common | own | fields))


def build(run: Run, rows: list[Any]) -> Method:
    """Make a method as the loop does."""
    device, kind = torch.device("cpu"), METHODS[run.method]
    run, text = kind.read(run, InMemory(rows, label=run.label, score=run.score), model=run.model, device=device)
    torch.manual_seed(run.seed)
    return kind(Start(run=run, rows=text, device=device, processes=Processes(Accelerator(cpu=True))))


def naive_tension(anchors: Tensor, candidates: Tensor) -> float:
    total, count = 0.0, 0
    for anchor, own in zip(anchors, candidates, strict=True):
        for place, candidate in enumerate(own):
            probability = 1 / (1 + math.exp(-float(anchor @ candidate)))
            total -= math.log(probability if place == 0 else 1 - probability)
            count += 1
    return total / count


def naive_softmax(weight: Tensor, bias: Tensor, u: Tensor, v: Tensor, classes: list[int]) -> float:
    """Softmax over (u, v, |u - v|)."""
    total = 0.0
    for a, b, wanted in zip(u, v, classes, strict=True):
        features = [*a.tolist(), *b.tolist(), *(abs(float(x - y)) for x, y in zip(a, b, strict=True))]
        scores = [
            sum(w * f for w, f in zip(row, features, strict=True)) + c
            for row, c in zip(weight.tolist(), bias.tolist(), strict=True)
        ]
        total -= math.log(math.exp(scores[wanted]) / sum(map(math.exp, scores)))
    return total / len(classes)


def naive_jensen_shannon(sentences: list[Tensor], texts: list[str]) -> float:
    """Minus the estimate for sentences given as (tokens, d) of local features."""
    own, foreign = [], []
    means = [sum(local) / len(local) for local in sentences]
    for place, local in enumerate(sentences):
        for feature in local:
            for other, mean in enumerate(means):
                score = float(feature @ mean)
                if other == place:
                    own.append(math.log(2) - math.log(1 + math.exp(-score)))
                elif texts[other] != texts[place]:
                    foreign.append(math.log(1 + math.exp(score)) - math.log(2))
    return sum(foreign) / len(foreign) - sum(own) / len(own)


def naive_match(student: Tensor, teacher: Tensor, match: str) -> float:
    def cosine(a: Tensor, b: Tensor) -> float:
        return float(a @ b / a.norm() / b.norm())

    if match == "vectors":
        pairs = zip(student, teacher, strict=True)
        return sum(sum(float(x - y) ** 2 for x, y in zip(s, t, strict=True)) for s, t in pairs) / len(student)
    apart = [
        (cosine(student[i], student[j]) - cosine(teacher[i], teacher[j])) ** 2
        for i in range(len(student))
        for j in range(len(student))
        if i != j
    ]
    return sum(apart) / len(apart)


def naive_nt_xent(anchors: Tensor, positives: Tensor, temperature: float) -> float:
    vectors = [*anchors, *positives]
    n = len(anchors)

    def similarity(a: Tensor, b: Tensor) -> float:
        return math.exp(float(a @ b / a.norm() / b.norm()) / temperature)

    losses = []
    for place, vector in enumerate(vectors):
        partner = (place + n) % (2 * n)
        everything = sum(similarity(vector, each) for at, each in enumerate(vectors) if at != place)
        losses.append(-math.log(similarity(vector, vectors[partner]) / everything))
    return sum(losses) / len(losses)
