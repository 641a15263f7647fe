"""Requests per second over loopback: twinpass serve beside infinity-emb and a plain handler, same model, one run.

    python benchmarks/serve.py --data ../shared/data

The plain handler is what one writes first: it encodes each request by itself, one after another. infinity-emb is a
server for embeddings that batches requests, too; it needs older packages than ours, so it runs in an environment of its
own, which is made once in the cache folder (`--infinity PYTHON` names another, `--infinity none` leaves it out).
twinpass serves the model as it is, and in int8: a copy made by `twinpass quantize`, or the folder that --int8 names.

Every server has a process of its own and answers in the same format (base64, as OpenAI's client asks for); they take
turns, so that a busy machine slows all. Every request carries one STS sentence; none is sent twice within a round, so
nothing is gained by recognising repeats. The clients are connections of one small process, which reads an answer and
sends the next request at once. `processor` is what the server used for one request, in milliseconds of one core.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.encode import sts_sentences

PATH = "/v1/embeddings"
OURS, INT8, PEER, PLAIN = "twinpass fp32", "twinpass int8", "infinity-emb", "plain handler"
PEER_PACKAGES = ("infinity-emb[torch,server]==0.0.78", "torch==2.13.0", "transformers<5", "typer<0.13", "click<8.2")


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


def find_infinity(given: str | None) -> str:
    """Return the python of an environment with infinity-emb, which is made if none is named; or say why not."""
    from twinpass.files import cache_folder

    if given is not None:
        return given
    folder = cache_folder("benchmarks") / "infinity"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        print(f"making an environment for infinity-emb in {folder} ...", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        ran = subprocess.run([python, "-m", "pip", "install", "-q", *PEER_PACKAGES], capture_output=True, text=True)
        if ran.returncode:
            raise LookupError(f"its environment could not be made: {ran.stderr.strip().splitlines()[-1]}")
        (folder / "complete").touch()
    return str(python)


class Server:
    """A server in a process of its own, ready to be asked."""

    def __init__(self, command: list[str], address: str | None = None, **environment: str) -> None:
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL if address else subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **environment},
        )
        # Ours print their address when they are ready; of another the port was chosen beforehand.
        self.address = address or self.process.stdout.readline().strip().removeprefix("http://")
        until = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError):
                load(self.address, ["ready?"], 1)
                return
            if self.process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise LookupError(f"it did not start: {' '.join(command)}")
            time.sleep(0.2)

    def processor_seconds(self) -> float:
        """Return what the process and its children have used so far."""
        first = psutil.Process(self.process.pid)
        return sum(sum(each.cpu_times()[:2]) for each in (first, *first.children(recursive=True)))

    def stop(self) -> None:
        """End the process."""
        self.process.terminate()
        self.process.wait(30)


@contextlib.contextmanager
def running(arguments: argparse.Namespace) -> Iterator[dict[str, Server]]:
    """Start every server that can be had; say which cannot, and why."""
    ours = [sys.executable, "-m", "twinpass", "serve", "--port", "0", "--device", "cpu"]
    starts: dict[str, Callable[[], Server]] = {
        PLAIN: lambda: Server([sys.executable, __file__, "--plain-server", "--model", arguments.model]),
        PEER: lambda: infinity(arguments.model, arguments.infinity),
        OURS: lambda: Server([*ours, arguments.model]),
    }
    with contextlib.ExitStack() as stack:
        aside = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        starts[INT8] = lambda: Server([*ours, arguments.int8 or quantised(arguments.model, aside / "int8")])
        found: dict[str, Server] = {}
        for name, start in starts.items():
            if arguments.only and name not in arguments.only:
                continue
            try:
                found[name] = start()
            except LookupError as reason:
                print(f"without {name}: {reason}", file=sys.stderr)
            else:
                stack.callback(found[name].stop)
        yield found


def quantised(model: str, folder: Path) -> str:
    """Make a copy of the model in int8."""
    command = [sys.executable, "-m", "twinpass", "quantize", model, "-o", str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        raise LookupError(f"{' '.join(command[1:])} failed: {ran.stderr.strip()[-200:]}")
    return str(folder)


def infinity(model: str, python: str | None) -> Server:
    """Start infinity-emb with its torch engine and otherwise as it comes, but for what would keep answers or report."""
    from twinpass.encoder.load import find_folder

    if python == "none":
        raise LookupError("--infinity none")
    program = Path(find_infinity(python)).parent / "infinity_emb"
    if not program.exists():
        raise LookupError(f"{program} does not exist")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = str(find_folder(model, trust_pickle=False, trust_remote_code=False))
    command = [str(program), "v2", "--model-id", folder, "--engine", "torch", "--device", "cpu"]
    command += ["--no-bettertransformer", "--no-vector-disk-cache", "--url-prefix", "/v1"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--log-level", "error"]
    return Server(command, f"127.0.0.1:{port}", DO_NOT_TRACK="1", INFINITY_ANONYMOUS_USAGE_STATS="0")


async def ask(address: str, bodies: Iterator[bytes], seconds: list[float], answers: list[bytes]) -> None:
    """Be a client: one connection, one request after another, until no body is left."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST {PATH} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: "
    for body in bodies:
        began = time.perf_counter()
        writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
        header = await reader.readuntil(b"\r\n\r\n")
        content = await reader.readexactly(int(header.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
        seconds.append(time.perf_counter() - began)
        if b" 200 " not in header[:16]:
            raise RuntimeError(f"{header[:16]!r}: {content[:200]!r}")
        answers.append(content)
    writer.close()


def send(address: str, bodies: list[bytes], clients: int, results: Any) -> None:
    """Let so many clients share the bodies; report when it began and ended, each request's seconds, and a checksum."""

    async def all_clients() -> None:
        left = iter(bodies)
        await asyncio.gather(*(ask(address, left, seconds, answers) for _ in range(clients)))

    seconds: list[float] = []
    answers: list[bytes] = []
    began = time.perf_counter()
    try:
        asyncio.run(all_clients())
    except Exception as error:
        results.put(error)
        return
    elapsed = time.perf_counter() - began
    vectors = (base64.b64decode(json.loads(each)["data"][0]["embedding"]) for each in answers)
    results.put((elapsed, seconds, sum(float(np.abs(np.frombuffer(each, "<f4")).sum()) for each in vectors)))


def load(address: str, texts: list[str], clients: int, server: Server | None = None) -> dict[str, float]:
    """Send every text once from so many clients; return rate, latencies, cost and a checksum of the vectors."""
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    bodies = [json.dumps({"input": text, "encoding_format": "base64", "model": "default"}).encode() for text in texts]
    process = context.Process(target=send, args=(address, bodies, clients, results))
    before = server.processor_seconds() if server else 0.0
    process.start()
    found = results.get(timeout=600)
    process.join()
    if isinstance(found, Exception):
        raise found
    used = server.processor_seconds() - before if server else 0.0
    elapsed, seconds, checksum = found
    return {
        "rate": len(texts) / elapsed,
        "p50": float(np.quantile(seconds, 0.5)) * 1000,
        "p99": float(np.quantile(seconds, 0.99)) * 1000,
        "processor": used / len(texts) * 1000,
        "checksum": checksum,
    }


def best(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Return the round with the highest rate, whole: its latencies belong to it."""
    return max(rounds, key=lambda each: each["rate"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--int8", metavar="FOLDER", help="the model in int8; made if none is named")
    parser.add_argument("--infinity", metavar="PYTHON", help="of an environment with infinity-emb; none: without it")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--requests", type=int, default=1500, help="in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=(PLAIN, PEER, OURS, INT8), help="these servers")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plain-server", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if arguments.plain_server:
        plain_server(arguments.model)
        return
    texts = sts_sentences(arguments.data, arguments.requests)
    rows: list[dict[str, Any]] = []
    with running(arguments) as servers:
        for server in servers.values():
            load(server.address, texts[:64], 8)  # to warm up
        for clients in arguments.clients:
            rounds: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
            for _ in range(arguments.rounds):
                for name, server in servers.items():
                    rounds[name].append(load(server.address, texts, clients, server))
            rows.append({"clients": clients} | {name: best(found) for name, found in rounds.items()})
    show(rows, arguments)


def show(rows: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{arguments.model}, {arguments.requests} requests of one sentence, best of {arguments.rounds} rounds")
    for row in rows:
        peer = row.get(PEER) or row.get(PLAIN)
        for name, found in row.items():
            if name == "clients":
                continue
            line = (
                f"{row['clients']:>3} clients  {name:<14} {found['rate']:6.0f} requests/s   p50 {found['p50']:6.1f} ms"
                f"   p99 {found['p99']:6.1f} ms   processor {found['processor']:5.2f} ms"
            )
            if peer is not None and found is not peer:
                drift = abs(found["checksum"] / peer["checksum"] - 1)
                line += f"   {found['rate'] / peer['rate']:.2f}x the rate, {found['p99'] / peer['p99']:.2f}x the p99"
                line += f", sums differ by {drift:.0e}"
            print(line)


if __name__ == "__main__":
    main()
