"""Sentences per second: twinpass and sentence-transformers, same model, same texts, one run.

    python benchmarks/encode.py --data ../shared/data --sts
    python benchmarks/encode.py --data ../shared/data --sts --model FOLDER    # a SimCSE-trained DistilBERT, say

Rows: sentence-transformers with torch (its default), with its OpenVINO backend in fp32 and in static int8; twinpass
with torch, with openvino in fp32 and in int8. Both int8 models are calibrated on 300 Wikipedia sentences. The peer's
OpenVINO backend needs optimum-intel, which pins other versions than ours: it runs in an environment of its own, made
on demand in the cache folder; where that cannot be had, its rows say why.

Two sets of texts: short STS sentences, and mixed lengths (sentences and paragraphs). All take turns, so that a busy
machine slows all of them; a rate is that of the best round. A round gets texts that no earlier round had, so that no
library profits from shapes or texts it has seen.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Encode = Callable[[list[str]], tuple[float, np.ndarray]]  # texts to seconds and vectors
PEER = "sentence-transformers torch"
# Without their dependencies: what is not listed comes from this environment, above all torch.
PEER_NEEDS = (
    "optimum-intel==2.2.0",
    "optimum~=2.3.0",
    "transformers<5.6",
    "huggingface-hub<1.22",
    "tokenizers<=0.23.0",
)
PEER_NEEDS += ("datasets<4.5",)

# Runs in the peer's environment: one line of JSON for each question, one for each answer.
WORKER = """
import json, os, sys, time, warnings
warnings.simplefilter("ignore")
out, sys.stdout = sys.stdout, sys.stderr
import numpy
from sentence_transformers import SentenceTransformer
folder, precision, calibration, target, threads = sys.argv[1:]
import torch
torch.set_num_threads(int(threads))
model = SentenceTransformer(folder, backend="openvino", device="cpu")
if precision == "int8":
    from optimum.intel import OVQuantizationConfig
    from sentence_transformers import export_static_quantized_openvino_model
    model.save_pretrained(target)
    export_static_quantized_openvino_model(
        model, OVQuantizationConfig(num_samples=300), target, dataset_name=calibration, dataset_config_name="default",
        dataset_split="train", column_name="text",
    )
    (name,) = [name for name in os.listdir(os.path.join(target, "openvino")) if "quantized" in name and name.endswith(".xml")]
    model = SentenceTransformer(target, backend="openvino", device="cpu", model_kwargs={"file_name": "openvino/" + name})
print(json.dumps({"ready": True}), file=out, flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    start = time.perf_counter()
    vectors = model.encode(asked["texts"], show_progress_bar=False)
    seconds = time.perf_counter() - start
    numpy.save(asked["output"], vectors)
    print(json.dumps({"seconds": seconds}), file=out, flush=True)
"""  # noqa: E501


def sts_sentences(data: Path, count: int, *, seed: int = 0) -> list[str]:
    rows: list[str] = []
    for split in ("train", "dev", "test"):
        path = data / "senteval/downstream/STS/STSBenchmark" / f"sts-{split}.csv"
        for line in path.read_text(encoding="utf-8").splitlines():
            rows += line.split("\t")[5:7]
    return random.Random(seed).sample(sorted(set(rows)), count)


def mixed_lengths(data: Path, count: int, *, seed: int = 0) -> list[str]:
    """Half sentences, half paragraphs of 2 to 8 review sentences."""
    reviews = (data / "senteval/downstream/MR/rt-polarity.neg").read_text(encoding="latin-1").splitlines()
    rng = random.Random(seed)
    paragraphs = [" ".join(rng.sample(reviews, rng.randint(2, 8))) for _ in range(count // 2)]
    texts = paragraphs + sts_sentences(data, count - len(paragraphs), seed=seed)
    rng.shuffle(texts)
    return texts


def wikipedia(data: Path, count: int) -> list[str]:
    with gzip.open(data / "wiki_1m.txt.gz", "rt", encoding="utf-8") as lines:
        return random.Random(0).sample([line.strip() for line in itertools.islice(lines, 20_000)], count)


def timed(encode: Callable[[list[str]], np.ndarray]) -> Encode:
    def run(texts: list[str]) -> tuple[float, np.ndarray]:
        start = time.perf_counter()
        vectors = encode(texts)
        return time.perf_counter() - start, vectors

    return run


class Peer:
    """sentence-transformers' OpenVINO backend, in a process of its own environment."""

    def __init__(self, python: Path, model: Path, precision: str, calibration: Path, aside: Path, threads: int) -> None:
        self.vectors = aside / f"{precision}.npy"
        command = [str(python), "-c", WORKER, str(model), precision, str(calibration), str(aside / precision)]
        self.log = (aside / f"{precision}.log").open("w+")
        self.process = subprocess.Popen(
            [*command, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        self._answer()

    def __call__(self, texts: list[str]) -> tuple[float, np.ndarray]:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"texts": texts, "output": str(self.vectors)}) + "\n")
        self.process.stdin.flush()
        return self._answer()["seconds"], np.load(self.vectors)

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.log.seek(0)
            said = self.log.read().strip().splitlines()
            raise RuntimeError(said[-1] if said else f"it ended with {self.process.returncode}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def peer_environment(place: Path) -> Path:
    """Return the interpreter of the peer's environment: this one's packages, and over them what optimum-intel pins."""
    python = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not (place / "complete").exists():
        venv.create(place, with_pip=True, clear=True)
        packages = subprocess.check_output(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
        ).strip()
        ours = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
        (Path(packages) / "parent.pth").write_text("\n".join(ours) + "\n")
        done = subprocess.run(
            [python, "-m", "pip", "install", "-q", "--no-deps", *PEER_NEEDS], capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or ["pip failed"])[-1])
        (place / "complete").touch()
    return python


