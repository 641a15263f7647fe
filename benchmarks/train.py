"""Training steps per second: twinpass and sentence-transformers' trainer, same model, data and batch, one run.

    python benchmarks/train.py --data ../shared/data

Two kinds of text: NLI triplets, and wiki sentences that are their own positives. Both libraries train the built-in
model with fused AdamW at the same rate, batches of 64, texts cut at 32 tokens, the model's own dropout, cosine over
0.05 (their scale of 20) and in-batch negatives; theirs is MultipleNegativesRankingLoss. Both run in one process with
the same threads and take turns; only steps are timed, loading and saving are not, and nothing is evaluated. Beside the
rates stand processor seconds per step, which say more on a busy machine, and the memory that steps add at their peak,
each measured in a process of its own.

    python benchmarks/train.py --data ../shared/data --memory

measures the memory alone, at batches of 256 and 512 triplets.
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
Seconds = tuple[float, float]  # per step: by the clock, and of the processor
LIBRARIES = ("twinpass", "sentence-transformers")
MAX_TOKENS, LEARNING_RATE = 32, 3e-5


def triplets(data: Path, rows: int) -> Rows:
    with gzip.open(data / "nli_triples.csv.gz", "rt", encoding="utf-8", newline="") as stream:
        return [tuple(row) for row in itertools.islice(csv.reader(stream), 1, rows + 1)]


def sentences(data: Path, rows: int) -> Rows:
    with gzip.open(data / "wiki_1m.txt.gz", "rt", encoding="utf-8") as stream:
        return [(line.strip(),) for line in itertools.islice(stream, rows)]


KINDS = {"triplets": triplets, "wiki": sentences}


class Clock:
    """Marks the end of every step."""

    def __init__(self) -> None:
        self.marks: list[Seconds] = []

    def mark(self) -> None:
        self.marks.append((time.perf_counter(), time.process_time()))

    def per_step(self) -> Seconds:
        """Return the seconds of a step, without the first, which warms up."""
        (clock, processor), (last_clock, last_processor) = self.marks[0], self.marks[-1]
        count = len(self.marks) - 1
        return (last_clock - clock) / count, (last_processor - processor) / count


def ours(rows: Rows, steps: int, batch: int, *, chunk_tokens: int | None = None) -> Seconds:
    """Return the seconds of a step."""
    from twinpass import Run, train
    from twinpass.log import Stepped

    clock = Clock()
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
        train(run, rows=rows, on_event=lambda event: clock.mark() if isinstance(event, Stepped) else None)
    return clock.per_step()


def theirs(rows: Rows, steps: int, batch: int) -> Seconds:
    """Return the seconds of a step."""
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

    clock = Clock()

    class AtStepEnd(TrainerCallback):
        def on_step_end(self, *args: object, **rest: object) -> None:
            clock.mark()

    model = SentenceTransformer(str(find_minilm()), device="cpu")
    model.max_seq_length = MAX_TOKENS
    wide = [row * 2 if len(row) == 1 else row for row in rows]
    columns = dict(
        zip(("anchor", "positive", "negative"), (list(column) for column in zip(*wide, strict=True)), strict=False)
    )
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
            model=model, args=arguments, train_dataset=Dataset.from_dict(columns), loss=loss, callbacks=[AtStepEnd()]
        )
        trainer.train()
    torch.set_grad_enabled(True)
    return clock.per_step()


def compare_speed(data: Path, steps: int, batch: int, rounds: int) -> list[dict[str, object]]:
    found = []
    for kind, make in KINDS.items():
        rows = make(data, batch * (steps + 1))
        taken: dict[str, list[Seconds]] = {library: [] for library in LIBRARIES}
        for _ in range(rounds):
            taken["twinpass"].append(ours(rows, steps, batch))
            taken["sentence-transformers"].append(theirs(rows, steps, batch))
        rates = {library: 1 / min(clock for clock, _ in times) for library, times in taken.items()}
        processor = {library: min(each for _, each in times) for library, times in taken.items()}
        first, second = LIBRARIES
        found.append(
            {
                "data": kind,
                "batch": batch,
                "steps per second": rates,
                "ratio": rates[first] / rates[second],
                "processor seconds per step": processor,
                "processor ratio": processor[second] / processor[first],
                "MB above load": {library: peak_of(data, library, batch, kind) for library in LIBRARIES},
            }
        )
    return found


def compare_memory(data: Path, batches: Sequence[int]) -> list[dict[str, object]]:
    """Return the peak above the model's own size, of both libraries and of ours in chunks."""
    found = []
    for batch in batches:
        for library, chunk in ((LIBRARIES[0], ""), (LIBRARIES[0], "4096"), (LIBRARIES[1], "")):
            name = library + (f" --chunk-tokens {chunk}" if chunk else "")
            peak = peak_of(data, library, batch, "triplets", chunk)
            found.append({"library": name, "batch": batch, "MB above load": peak})
    return found


def peak_of(data: Path, library: str, batch: int, kind: str, chunk_tokens: str = "") -> float:
    """Run `measure_peak` in a process of its own."""
    command = [sys.executable, __file__, "--data", str(data), "--peak", library, "--batch", str(batch), "--kind", kind]
    chunks = ["--chunk-tokens", chunk_tokens] if chunk_tokens else []
    done = subprocess.run([*command, *chunks], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    peak: float = json.loads(done.stdout.splitlines()[-1])
    return peak


def measure_peak(data: Path, library: str, batch: int, kind: str, chunk_tokens: int | None) -> float:
    """Return by how many MB three steps raise this process's peak memory above where the loaded model had it."""
    from twinpass import Encoder

    if library == LIBRARIES[1]:
        import datasets
        import sentence_transformers  # noqa: F401

        datasets.disable_progress_bars()
    rows = KINDS[kind](data, batch * 4)
    encoder = Encoder.load("minilm", device="cpu")
    encoder.encode(["warm up"])
    before = peak_megabytes()
    if library == LIBRARIES[0]:
        ours(rows, 3, batch, chunk_tokens=chunk_tokens)
    else:
        theirs(rows, 3, batch)
    return peak_megabytes() - before


def peak_megabytes() -> float:
    """Return the peak memory of this process, on Linux from /proc: getrusage counts the parent's before exec, too."""
    status = Path("/proc/self/status")
    if status.is_file():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peak", choices=LIBRARIES, help=argparse.SUPPRESS)
    parser.add_argument("--kind", choices=KINDS, default="triplets", help=argparse.SUPPRESS)
    parser.add_argument("--chunk-tokens", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if arguments.peak:
        options = arguments.peak, arguments.batch, arguments.kind, arguments.chunk_tokens
        print(json.dumps(measure_peak(arguments.data, *options)))
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
            for measure, ratio in (("steps per second", "ratio"), ("processor seconds per step", "processor ratio")):
                values = "  ".join(f"{name} {value:.2f}" for name, value in row[measure].items())
                print(f"{row['data']:<9} batch {row['batch']}  {measure}: {values}  {row[ratio]:.2f}x")
            memory = "  ".join(f"{name} {peak:,.0f}" for name, peak in row["MB above load"].items())
            print(f"{row['data']:<9} batch {row['batch']}  MB above the loaded model: {memory}")


if __name__ == "__main__":
    main()
