"""What it takes until the first answer: a query, a comparison, a service; with a model in torch and an exported one.

    python benchmarks/start.py --exported FOLDER

FOLDER is an exported model (in fp32 or int8) of MODEL. Each command runs in a process of its own, and the commands
take turns, so that a busy machine slows all of them. Processor time (user and system, all threads) is the measure that
others on the machine disturb least; of both times, the lowest of the rounds counts. One round before them is not
counted: it fills the caches of the system, and those that a first run writes.

The peer is the least that sentence-transformers can do: import it, load the same model, encode one sentence.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

TEXTS = 2_000
QUERY = "a text about the search of texts"
PEER = "sentence-transformers: import, load, encode one sentence"
PEER_CODE = """
import sys
from sentence_transformers import SentenceTransformer
SentenceTransformer(sys.argv[1], device="cpu").encode(["a text about the search of texts"])
"""
TWINPASS = [sys.executable, "-m", "twinpass"]


class Cost:
    """Seconds of the processor and of the clock, the least of several runs."""

    def __init__(self) -> None:
        self.processor = self.clock = float("inf")

    def add(self, processor: float, clock: float) -> None:
        self.processor, self.clock = min(self.processor, processor), min(self.clock, clock)


def run(command: list[str]) -> tuple[float, float]:
    """Run a command to its end; return the seconds of the processor and of the clock."""
    before, began = os.times(), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    seconds, after = time.perf_counter() - began, os.times()
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return used, seconds


def serve(command: list[str], *, encode: bool) -> tuple[float, float]:
    """Start a service; return what it took until it answered /health, or with `encode` a request for one vector."""
    before, began = os.times(), time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        url = process.stdout.readline().strip()  # printed when requests are accepted; they wait until it is ready
        try:
            request: str | urllib.request.Request = f"{url}/health"
            if encode:
                body = json.dumps({"input": QUERY}).encode()
                request = urllib.request.Request(f"{url}/v1/embeddings", body, {"Content-Type": "application/json"})
            urllib.request.urlopen(request, timeout=120).read()
            seconds = time.perf_counter() - began
            used = _processor_time(process.pid)
        finally:
            process.terminate()
            process.wait(60)
    if used is None:  # without /proc the processor time of stopping counts too
        after = os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
    return used, seconds


def _processor_time(process: int) -> float | None:
    """Return what a running process has used so far, where the system says so."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def build(model: str, folder: Path) -> Path:
    """Index some texts with a model."""
    texts = folder / "texts.txt"
    words = Path(__file__).read_text(encoding="utf-8").split()
    lines = [
        " ".join(words[(7 * row + place) % len(words)] for place in range(5, 5 + row % 20)) for row in range(TEXTS)
    ]
    texts.write_text("".join(f"{row} {line}\n" for row, line in enumerate(lines)), encoding="utf-8")
    run([*TWINPASS, "index", "build", str(texts), "-m", model, "-o", str(folder / "index")])
    return folder / "index"


def main() -> None:
    """Print a table: command, processor time, time, and how many times less than with torch and than the peer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="minilm", help="a model in torch (default: minilm)")
    parser.add_argument("--exported", required=True, metavar="FOLDER", help="the same model, exported")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-peer", action="store_true", help="leave sentence-transformers out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        index = str(build(options.model, Path(scratch)))
        models = {"torch": options.model, "exported": options.exported}
        costs: dict[tuple[str, str], Cost] = {}

        def note(what: str, kind: str, cost: tuple[float, float], *, counted: bool) -> None:
            kept = costs.setdefault((what, kind), Cost())
            if counted:
                kept.add(*cost)

        for number in range(options.rounds + 1):
            counted = number > 0
            for kind, model in models.items():
                search = [*TWINPASS, "search", index, QUERY, "-m", model]
                note(f"search, {TEXTS:,} texts", kind, run(search), counted=counted)
                note("similarity", kind, run([*TWINPASS, "similarity", "-m", model, QUERY, "x"]), counted=counted)
                server = [*TWINPASS, "serve", model, "--port", "0"]
                note("serve, until healthy", kind, serve(server, encode=False), counted=counted)
                note("serve, until a vector", kind, serve(server, encode=True), counted=counted)
                python = f"from twinpass import Encoder; Encoder.load({model!r}).encode([{QUERY!r}])"
                note("Python: load, encode", kind, run([sys.executable, "-c", python]), counted=counted)
            if not options.no_peer:
                from twinpass.encoder.load import find_folder

                peer = [sys.executable, "-c", PEER_CODE, str(find_folder(options.model))]
                note(PEER, "", run(peer), counted=counted)
    _show(costs)


def _show(costs: dict[tuple[str, str], Cost]) -> None:
    peer = costs.get((PEER, ""))
    print(f"{'':<58} {'processor s':>11} {'clock s':>8} {'torch':>6} {'peer':>6}")
    for (what, kind), cost in costs.items():
        name = f"{what} ({kind})" if kind else what
        torch = costs.get((what, "torch"))
        ratios = [f"{other.processor / cost.processor:.1f}x" if other else "" for other in (torch, peer)]
        print(f"{name:<58} {cost.processor:>11.2f} {cost.clock:>8.2f} {ratios[0]:>6} {ratios[1]:>6}")
    print("torch, peer: how many times less processor time than twinpass with torch, and than sentence-transformers")


if __name__ == "__main__":
    main()