def best_rates(encoders: dict[str, Encode], rounds: list[list[str]]) -> dict[str, float]:
    """Let the encoders take turns, each round with other texts, and return each one's best sentences per second."""
    best = dict.fromkeys(encoders, 0.0)
    for texts in rounds:
        for name, encode in encoders.items():
            best[name] = max(best[name], len(texts) / encode(texts)[0])
    return best


def cosines(vectors: np.ndarray, reference: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(reference, axis=1)
    return (vectors * reference).sum(axis=1) / lengths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument(
        "--model", default="minilm", help="minilm, or a model folder (a SimCSE-trained DistilBERT, say)"
    )
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sts", action="store_true", help="also measure Avg. of the 7 STS tasks in fp32 and int8")
    parser.add_argument("--no-peer-openvino", action="store_true", help="leave the peer's OpenVINO backend out")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")

    import sentence_transformers
    import torch

    import twinpass
    from twinpass import Encoder
    from twinpass.encoder.load import find_folder
    from twinpass.files import cache_folder

    data, folder = arguments.data, find_folder(arguments.model)
    calibration, skipped = wikipedia(data, 800), dict[str, str]()
    peer = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    encoders: dict[str, Encode] = {PEER: timed(lambda texts: peer.encode(texts, show_progress_bar=False))}
    with tempfile.TemporaryDirectory() as temporary:
        aside = Path(temporary)
        (aside / "calibration").mkdir()
        (aside / "calibration" / "train.txt").write_text("\n".join(calibration[:300]) + "\n", encoding="utf-8")
        peers = []
        for precision in () if arguments.no_peer_openvino else ("fp32", "int8"):
            name = f"sentence-transformers OpenVINO {precision}"
            try:
                python = peer_environment(cache_folder("bench") / "optimum-intel")
                worker = Peer(python, folder, precision, aside / "calibration", aside, torch.get_num_threads())
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                skipped[name] = str(error)[:200]
                continue
            peers.append(worker)
            encoders[name] = worker
        fp32 = Encoder.load(arguments.model, device="cpu")
        quantized = twinpass.quantize(fp32, calibration, output=aside / "twinpass-int8", minimum_cosine=0)
        int8 = Encoder.load(aside / "twinpass-int8")
        encoders["twinpass torch fp32"] = timed(fp32.encode)
        encoders["twinpass openvino fp32"] = timed(Encoder.load(arguments.model, runtime="openvino").encode)
        encoders["twinpass openvino int8"] = timed(int8.encode)
        sets = []
        for name, make in (("sts", sts_sentences), ("mixed", mixed_lengths)):
            count, warm = arguments.texts, 64
            pool = make(data, warm + arguments.rounds * count)  # cut, so that no two rounds share a text
            for encode in encoders.values():
                encode(pool[:warm])
            rounds = [pool[start : start + count] for start in range(warm, len(pool), count)]
            rates = best_rates(encoders, rounds)
            reference = fp32.encode(rounds[0][:500])
            near = {way: cosines(encode(rounds[0][:500])[1], reference) for way, encode in encoders.items()}
            rows = [
                {
                    "way": way,
                    "sentences/s": rates[way],
                    "ratio": rates[way] / rates[PEER],
                    "cosine": float(near[way].mean()),
                    "lowest": float(near[way].min()),
                }
                for way in encoders
            ]
            sets.append({"texts": name, "rows": rows})
        for worker in peers:
            worker.close()
        sts = {}
        if arguments.sts:
            for precision, encoder in (("fp32", fp32), ("int8", int8)):
                found = twinpass.evaluate(encoder, "sts", data=data / "senteval", resamples=100)
                sts[precision] = float(np.mean([task.scores[0].value for task in found.tasks]))
    report = {
        "model": arguments.model,
        "threads": torch.get_num_threads(),
        "peer": sentence_transformers.__version__,
        "sets": sets,
        "skipped": skipped,
        "Avg. STS": sts,
        "int8 measured by quantize": quantized.to_dict()["cosine"],
    }
    if arguments.json:
        print(json.dumps(report, indent=2))
        return
    print(
        f"{arguments.model}: sentences per second, best of {arguments.rounds} rounds of {arguments.texts} texts, "
        f"{report['threads']} threads (sentence-transformers {report['peer']})"
    )
    for one in sets:
        print(f"\n{one['texts']:<36}{'sentences/s':>12}{'ratio':>8}{'cosine to fp32':>16}{'lowest':>9}")
        for row in one["rows"]:
            print(
                f"  {row['way']:<34}{row['sentences/s']:>12,.0f}{row['ratio']:>7.2f}x{row['cosine']:>16.4f}"
                f"{row['lowest']:>9.4f}"
            )
    for way, reason in skipped.items():
        print(f"\n{way}: skipped, {reason}")
    if sts:
        print(f"\nAvg. of the 7 STS tasks: fp32 {sts['fp32']:.2f}, int8 {sts['int8']:.2f}")


if __name__ == "__main__":
    main()
