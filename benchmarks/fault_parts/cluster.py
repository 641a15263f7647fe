"""Machines and processes that die: a node of a Ray cluster, and one of two processes that train together."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.fault_parts.common import Material, Program, Row, count, worked
from benchmarks.fault_parts.kills import CPU, differing, digests, trained

SHARDS = ("--shard-rows", "3")  # forty shards of the 120 texts
PATIENCE = 120.0  # seconds in which a process must notice that another has died
STEPS = 12


def run(
    program: Program, material: Material, *, tries: int, rng: random.Random, say: Callable[[str], None]
) -> list[Row]:
    """Kill a node, then a process of a training, so many times each."""
    say("cluster: a node of two")
    rows = [kill_nodes(program, material, tries, rng)]
    say("cluster: one of two training processes")
    return [*rows, kill_processes(program, material, tries, rng)]


# Runs in a process of its own: the cluster's head and second node, killed when told on stdin.
NODES = """
import sys
from ray.cluster_utils import Cluster
told = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
cluster = Cluster(initialize_head=True, connect=False, head_node_args=told)
second = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
cluster.wait_for_nodes()
print(cluster.address, flush=True)
sys.stdin.readline()
cluster.remove_node(second, allow_graceful=False)
print("killed", flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@contextlib.contextmanager
def _two_nodes(folder: Path) -> Iterator[subprocess.Popen[str]]:
    from twinpass.bulk.ray import ENVIRONMENT

    with (folder / "nodes").open("w") as errors:
        nodes = subprocess.Popen(
            [sys.executable, "-c", NODES], env=os.environ | ENVIRONMENT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
        assert nodes.stdin is not None and nodes.stdout is not None
        try:
            yield nodes
        finally:
            nodes.stdin.close()
            nodes.wait(60)
            nodes.stdout.close()


def kill_nodes(program: Program, material: Material, tries: int, rng: random.Random) -> Row:
    """Encode on two nodes, kill one after some shards, and compare with the vectors of one process."""
    what = "a Ray node of two killed"
    if importlib.util.find_spec("ray") is None:
        return Row("cluster", what, skipped="Ray is not installed (extra [ray])")
    folder = program.work / "ray"
    folder.mkdir()
    command = ("encode", str(material.table), "-m", str(material.model), "-o", "out.parquet", *SHARDS, *CPU)
    worked(program.verb(*command, cwd=folder))
    expected = digests(folder, "out.parquet/*.parquet")
    failures: list[str] = []
    ended: dict[str, int] = {}
    for _ in range(tries):
        shutil.rmtree(folder / "out.parquet", ignore_errors=True)
        notes = folder / "out.parquet.unfinished" / "_finished.jsonl"
        shards = rng.randint(1, 15)
        with _two_nodes(folder) as nodes:
            address = nodes.stdout.readline().strip()  # type: ignore[union-attr]
            ray = (*command, "--ray", "--address", address, "--workers", "2")
            encoding = subprocess.Popen(
                [sys.executable, "-m", "twinpass", *ray], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            while encoding.poll() is None and not (notes.is_file() and _lines(notes) >= shards):
                time.sleep(0.005)
            nodes.stdin.write("now\n")  # type: ignore[union-attr]
            nodes.stdin.flush()  # type: ignore[union-attr]
            nodes.stdout.readline()  # type: ignore[union-attr]
            count(ended, "killed in the middle" if encoding.poll() is None else "ended before the kill")
            try:
                _, err = encoding.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                encoding.kill()
                encoding.communicate()
                failures.append(f"still running {PATIENCE:.0f} s after a node died with {shards} shards done")
                continue
        if encoding.returncode:
            failures.append(f"exit code {encoding.returncode}: {err.decode(errors='replace')[-300:]}")
        elif problem := differing(digests(folder, "out.parquet/*.parquet"), expected):
            failures.append(f"killed with {shards} shards done: {problem}")
    return Row("cluster", what, tries, tuple(failures), ended)


def _lines(path: Path) -> int:
    return sum(bool(line.strip()) for line in path.read_text().splitlines())


def kill_processes(program: Program, material: Material, tries: int, rng: random.Random) -> Row:
    """Train with two processes, kill one; the other must end by itself, and a resumed run must be as if unkilled."""
    told = ("--steps", str(STEPS), "--batch-size", "8", "--save-every", "3", "--lr", "1e-3", "--device", "cpu")
    command = ("train", str(material.texts), "-o", "out", "-m", str(material.model), *told)
    trial = program.work / "trial"
    shutil.rmtree(trial, ignore_errors=True)
    trial.mkdir()
    pair = _start(command, trial)
    ends = [_end(process) for process in pair]
    if [code for code, _ in ends] != [0, 0]:
        return Row("cluster", "one of two training processes killed", 1, (f"unkilled, it ended with {ends}",))
    expected = trained(program, trial)
    failures: list[str] = []
    ended: dict[str, int] = {}
    for number in range(tries):
        shutil.rmtree(trial)
        trial.mkdir()
        pair, dies, step = _start(command, trial), number % 2, rng.randint(1, STEPS - 2)
        log = trial / "out" / "log.jsonl"
        while all(process.poll() is None for process in pair) and not (log.is_file() and _steps(log) >= step):
            time.sleep(0.002)
        killed_in_time = pair[dies].poll() is None
        pair[dies].kill()
        count(ended, "killed in the middle" if killed_in_time else "ended before the kill")
        code, err = _end(pair[1 - dies])
        _end(pair[dies])
        when = f"process {dies} killed at step {step}"
        if killed_in_time and (code in (None, 0) or code < 0 or "Traceback" in err or "unexpected" in err):
            failures.append(f"{when}: the other ended with {code}: {' '.join(err.split())[-300:]}")
        ends = [_end(process) for process in _start((*command, "--resume"), trial)]
        if [code for code, _ in ends] != [0, 0]:
            failures.append(f"{when}, resumed: {[(code, err[-300:]) for code, err in ends]}")
        elif problem := differing(trained(program, trial), expected):
            failures.append(f"{when}, resumed: {problem}")
    return Row("cluster", "one of two training processes killed", tries, tuple(failures), ended)


def _start(command: tuple[str, ...], folder: Path) -> list[subprocess.Popen[bytes]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    processes = []
    for rank in ("0", "1"):
        told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        program = [sys.executable, "-m", "twinpass", *command]
        processes.append(
            subprocess.Popen(
                program, cwd=folder, env=os.environ | told, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
        )
    return processes


def _end(process: subprocess.Popen[bytes]) -> tuple[int | None, str]:
    """Return the exit code, None for a process that hangs, and what it said."""
    try:
        _, err = process.communicate(timeout=PATIENCE)
        return process.returncode, err.decode(errors="replace")
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        _, err = process.communicate()
        return None, err.decode(errors="replace")


def _steps(log: Path) -> int:
    return log.read_bytes().count(b'"stepped"')
