"""Requests per second over loopback: twinpass serve beside a plain FastAPI handler, same model, one run.

    python benchmarks/serve.py --data ../shared/data

The plain handler is what one writes first: it encodes each request by itself, one after another. Both run in a process
of their own under uvicorn, answer in the same format (base64, as OpenAI's client asks for), and take turns, so that a
busy machine slows both. Every request carries one STS sentence; none is sent twice within a round, so nothing is
gained by recognising repeats. The clients are threads of as many processes as --senders says.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.encode import sts_sentences

PATH = "/v1/embeddings"


def plain_server(model: str) -> None:
    """Serve a handler that encodes one request at a time; FastAPI runs it in a thread."""
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    from twinpass import Encoder
    from twinpass.service.server import address, listen

    class Body(BaseModel):
        input: str
        encoding_format: str

    encoder, one_at_a_time = Encoder.load(model, device="cpu"), Lock()
    app = FastAPI()

    def embed(body: Body) -> dict[str, Any]:
        with one_at_a_time:
            vector = encoder.encode([body.input])[0]
        return {"data": [{"index": 0, "embedding": base64.b64encode(vector.tobytes()).decode()}]}

    embed.__annotations__["body"] = Body  # a class made in here cannot be found by its name
    app.post(PATH)(embed)
    with listen("127.0.0.1", 0) as bound:
        print(address(bound), flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[bound])


@contextlib.contextmanager
def started(command: list[str]) -> Iterator[str]:
    """Start a server; yield its address, taken from the first line it prints."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL)
    try:
        yield process.stdout.readline().strip().removeprefix("http://")
    finally:
        process.terminate()
        process.wait(30)


def send(address: str, bodies: list[bytes], clients: int, start: Any, results: Any) -> None:
    """Let so many threads share the bodies, each with a connection of its own; report seconds and a checksum."""
    left, seconds, numbers, lock = iter(bodies), [], [], Lock()

    def client() -> None:
        connection = HTTPConnection(address, timeout=120)
        while True:
            with lock:
                body = next(left, None)
            if body is None:
                return
            began = time.perf_counter()
            connection.request("POST", PATH, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read()
            seconds.append(time.perf_counter() - began)
            if answer.status != 200:
                raise RuntimeError(f"{answer.status}: {content[:200]!r}")
            numbers.append(content)

    threads = [Thread(target=client) for _ in range(clients)]
    start.wait()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = sum(
        float(np.abs(np.frombuffer(base64.b64decode(json.loads(n)["data"][0]["embedding"]), "<f4")).sum())
        for n in numbers
    )
    results.put((seconds, total))


def load(address: str, texts: list[str], clients: int, senders: int) -> dict[str, float]:
    """Send every text once from so many clients; return rate, latencies and a checksum of the vectors."""
    context = multiprocessing.get_context("fork")
    senders = min(senders, clients)
    results, start = context.Queue(), context.Barrier(senders + 1)
    bodies = [json.dumps({"input": text, "encoding_format": "base64"}).encode() for text in texts]
    processes = [
        context.Process(target=send, args=(address, bodies[i::senders], clients // senders, start, results))
        for i in range(senders)
    ]
    for process in processes:
        process.start()
    start.wait()
    began = time.perf_counter()
    found = [results.get(timeout=600) for _ in processes]
    elapsed = time.perf_counter() - began
    for process in processes:
        process.join()
    seconds = np.array([each for times, _ in found for each in times])
    if len(seconds) != len(texts):
        raise RuntimeError(f"{len(texts)} requests were sent and {len(seconds)} answered.")
    return {
        "rate": len(texts) / elapsed,
        "p50": float(np.quantile(seconds, 0.5)) * 1000,
        "p99": float(np.quantile(seconds, 0.99)) * 1000,
        "checksum": sum(total for _, total in found),
    }


def best(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Return the round with the highest rate, whole: its latencies belong to it."""
    return max(rounds, key=lambda each: each["rate"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--requests", type=int, default=1500, help="in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--senders", type=int, default=1, help="processes that the clients run in")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plain-server", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if arguments.plain_server:
        plain_server(arguments.model)
        return
    texts = sts_sentences(arguments.data, arguments.requests)
    plain = [sys.executable, __file__, "--plain-server", "--model", arguments.model]
    ours = [sys.executable, "-m", "twinpass", "serve", arguments.model, "--port", "0", "--device", "cpu"]
    rows = []
    with started(ours) as our_address, started(plain) as plain_address:
        addresses = {"twinpass serve": our_address, "plain handler": plain_address}
        for address in addresses.values():
            load(address, texts[:64], 8, 1)  # to warm up
        for clients in arguments.clients:
            rounds: dict[str, list[dict[str, float]]] = {name: [] for name in addresses}
            for _ in range(arguments.rounds):
                for name, address in addresses.items():
                    rounds[name].append(load(address, texts, clients, arguments.senders))
            rows.append({"clients": clients} | {name: best(found) for name, found in rounds.items()})
    show(rows, arguments)


def show(rows: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{arguments.model}, {arguments.requests} requests of one sentence, best of {arguments.rounds} rounds")
    for row in rows:
        ours, plain = row["twinpass serve"], row["plain handler"]
        for name in ("twinpass serve", "plain handler"):
            found = row[name]
            print(
                f"{row['clients']:>3} clients  {name:<14} {found['rate']:7.0f} requests/s"
                f"   p50 {found['p50']:7.1f} ms   p99 {found['p99']:7.1f} ms"
            )
        drift = abs(ours["checksum"] / plain["checksum"] - 1)
        print(
            f"             {ours['rate'] / plain['rate']:.2f}x the rate, {ours['p99'] / plain['p99']:.2f}x the p99"
            f"; sums of all vectors differ by {drift:.0e}"
        )


if __name__ == "__main__":
    main()
