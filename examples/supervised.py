"""Supervised SimCSE: train on pairs with the same meaning, and on hard negatives if there are any.

    python examples/supervised.py                          # summaries and descriptions from docstrings
    python examples/supervised.py --data nli.csv --steps 250 --output my-model

Two columns are pairs (Eq. 1). Three columns are pairs with a hard negative (Eq. 5), such as a premise, an entailed
and a contradicting hypothesis. The score is recall@1 on held-out pairs.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence

import numpy as np

from twinpass import Run, open_corpus, train
from twinpass.log import Evaluated, Event, Started, Stepped


def split(rows: list[tuple[str, ...]], held_out: int) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Shuffle the rows and split them into training and held-out rows."""
    random.Random(0).shuffle(rows)
    return rows[held_out:], rows[:held_out]


def retrieval(pairs: list[tuple[str, ...]]) -> Callable[..., float]:
    """Return a function that scores an encoder by the share of texts whose nearest candidate is their partner."""

    def score(encode: Callable[[Sequence[str]], np.ndarray]) -> float:
        queries, candidates = (unit(encode([pair[side] for pair in pairs])) for side in (0, 1))
        return float(((queries @ candidates.T).argmax(axis=1) == np.arange(len(pairs))).mean())

    return score


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors to length one."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-12)


def show(event: Event) -> None:
    """Print every tenth step and every evaluation."""
    if isinstance(event, Started):
        print(f"{event.rows} rows, {event.view} because {event.why}, lexical overlap {event.lexical_overlap:.0%}")
    if isinstance(event, Stepped) and event.step % 10 == 0:
        print(f"step {event.step}/{event.steps}  loss {event.loss:.4f}  {event.sentences_per_second:.0f} sentences/s")
    if isinstance(event, Evaluated):
        print(f"step {event.step}  recall@1 {event.score:.3f}{'  (best)' if event.best else ''}")


def main() -> None:
    """Train on some pairs, and evaluate on the held-out ones."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="docs-pairs:numpy,scipy", help="a file of two or three text columns")
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--output", default="supervised-model")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--held-out", type=int, default=200)
    options = parser.parse_args()

    rows = [row.texts for row in open_corpus(options.data)]
    training, dev = split(rows, options.held_out)
    fields = {name: value for name, value in vars(options).items() if name != "held_out"}
    run = Run(**fields, learning_rate=5e-5, max_tokens=64, eval_every=20)
    result = train(run, rows=training, evaluate=retrieval(dev), on_event=show)
    print(f"recall@1 {result.before['score']:.3f} -> {result.best['score']:.3f}; the model is in {result.output}")


if __name__ == "__main__":
    main()
