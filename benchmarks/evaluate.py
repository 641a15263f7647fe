"""Wall time of an evaluation, cold: twinpass, and a plain loop that does as SentEval does, over the same model.

    python benchmarks/evaluate.py --data ../shared/data/senteval --tasks sts --every 1
    python benchmarks/evaluate.py --data ../shared/data/senteval --tasks transfer --every 20 --fits 6

The plain loop encodes batch after batch of 128 (for pairs: one side, then the other), every split of every task, and
fits one logistic regression after another. Because it takes hours, `--every K` times each K-th of its batches and
`--fits N` a spread of N of its fits, and both are multiplied up; `--every 1 --fits 0` runs all of it. `--warm` leaves
encoding out on both sides and compares the fitting alone. On a busy machine `--cpu` (with OMP_NUM_THREADS=1) counts
seconds of the processor instead of the clock on the wall.

Both models are loaded before any clock starts. Our time is that of all the rest of `evaluate`: reading the data,
hashing the model, encoding, scoring, intervals; of the plain loop, encoding and fitting alone are timed. Where openvino
is installed, twinpass is timed in int8 too (`--no-int8` leaves that out), with the scores of both beside each other.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from twinpass.encoder.any_model import Encode, open_model
from twinpass.encoder.encoder import Encoder
from twinpass.encoder.vector_cache import Cache, encode_once
from twinpass.errors import UserError
from twinpass.evaluation.evaluate import Settings, evaluate
from twinpass.evaluation.logistic import Fold
from twinpass.evaluation.protocols import TRANSFER, TransferProtocol
from twinpass.evaluation.reading import Data, read_task, senteval_order
from twinpass.evaluation.tasks import Task, choose
from twinpass.evaluation.transfer import cross_validation, hold_out, text_features

BATCH = 128
clock = time.perf_counter


class PlainEncoder:
    """The built-in model as a script would run it: tokenize a batch, pad it, average its last layer."""

    def __init__(self) -> None:
        from transformers import AutoModel, AutoTokenizer

        from twinpass.encoder.load import find_minilm

        folder = find_minilm()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder).eval()

    @torch.no_grad()
    def __call__(self, texts: list[str]) -> np.ndarray:
        batch = self.tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
        states = self.model(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1)
        return ((states * mask).sum(1) / mask.sum(1)).numpy()


def senteval_batches(data: Data) -> Iterator[list[str]]:
    """Batches in SentEval's order: each part sorted by length; both sides of a pair in turn."""
    for rows in data.parts.values():
        ordered = sorted(rows.texts, key=lambda texts: [len(text.split()) for text in texts])
        for start in range(0, len(ordered), BATCH):
            yield from (list(side) for side in zip(*ordered[start : start + BATCH], strict=True))


def time_plain_encoding(encode: PlainEncoder, data: Data, every: int) -> tuple[float, int]:
    """Seconds for all batches, from each `every`-th; and how many sentences they hold."""
    batches = list(senteval_batches(data))
    timed = batches[:: min(every, len(batches))]
    started = clock()
    for batch in timed:
        encode(batch)
    seconds = clock() - started
    sentences = sum(map(len, batches))
    return seconds * sentences / sum(map(len, timed)), sentences


