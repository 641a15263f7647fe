"""Unsupervised SimCSE: train on single sentences, with dropout as the only noise.

    python examples/unsupervised.py                        # the built-in model and corpus, a few minutes
    python examples/unsupervised.py --data my.txt --steps 250 --output my-model

Every sentence is encoded twice. The two vectors differ only by the dropout masks of the two passes. They are
pulled together and pushed away from the other sentences of the batch (Eq. 4).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np
import torch

from twinpass import Encoder, Run, train
from twinpass.equations import uniformity
from twinpass.log import Evaluated, Event, Stepped

PROBES = [
    "Return the sorted elements of an array.",
    "Sort an array and give it back.",
    "Raise an error if the file does not exist.",
]


def spread(encode: Callable[[Sequence[str]], np.ndarray]) -> dict[str, float]:
    """Score an encoder by how much closer a paraphrase is than an unrelated sentence."""
    sentence, paraphrase, other = vectors = encode(PROBES)
    gap = cosine(sentence, paraphrase) - cosine(sentence, other)
    return {"score": gap, "uniformity": uniformity(torch.from_numpy(vectors)).item()}


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Return the cosine of two vectors."""
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def show(event: Event) -> None:
    """Print every tenth step and every evaluation."""
    if isinstance(event, Stepped) and event.step % 10 == 0:
        print(f"step {event.step}/{event.steps}  loss {event.loss:.4f}  {event.sentences_per_second:.0f} sentences/s")
    if isinstance(event, Evaluated):
        print(f"step {event.step}  " + "  ".join(f"{name} {value:.4f}" for name, value in event.scores.items()))


def main() -> None:
    """Train, and encode with the trained model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="docs:numpy", help="sentences, one per line, or docs:, the built-in corpus")
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--output", default="unsupervised-model")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()

    run = Run(**vars(options), view="dropout", learning_rate=3e-5, temperature=0.05, eval_every=20)
    result = train(run, evaluate=spread, on_event=show)
    print(f"{result.steps} steps in {result.seconds:.0f} s; the model is in {result.output}")
    print(Encoder.load(result.output).encode(PROBES).shape)


if __name__ == "__main__":
    main()
