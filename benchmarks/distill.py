"""Students beside their teacher: fewer layers, static, and model2vec's static model of the same teacher, in one run.

    python benchmarks/distill.py --data ../shared/data
    python benchmarks/distill.py --data ../shared/data --student FOLDER --tasks STS-B    # a student trained before

The student with layers is trained on sentences of Wikipedia; the tokens of the static one are weighted by the same
sentences. model2vec distils with its defaults (256 dimensions, Zipf's law). Rates: all take turns on Wikipedia
sentences that no student has learned from, a rate is that of the best round; a faster model gets more texts in a
round. Scores: Spearman x 100 of the STS tasks, with 95 % intervals.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import itertools
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Encode = Callable[[list[str]], np.ndarray]
TEACHER, LAYERS, STATIC, PEER = "teacher", "student with layers", "static student", "model2vec"


def wikipedia(data: Path, start: int, count: int) -> list[str]:
    with gzip.open(data / "wiki_1m.txt.gz", "rt", encoding="utf-8") as lines:
        return [line.strip() for line in itertools.islice(filter(str.strip, lines), start, start + count)]


def best_rates(encoders: dict[str, Encode], texts: dict[str, list[str]], rounds: int) -> dict[str, float]:
    """Let the models take turns and return each one's best sentences per second; a round has texts of its own."""
    best = dict.fromkeys(encoders, 0.0)
    for number in range(rounds):
        for name, encode in encoders.items():
            some = texts[name][number::rounds]
            start = time.perf_counter()
            encode(some)
            best[name] = max(best[name], len(some) / (time.perf_counter() - start))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--teacher", default="minilm")
    parser.add_argument("--student", type=Path, help="a student with layers that was distilled before")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--sentences", type=int, default=40_000, help="sentences of Wikipedia to learn from")
    parser.add_argument("--tasks", default="sts")
    parser.add_argument("--texts", type=int, default=200, help="texts of a round, for the teacher")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")

    import model2vec
    from model2vec.distill import distill as peer_distill

    import twinpass
    from twinpass import Encoder
    from twinpass.encoder.load import find_folder

    learned = wikipedia(arguments.data, 0, arguments.sentences)
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as aside, contextlib.redirect_stderr(io.StringIO()):
        teacher = Encoder.load(arguments.teacher, device="cpu")
        models: dict[str, Any] = {TEACHER: teacher}
        if arguments.student is None:
            start, folder = time.perf_counter(), Path(aside) / "layers"
            options = {"layers": arguments.layers, "steps": arguments.steps, "tasks": [], "device": "cpu"}
            twinpass.distill(teacher, learned, output=folder, **options)
            seconds[LAYERS] = time.perf_counter() - start
        models[LAYERS] = Encoder.load(arguments.student or folder, device="cpu")
        start = time.perf_counter()
        twinpass.distill(teacher, learned, output=Path(aside) / "static", static=True, tasks=[])
        models[STATIC], seconds[STATIC] = Encoder.load(Path(aside) / "static"), time.perf_counter() - start
        start = time.perf_counter()
        peer = peer_distill(str(find_folder(arguments.teacher)), device="cpu")
        models[PEER], seconds[PEER] = peer, time.perf_counter() - start
        encoders: dict[str, Encode] = {name: model.encode for name, model in models.items()}
        fresh = wikipedia(arguments.data, 100_000, 100 * arguments.texts * arguments.rounds)
        few = fresh[: arguments.texts * arguments.rounds]
        texts = {name: fresh if name in (STATIC, PEER) else few for name in models}
        for encode in encoders.values():
            encode(learned[:300])  # warm
        rates = best_rates(encoders, texts, arguments.rounds)
        rows = []
        for name, model in models.items():
            judged = model if isinstance(model, Encoder) else encoders[name]
            found = twinpass.evaluate(judged, arguments.tasks, data=arguments.data / "senteval", cache=name == TEACHER)
            averages = [score for score in found.averages if score.metric == "spearman"]
            score = averages[0] if averages else found.tasks[0].scores[0]
            row = {"model": name, "sentences_per_second": rates[name], "times_teacher": rates[name] / rates[TEACHER]}
            row |= {"score": score.value, "low": score.low, "high": score.high, "seconds_to_make": seconds.get(name)}
            rows.append(row)
    ratio = rates[STATIC] / rates[PEER]
    if arguments.json:
        document = {"rows": rows, "static_over_model2vec": ratio, "model2vec": model2vec.__version__}
        print(json.dumps(document | {"tasks": arguments.tasks, "teacher": arguments.teacher}, indent=2))
        return
    print(f"teacher {arguments.teacher}, {arguments.tasks}, model2vec {model2vec.__version__}")
    for row in rows:
        made = "" if row["seconds_to_make"] is None else f"   made in {row['seconds_to_make']:.0f} s"
        print(
            f"{row['model']:<20} {row['sentences_per_second']:>10,.0f} /s {row['times_teacher']:>8.1f}x   "
            f"{row['score']:.2f} [{row['low']:.2f}, {row['high']:.2f}]{made}"
        )
    print(f"static student over model2vec: {ratio:.2f}x the sentences/s")


if __name__ == "__main__":
    main()
