"""Sentences per second: twinpass and sentence-transformers' default encode, same model, same texts, one run.

    python benchmarks/encode.py --data ../shared/data

Three sets of texts: short STS sentences, mixed lengths (sentences and paragraphs), and the STS sentences with 30 %
duplicates. The two libraries take turns, so that a busy machine slows both; the ratio is of their best rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

Encode = Callable[[list[str]], np.ndarray]


def sts_sentences(data: Path, count: int) -> list[str]:
    rows: list[str] = []
    for split in ("train", "dev", "test"):
        path = data / "senteval/downstream/STS/STSBenchmark" / f"sts-{split}.csv"
        for line in path.read_text(encoding="utf-8").splitlines():
            rows += line.split("\t")[5:7]
    return random.Random(0).sample(sorted(set(rows)), count)


def mixed_lengths(data: Path, count: int) -> list[str]:
    """Half sentences, half paragraphs of 2 to 8 review sentences."""
    reviews = (data / "senteval/downstream/MR/rt-polarity.neg").read_text(encoding="latin-1").splitlines()
    rng = random.Random(0)
    paragraphs = [" ".join(rng.sample(reviews, rng.randint(2, 8))) for _ in range(count // 2)]
    texts = paragraphs + sts_sentences(data, count - len(paragraphs))
    rng.shuffle(texts)
    return texts


def with_duplicates(data: Path, count: int) -> list[str]:
    distinct = sts_sentences(data, int(count * 0.7))
    rng = random.Random(0)
    texts = distinct + rng.choices(distinct, k=count - len(distinct))
    rng.shuffle(texts)
    return texts


def best_rates(encoders: dict[str, Encode], texts: list[str], rounds: int) -> dict[str, float]:
    """Let the encoders take turns and return each one's best sentences per second."""
    best = dict.fromkeys(encoders, 0.0)
    for _ in range(rounds):
        for name, encode in encoders.items():
            start = time.perf_counter()
            encode(texts)
            best[name] = max(best[name], len(texts) / (time.perf_counter() - start))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--onnx", action="store_true", help="measure our onnx runtime as well")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")

    import sentence_transformers

    from twinpass import Encoder
    from twinpass.encoder.load import find_minilm

    peer = sentence_transformers.SentenceTransformer(str(find_minilm()), device="cpu")
    encoders: dict[str, Encode] = {"twinpass": Encoder.load("minilm", device="cpu").encode}
    if arguments.onnx:
        encoders["twinpass-onnx"] = Encoder.load("minilm", device="cpu", runtime="onnx").encode
    encoders["sentence-transformers"] = lambda texts: peer.encode(texts, show_progress_bar=False)

    rows = []
    for name, make in (("sts", sts_sentences), ("mixed", mixed_lengths), ("duplicates", with_duplicates)):
        texts = make(arguments.data, arguments.texts)
        vectors = {which: encode(texts[:256]) for which, encode in encoders.items()}
        difference = max(float(np.abs(each - vectors["sentence-transformers"]).max()) for each in vectors.values())
        rates = best_rates(encoders, texts, arguments.rounds)
        rows.append({"texts": name, "rates": rates, "largest difference": difference})
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    theirs = "sentence-transformers"
    print(
        f"sentences per second, best of {arguments.rounds} rounds of {arguments.texts} texts "
        f"(peer {sentence_transformers.__version__})"
    )
    for row in rows:
        rates = row["rates"]
        ours = "  ".join(
            f"{name} {rate:,.0f} ({rate / rates[theirs]:.2f}x)" for name, rate in rates.items() if name != theirs
        )
        print(
            f"{row['texts']:<11} {ours}  {theirs} {rates[theirs]:,.0f}  max difference {row['largest difference']:.1e}"
        )


if __name__ == "__main__":
    main()
