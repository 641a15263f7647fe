"""Small corpora that a baseline can learn from, and naive transcriptions of the baselines' losses."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import torch
from tests.tiny import WORDS
from tests.training.material import make_sentences
from torch import Tensor

from twinpass.encoder.runtime import choose_device
from twinpass.training.baselines import BASELINES, Baseline, BaselineRun
from twinpass.training.data import InMemory

NAMES = ("ct", "sbert", "isbert", "declutr", "infersent")


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
        "isbert": make_sentences(40),
        "sbert": make_labelled(48),
        "infersent": make_labelled(48),
        "declutr": make_documents(8),
    }[name]


def run_for(name: str, models: dict[str, Path], output: Path, **fields: Any) -> BaselineRun:
    """A short run of a baseline on a tiny model."""
    own: dict[str, Any] = {
        "ct": {"learning_rate": 3e-4},
        "sbert": {"learning_rate": 2e-3},
        "isbert": {"learning_rate": 1e-3, "batch_size": 8},
        "declutr": {"learning_rate": 1e-3, "batch_size": 4, "max_tokens": 10},
        "infersent": {"width": 16, "learning_rate": 0.5},
    }[name]
    common = {"model": str(models[name]), "output": str(output), "steps": 3, "device": "cpu", "seed": 1}
    return BaselineRun(baseline=name, **(common | own | fields))


def build(run: BaselineRun, rows: list[Any]) -> Baseline:
    """Make a baseline as the loop does."""
    torch.manual_seed(run.seed)
    return BASELINES[run.baseline](run.filled(), InMemory(rows), choose_device("cpu"))


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
