"""Training steps per second: twinpass and sentence-transformers' trainer, same model, data and batch, one run.

    python benchmarks/train.py --data ../shared/data

Two kinds of text: NLI triplets, and wiki sentences that are their own positives. Both libraries train the built-in
model with AdamW at the same rate, batches of 64, texts cut at 32 tokens, cosine over 0.05 (their scale of 20) and
in-batch negatives; theirs is MultipleNegativesRankingLoss. Only steps are timed: loading and saving are not. They take
turns.

    python benchmarks/train.py --data ../shared/data --memory

measures instead the memory that a step adds at its peak, at batches of 256 and 512 triplets, each in a process of its
own.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

Rows = list[tuple[str, ...]]
LIBRARIES = ("twinpass", "sentence-transformers")
MAX_TOKENS, LEARNING_RATE = 32, 3e-5


def triplets(data: Path, rows: int) -> Rows:
    with gzip.open(data / "nli_triples.csv.gz", "rt", encoding="utf-8", newline="") as stream:
        return [tuple(row) for row in itertools.islice(csv.reader(stream), 1, rows + 1)]


def sentences(data: Path, rows: int) -> Rows:
    with gzip.open(data / "wiki_1m.txt.gz", "rt", encoding="utf-8") as stream:
        return [(line.strip(),) for line in itertools.islice(stream, rows)]


def ours(rows: Rows, steps: int, batch: int, *, chunk_tokens: int | None = None) -> float:
    """Return the seconds of the steps."""
    from twinpass import Run, train
    from twinpass.log import Stepped

    marks: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        run = Run(
            model="minilm",
            output=f"{folder}/out",
            steps=steps,
            batch_size=batch,
            max_tokens=MAX_TOKENS,
            learning_rate=LEARNING_RATE,
            save_every=10**9,
            device="cpu",
            chunk_tokens=chunk_tokens,
        )
        train(
            run,
            rows=rows,
            on_event=lambda event: marks.append(time.perf_counter()) if isinstance(event, Stepped) else None,
        )
    return (marks[-1] - marks[0]) / (len(marks) - 1) * steps


def theirs(rows: Rows, steps: int, batch: int) -> float:
    """Return the seconds of the steps."""
    import torch
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from transformers import TrainerCallback

    from twinpass.encoder.load import find_minilm

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.marks: list[float] = []

        def on_step_end(self, *args: object, **rest: object) -> None:
            self.marks.append(time.perf_counter())

    model = SentenceTransformer(str(find_minilm()), device="cpu")
    model.max_seq_length = MAX_TOKENS
    wide = [row * 2 if len(row) == 1 else row for row in rows]
    columns = dict(
        zip(("anchor", "positive", "negative"), (list(column) for column in zip(*wide, strict=True)), strict=False)
    )
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=batch,
            learning_rate=LEARNING_RATE,
            optim="adamw_torch_fused",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            logging_strategy="no",
        )
        loss = MultipleNegativesRankingLoss(model, scale=20.0)
        trainer = SentenceTransformerTrainer(
            model=model, args=arguments, train_dataset=Dataset.from_dict(columns), loss=loss, callbacks=[clock]
        )
        trainer.train()
    torch.set_grad_enabled(True)
    return (clock.marks[-1] - clock.marks[0]) / (len(clock.marks) - 1) * steps


def compare_speed(data: Path, steps: int, batch: int, rounds: int) -> list[dict[str, object]]:
    found = []
    for name, make in (("triplets", triplets), ("wiki", sentences)):
        rows = make(data, batch * (steps + 1))
        seconds: dict[str, list[float]] = {library: [] for library in LIBRARIES}
        for _ in range(rounds):
            seconds["twinpass"].append(ours(rows, steps, batch))
            seconds["sentence-transformers"].append(theirs(rows, steps, batch))
        rates = {library: steps / min(times) for library, times in seconds.items()}
        ratio = rates["twinpass"] / rates["sentence-transformers"]
        found.append({"data": name, "batch": batch, "steps per second": rates, "ratio": ratio})
    return found


def compare_memory(data: Path, batches: Sequence[int]) -> list[dict[str, object]]:
    """Run each library in a process of its own and return the peak above the model's own size."""
    found = []
    for batch in batches:
        for library, chunk in ((LIBRARIES[0], ""), (LIBRARIES[0], "4096"), (LIBRARIES[1], "")):
            command = [sys.executable, __file__, "--data", str(data), "--peak", library, "--batch", str(batch)]
            done = subprocess.run(
                [*command, *(["--chunk-tokens", chunk] if chunk else [])], capture_output=True, text=True
            )
            if done.returncode:
                raise SystemExit(done.stderr)
            peak = json.loads(done.stdout.splitlines()[-1])
            found.append(
                {
                    "library": library + (f" --chunk-tokens {chunk}" if chunk else ""),
                    "batch": batch,
                    "MB above load": peak,
                }
            )
    return found


def measure_peak(data: Path, library: str, batch: int, chunk_tokens: int | None) -> float:
    """Return by how many MB two steps raise this process's peak memory above where the loaded model had it."""
    from twinpass import Encoder

    if library == LIBRARIES[1]:
        import datasets
        import sentence_transformers  # noqa: F401

        datasets.disable_progress_bars()
    rows = triplets(data, batch * 3)
    encoder = Encoder.load("minilm", device="cpu")
    encoder.encode(["warm up"])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if library == LIBRARIES[0]:
        ours(rows, 2, batch, chunk_tokens=chunk_tokens)
    else:
        theirs(rows, 2, batch)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peak", choices=LIBRARIES, help=argparse.SUPPRESS)
    parser.add_argument("--chunk-tokens", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if arguments.peak:
        print(json.dumps(measure_peak(arguments.data, arguments.peak, arguments.batch, arguments.chunk_tokens)))
        return
    if arguments.memory:
        rows = compare_memory(arguments.data, (256, 512))
    else:
        rows = compare_speed(arguments.data, arguments.steps, arguments.batch, arguments.rounds)
    if arguments.json:
        print(json.dumps(rows, indent=2))
    elif arguments.memory:
        for row in rows:
            print(f"batch {row['batch']}  {row['library']:<30} {row['MB above load']:>8,.0f} MB above the loaded model")
    else:
        for row in rows:
            rates = "  ".join(f"{name} {rate:.2f}" for name, rate in row["steps per second"].items())
            print(f"{row['data']:<9} batch {row['batch']}  steps/s: {rates}  ratio {row['ratio']:.2f}x")


if __name__ == "__main__":
    main()
