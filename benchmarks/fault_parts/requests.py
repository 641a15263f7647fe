"""A service under fuzzed requests, then under clients that hang up, dawdle and never finish.

Failures are: a 5xx of ours (503 busy and 504 too late are honest, and counted apart), no answer to a whole request,
another answer than before, memory that grows by more than a tenth after a warm-up, and a service that does not stop
within its timeout and five seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.fault_parts.common import Broken, Material, Program, Row, count, worked

WAIT = 60.0  # seconds that a client waits for an answer, far more than the service may take
GROWTH = 0.1  # of memory, after the warm-up
STOPPING = 5.0  # seconds beyond its timeout in which a service must stop
HONEST = {503, 504}
ASKED = b'{"input": ["the cat sat on the mat", "a dog"], "encoding_format": "base64"}'

ROUTES = ("/v1/embeddings", "/similarity", "/search")
VALID: dict[str, list[dict[str, Any]]] = {
    "/v1/embeddings": [
        {"input": "a dog"},
        {"input": ["the cat", "a dog"], "encoding_format": "base64"},
        {"input": [[2, 60, 61, 3]], "dimensions": 8},
    ],
    "/similarity": [{"sentences": ["a dog", "the cat"]}, {"a": ["a dog"], "b": ["the cat", "the mat"]}],
    "/search": [{"query": "a dog", "k": 3}, {"query": ["a", "b"], "where": "year>=2000", "min_score": 0.1}],
}
STRANGE: list[Any] = [
    None, True, -1, 0, 1, 10**3, 10**18, 10**400, -(10**30), 1.5, 1e308, 1e-320, "", " ", "x" * 5_000, "\x00", "\ud800",
    "\u202e\U0001f600\u0301", "'; --", "../../etc/passwd", "year>=2000", "year~~2", ">", [], {}, [[]], [None], [[[1]]],
    [1, "a"], ["a"] * 300, [2] * 600, [-5], [10**12], {"a": {"b": {"c": 1}}}, "NaN", "Infinity",
]  # fmt: skip
RAW = [
    b"", b"{", b"[" * 3_000, b'{"input": NaN}', b'{"input": 1e999}', b"\xff\xfe\x00", b'{"input": "\xed\xa0\x80"}',
    b'{"input": "a", "input": "b"}', b"null", b'"' + b"a" * 9_000, b'{"k": ' + b"9" * 5_000 + b"}", b"\x00" * 64,
]  # fmt: skip
PATHS = ["/", "/nothing", "/v1/models", "/v1/models/%00", "/v1/models/..%2f..", "/search/", "/page/../app.py", "/%ff",
         "/page/%2e%2e/%2e%2e/app.py", "/docs", "/health", "/ready", "/metrics",
         "/index", "/analysis", "//", "/?" + "a=1&" * 400]  # fmt: skip
METHODS = ["GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "POST", "BREW"]
BROKEN = [
    b"GARBAGE\r\n\r\n", b"POST /search HTTP/9.9\r\n\r\n", b"POST /search HTTP/1.1\r\nContent-Length: -4\r\n\r\n",
    b"POST /search HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00",
    b"POST /search HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 3_000 + b"\r\n",
    b"POST /search HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef", b"GET /\x00 HTTP/1.1\r\n\r\n",
]  # fmt: skip


@dataclass
class Seen:
    """What the clients saw."""

    tries: int = 0
    ended: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def answer(self, status: int | None, what: str, *, wanted: bool) -> None:
        """Count an answer; none is a failure if the request was whole."""
        self.tries += 1
        if status is None:
            if wanted:
                self.failures.append(f"no answer to {what}")
            else:
                count(self.ended, "closed without an answer")
        elif status >= 500 and status not in HONEST:
            self.failures.append(f"{status} for {what}")
        else:
            count(self.ended, str(status) if status in HONEST or status == 429 else f"{status // 100}xx")

    def row(self, what: str) -> Row:
        """Return the line of the table."""
        return Row("requests", what, self.tries, tuple(self.failures), dict(sorted(self.ended.items())))


def run(
    program: Program,
    material: Material,
    *,
    tries: int,
    rng: random.Random,
    say: Callable[[str], None],
    seconds: float = 60.0,
    clients: int = 300,
    timeout: float = 10.0,
) -> list[Row]:
    """Start a service with an index, send it everything, and stop it while clients still hold on to it."""
    folder = program.work / "service"
    folder.mkdir()
    worked(
        program.verb(
            "index", "build", material.table, "-m", material.model, "-o", "index", "--device", "cpu", cwd=folder
        )
    )
    told = ["serve", material.model, "--index", "index", "--port", 0, "--timeout", timeout, "--device", "cpu"]
    with (folder / "errors").open("wb") as errors:
        service = subprocess.Popen(
            [sys.executable, "-m", "twinpass", *map(str, told)], cwd=folder, stdout=subprocess.PIPE, stderr=errors
        )
        try:
            assert service.stdout is not None
            url = service.stdout.readline().decode().strip()
            if not url:
                raise Broken(f"the service did not start: {(folder / 'errors').read_text()[-2000:]}")
            host, _, port = url.removeprefix("http://").rpartition(":")
            rows = asyncio.run(_attack(service.pid, (host, int(port)), tries, rng, seconds, clients, timeout, say))
            rows.append(_stop(service, (host, int(port)), timeout))
        finally:
            service.kill()
            service.communicate()
    said = (folder / "errors").read_text(errors="replace")
    if "Traceback" in said:
        rows.append(Row("requests", "errors of the service", 1, (f"it printed: {said[-400:]}",)))
    return rows


async def _attack(
    process: int,
    place: tuple[str, int],
    tries: int,
    rng: random.Random,
    seconds: float,
    clients: int,
    timeout: float,
    say: Callable[[str], None],
) -> list[Row]:
    first = await _plain(place)
    if first is None or first[0] != 200:
        raise Broken(f"a plain request was answered with {first}")
    say(f"requests: {tries:,} fuzzed")
    fuzzed = Seen()
    numbers = iter(range(tries))
    drawn = [_fuzz(rng) for _ in range(tries)]

    async def worker() -> None:
        for number in numbers:
            content, what, wanted = drawn[number]
            answer = await _ask(place, content, end=not wanted)
            fuzzed.answer(answer[0] if answer else None, what, wanted=wanted)

    await asyncio.gather(*(worker() for _ in range(16)))
    rows = [fuzzed.row("fuzzed requests"), await _same(place, first[1], "the answer after the fuzzing")]
    say(f"requests: {clients} clients for {seconds:.0f} s")
    storm = Seen()
    ends = time.monotonic() + seconds
    warm = asyncio.create_task(_memory_at(process, ends - seconds * 2 / 3))
    await asyncio.gather(
        *(_misbehave(place, random.Random(rng.random()), ends, timeout, storm) for _ in range(clients))
    )
    rows += [storm.row(f"{clients} clients for {seconds:.0f} s"), await _half_open(place, timeout)]
    before, after = await warm, _memory(process)
    growth = after / before - 1
    wrong = (
        (f"memory grew by {growth:.0%}, from {before / 1e6:.0f} to {after / 1e6:.0f} MB",) if growth > GROWTH else ()
    )
    rows.append(Row("requests", f"memory, {before / 1e6:.0f} to {after / 1e6:.0f} MB", 1, wrong))
    rows.append(await _same(place, first[1], "the answer after the clients"))
    foreign = await _ask(place, _request("/search", b'{"query": "a dog"}', Host="evil.example.com"))
    wrong = () if foreign is not None and 400 <= foreign[0] < 500 else (f"answered with {foreign and foreign[0]}",)
    rows.append(Row("requests", "a foreign Host header", 1, wrong))
    return rows


async def _half_open(place: tuple[str, int], timeout: float) -> Row:
    """Send half a head, half a body or nothing, and wait: the service must close such a connection in time."""
    whole = _request("/search", b'{"query": "a dog"}')
    sent = [b"", b"POST /sea", whole[:60], whole[:-5]] * 2
    held = [await asyncio.open_connection(*place) for _ in sent]
    for (_, writer), content in zip(held, sent, strict=True):
        writer.write(content)
    closing = [asyncio.create_task(reader.read()) for reader, _ in held]
    _, open_still = await asyncio.wait(closing, timeout=timeout + STOPPING)
    for task, (_, writer) in zip(closing, held, strict=True):
        task.cancel()
        writer.transport.abort()
    wrong = [f"{sent[closing.index(task)][:40]!r}: open after {timeout + STOPPING:.0f} s" for task in open_still]
    return Row("requests", "half-open connections are closed", len(sent), tuple(wrong))


async def _plain(place: tuple[str, int]) -> tuple[int, bytes] | None:
    """Ask for vectors until the service is neither busy nor too late, which it may be on a busy machine."""
    ends = time.monotonic() + WAIT
    while True:
        answer = await _ask(place, _request("/v1/embeddings", ASKED))
        if answer is None or answer[0] not in HONEST or time.monotonic() > ends:
            return answer
        await asyncio.sleep(0.2)


async def _same(place: tuple[str, int], first: bytes, what: str) -> Row:
    again = await _plain(place)
    wrong = () if again is not None and again[1] == first else (f"{again and again[0]}: not the first answer's bytes",)
    return Row("requests", what, 1, wrong)


def _stop(service: subprocess.Popen[bytes], place: tuple[str, int], timeout: float) -> Row:
    """Ask the service to stop while 40 connections are half-open and others are busy; measure how long it takes."""
    held = []
    for number in range(40):
        connection = socket.create_connection(place)
        connection.sendall(_request("/search", ASKED)[: 30 + number * 3] if number % 2 else b"POST /sea")
        held.append(connection)
    began = time.perf_counter()
    service.send_signal(signal.SIGTERM)
    try:
        code = service.wait(timeout + STOPPING)
        wrong = () if code == 0 else (f"it ended with {code}",)
    except subprocess.TimeoutExpired:
        wrong = (f"it still ran {timeout + STOPPING:.0f} s after SIGTERM",)
    seconds = time.perf_counter() - began
    for connection in held:
        connection.close()
    return Row("requests", f"stopped in {seconds:.1f} s by SIGTERM", 1, wrong)


def _request(path: str, body: bytes, method: str = "POST", **headers: str) -> bytes:
    lines = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("utf-8", "surrogatepass") + body


def _fuzz(rng: random.Random) -> tuple[bytes, str, bool]:
    """Return a request, a name for it, and whether it is whole and so must be answered."""
    route = rng.choice(ROUTES)
    kind = rng.randrange(10)
    if kind < 5:  # a field of the wrong kind, one too many, one too few
        body = dict(rng.choice(VALID[route]))
        for _ in range(rng.randint(1, 2)):
            name = rng.choice([*body, *body, "input", "query", "k", "where", "strange", "model", "dimensions"])
            if rng.random() < 0.1:
                body.pop(name, None)
            else:
                body[name] = rng.choice(STRANGE)
        return _request(route, json.dumps(body).encode()), f"{route} {json.dumps(body)[:120]}", True
    if kind == 5:
        body = rng.choice(RAW)
        return _request(route, body), f"{route} {body[:60]!r}", True
    if kind == 6:  # cut, or with bytes of noise
        body = bytearray(json.dumps(rng.choice(VALID[route])).encode())
        for _ in range(rng.randint(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        body = body[: rng.randint(0, len(body))]
        return _request(route, bytes(body)), f"{route} {bytes(body)[:60]!r}", True
    if kind == 7:
        method, path = rng.choice(METHODS), rng.choice([*PATHS, *ROUTES])
        return _request(path, b"" if method in ("GET", "HEAD") else b"{}", method), f"{method} {path[:60]}", True
    if kind == 8:
        content = rng.choice(BROKEN)
        return content, repr(content[:60]), False
    whole = _request(route, json.dumps(rng.choice(VALID[route])).encode(), X_Noise="\x7f" * rng.randint(0, 9))
    return whole[: rng.randint(1, len(whole) - 1)], f"half of {route}", False


async def _ask(place: tuple[str, int], content: bytes, *, end: bool = False) -> tuple[int, bytes] | None:
    """Send bytes on a connection of its own; return status and body of the answer, or None if there is none."""
    try:
        reader, writer = await asyncio.open_connection(*place)
    except OSError:
        return None
    try:
        with contextlib.suppress(ConnectionError):  # it may answer and close before it has read everything
            writer.write(content)
            await writer.drain()
            if end:
                writer.write_eof()
        return await asyncio.wait_for(_read(reader, head=content.startswith(b"HEAD ")), WAIT)
    except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
        return None
    finally:
        writer.transport.abort()


async def _read(reader: asyncio.StreamReader, *, head: bool) -> tuple[int, bytes]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(lines[0].split()[1])
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    if head or "content-length" not in headers:
        return status, b""
    return status, await reader.readexactly(int(headers["content-length"]))


async def _misbehave(place: tuple[str, int], rng: random.Random, ends: float, timeout: float, seen: Seen) -> None:
    """Be one client until the end: most requests are proper ones, the others are left half done."""
    await asyncio.sleep(rng.uniform(0, 1))
    while time.monotonic() < ends:
        route = rng.choice(ROUTES)
        content = _request(route, json.dumps(rng.choice(VALID[route])).encode())
        draw = rng.random()
        if draw < 0.6:
            answer = await _ask(place, content)
            seen.answer(answer[0] if answer else None, f"{route} of a client", wanted=False)
            if answer is None:
                await asyncio.sleep(0.2)
            continue
        seen.tries += 1
        try:
            _, writer = await asyncio.open_connection(*place)
        except OSError:
            count(seen.ended, "not connected")
            await asyncio.sleep(0.2)
            continue
        try:
            if draw < 0.75:  # hangs up without reading the answer, some of them with a reset
                writer.write(content)
                await writer.drain()
                if rng.random() < 0.5:
                    writer.get_extra_info("socket").setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                    )
                count(seen.ended, "hung up")
            elif draw < 0.87:  # half a head or half a body, and then nothing
                writer.write(content[: rng.randint(1, len(content) - 1)])
                await writer.drain()
                count(seen.ended, "half-open")
                await asyncio.sleep(min(rng.uniform(0.5, 2 * timeout), max(0.0, ends - time.monotonic())))
            else:  # a byte now and then
                head = content.index(b"\r\n\r\n") + 4
                writer.write(content[:head])
                count(seen.ended, "slow body")
                for place_of in range(head, len(content)):
                    writer.write(content[place_of : place_of + 1])
                    await writer.drain()
                    await asyncio.sleep(rng.uniform(0.05, 0.5))
                    if time.monotonic() > ends:
                        break
        except OSError:
            count(seen.ended, "closed by the service")
        finally:
            writer.transport.abort()


async def _memory_at(process: int, moment: float) -> int:
    await asyncio.sleep(max(0.0, moment - time.monotonic()))
    return _memory(process)


def _memory(process: int) -> int:
    """Return the bytes of memory that a process holds."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