def fit_one(x: torch.Tensor, y: torch.Tensor, fold: Fold, l2: float, classes: int, protocol: TransferProtocol) -> float:
    """One logistic regression, the usual way."""
    np.random.seed(protocol.seed)
    torch.manual_seed(protocol.seed)
    train_x, train_y, dev_x, dev_y = x[fold.train], y[fold.train], x[fold.dev], y[fold.dev]
    model = torch.nn.Sequential(torch.nn.Linear(x.shape[1], classes))
    kind = torch.optim.Adam if protocol.optimizer == "adam" else torch.optim.RMSprop
    optimizer = kind(model.parameters(), weight_decay=l2)
    loss_function = torch.nn.CrossEntropyLoss()
    best, best_accuracy, misses, epochs, stop = model, -1.0, 0, 0, False
    while not stop and epochs <= protocol.max_epochs:
        for _ in range(protocol.epoch_size):
            order = np.random.permutation(len(train_x))
            for start in range(0, len(train_x), protocol.batch_size):
                rows = torch.from_numpy(order[start : start + protocol.batch_size])
                loss = loss_function(model(train_x[rows]), train_y[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        epochs += protocol.epoch_size
        with torch.no_grad():
            accuracy = (model(dev_x).argmax(1) == dev_y).float().mean().item()
        if accuracy > best_accuracy:
            best_accuracy, best = accuracy, copy.deepcopy(model)
        else:
            stop, misses = misses >= protocol.tenacity, misses + 1
    return best_accuracy if best is not None else 0.0


def all_fits(task: Task, y: np.ndarray, sizes: dict[str, int], protocol: TransferProtocol) -> list[tuple[Fold, float]]:
    """Every fit of SentEval's procedure; the refits take the middle L2, whichever would be chosen."""
    k, seed = protocol.folds, protocol.seed
    if task.protocol == "splits":
        rows = np.arange(len(y))
        fold = Fold(rows[: sizes["train"]], rows[sizes["train"] : sizes["train"] + sizes["dev"]])
        return [(fold, l2) for l2 in (*protocol.l2, protocol.l2[1])]
    pool = np.arange(len(y) if task.protocol == "folds" else sizes["train"])
    outer = cross_validation(pool, y, k, seed=seed) if task.protocol == "folds" else [Fold(pool, pool)]
    inner = [fold for o in outer for fold in cross_validation(o.train, y, k, seed=seed)]
    fits = [(fold, l2) for fold in inner for l2 in protocol.l2]
    return fits + [(hold_out(o.train, protocol.held_out, seed=seed), protocol.l2[1]) for o in outer]


def time_plain_fits(data: Data, encode: Encode, protocol: TransferProtocol, limit: int) -> tuple[float, int]:
    """Seconds for all fits of a task, from a spread of them; and how many there are."""
    task = data.task
    groups = [tuple(data.parts)] if task.protocol == "folds" else [(name,) for name in data.parts]
    parts = [senteval_order([data.parts[name] for name in group]) for group in groups]
    x = torch.from_numpy(text_features(encode, [row for part in parts for row in part.texts]))
    y = np.array([target for part in parts for target in part.targets], dtype=np.int64)
    fits = all_fits(task, y, {name: len(rows.texts) for name, rows in data.parts.items()}, protocol)
    timed = fits[:: -(-len(fits) // limit)] if limit else fits
    started = clock()
    for fold, l2 in timed:
        fit_one(x, torch.from_numpy(y), fold, l2, task.classes, protocol)
    return (clock() - started) * len(fits) / len(timed), len(fits)


def time_ours(tasks: str, settings: Settings, encoder: Encoder, *, warm: bool) -> dict[str, float]:
    name = "ours" if encoder.precision == "fp32" else f"ours, {encoder.precision}"
    marks = [clock()]

    def log(line: str) -> None:
        if line.startswith("encoded"):
            marks.append(clock())
        print(f"  {name}:", line, flush=True)

    found = evaluate(encoder, tasks, data=settings.data, protocol=settings.protocol, cache=warm, log=log)
    marks.append(clock())
    for average in found.averages:
        print(f"  {name}: Avg. {average.value:.2f} ({average.protocol})", flush=True)
    encoding, scoring = marks[1] - marks[0], marks[-1] - marks[1]
    return {name: encoding + scoring, f"{name}, encoding": encoding, f"{name}, scoring": scoring}


def load_int8() -> Encoder | str:
    """The built-in model in int8, or the reason why it cannot be had; made and cached before any clock starts."""
    if find_spec("openvino") is None or find_spec("twinpass.encoder.runtime.openvino") is None:
        return "openvino is not installed"
    try:
        return Encoder.load("minilm", device="cpu", runtime="openvino", precision="int8")
    except UserError as error:
        return str(error)


def time_plain(
    encoder: PlainEncoder, tasks: list[Task], settings: Settings, every: int, fits: int, *, warm: bool
) -> dict[str, float]:
    encoding = fitting = 0.0
    for task in tasks:
        data = read_task(task, settings.data)
        taken, sentences = (0.0, 0) if warm else time_plain_encoding(encoder, data, every)
        encoding += taken
        line = f"{task.name}: {sentences:,} sentences {taken:.0f} s"
        if task.kind == "transfer":
            # On random vectors the fits would stop early, so they are given the model's own.
            texts = (text for rows in data.parts.values() for row in rows.texts for text in row)
            lookup = encode_once(open_model("minilm"), texts, cache=Cache())
            fitted, count = time_plain_fits(data, lookup, TRANSFER[settings.protocol], fits)
            fitting += fitted
            line += f", {count} fits {fitted:.0f} s"
        print("  plain:", line, flush=True)
    return {"plain": encoding + fitting, "plain, encoding": encoding, "plain, fitting": fitting}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tasks", default="sts,transfer")
    parser.add_argument("--protocol", default="full")
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--fits", type=int, default=10)
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--no-int8", dest="int8", action="store_false")
    options = parser.parse_args()
    if options.cpu:
        global clock
        clock = time.process_time
    settings = Settings(data=options.data, protocol=options.protocol)
    plain = PlainEncoder()
    seconds = time_ours(options.tasks, settings, Encoder.load("minilm", device="cpu"), warm=options.warm)
    int8 = load_int8() if options.int8 else "not asked for"
    if isinstance(int8, str):
        print(f"  int8 is left out: {int8}", flush=True)
    else:
        seconds |= time_ours(options.tasks, settings, int8, warm=options.warm)
    seconds |= time_plain(plain, choose(options.tasks), settings, options.every, options.fits, warm=options.warm)
    print(json.dumps({name: round(value, 1) for name, value in seconds.items()}, indent=2))
    if not options.warm:
        for name in ("ours", "ours, int8"):
            if name in seconds:
                print(f"{options.tasks}: {name} {seconds['plain'] / seconds[name]:.2f}x the plain loop")
    if seconds["plain, fitting"]:
        print(f"fitting alone: {seconds['plain, fitting'] / seconds['ours, scoring']:.1f}x")


if __name__ == "__main__":
    main()
