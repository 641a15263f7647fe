"""Every verb without a network: in a network namespace of its own, in which only the loopback exists."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.fault_parts.common import LONGEST, Material, Program, Row

from twinpass.evaluation.tasks import TASKS
from twinpass.recipes.smoke_data import write_task

# Root may make a namespace; others need to be root in a user namespace of their own.
WAYS = (["unshare", "-n"], ["unshare", "-r", "-n"])
LOOPBACK = 'ip link set lo up 2>/dev/null; exec "$@"'

# Starts the service, asks it once over the loopback, and stops it.
SERVE = """
import json, subprocess, sys, urllib.request
service = subprocess.Popen([sys.executable, "-m", "twinpass", *sys.argv[1:]], stdout=subprocess.PIPE, text=True)
url = service.stdout.readline().strip()
body = json.dumps({"query": "a dog", "k": 3}).encode()
asked = urllib.request.Request(url + "/search", body, {"Content-Type": "application/json"})
found = json.load(urllib.request.urlopen(asked, timeout=60))
service.terminate()
sys.exit(service.wait(60) or (len(found["results"][0]["hits"]) != 3))
"""
# The namespace is what it should be: nothing outside answers, and no name is found.
ALONE = """
import socket
for place in (("192.0.2.1", 80), ("example.com", 80)):
    try:
        socket.create_connection(place, timeout=3)
    except OSError:
        continue
    raise SystemExit(f"{place} was reached")
"""
DEMO = ("--packages", "typer,rich,safetensors,click,tokenizers", "--steps", "2", "--batch-size", "4")


def run(
    program: Program, material: Material, *, tries: int, rng: random.Random, say: Callable[[str], None]
) -> list[Row]:
    """Run every verb once, in an empty cache folder, without any variable that forbids the network."""
    way = next((way for way in WAYS if _works(way)), None)
    if way is None:
        return [Row("network", "all verbs", skipped="this user may not make a network namespace (unshare -n)")]
    folder = program.work / "network"
    folder.mkdir()
    write_task(TASKS["STS12"], folder / "data")
    told = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    told |= {"TWINPASS_CACHE": str(folder / "cache"), "HF_HOME": str(folder / "hub")}
    model, texts, table, more, dev = map(
        str, (material.model, material.texts, material.table, material.more, material.dev)
    )
    cpu = ("--device", "cpu")
    short = ("--steps", "4", "--batch-size", "8", "--save-every", "2", "--eval-every", "2", "--dev", dev)
    verbs = [
        ("doctor",),
        ("encode", texts, "-m", model, "-o", "vectors.npy", *cpu),
        ("similarity", "a dog", "the cat", "-m", model, *cpu),
        ("train", texts, "-o", "trained", "-m", model, *short, *cpu),
        ("evaluate", "trained", "--tasks", "STS12", "--data", "data", "--resamples", "100", *cpu),
        ("evaluate", "trained", "--tasks", f"scored:{dev}", "--resamples", "100", *cpu),
        ("index", "build", table, "-m", "trained", "-o", "index", *cpu),
        ("index", "add", "index", more, *cpu),
        ("search", "index", "a dog", *cpu),
        ("dedupe", "index", *cpu),
        ("demo", "-m", model, "-o", "demo", *DEMO, *cpu),
    ]
    commands = [("alone", [sys.executable, "-c", ALONE])]
    commands += [(" ".join(verb[:2]) if verb[0] == "index" else verb[0], _python(*verb)) for verb in verbs]
    serve = ("serve", "trained", "--index", "index", "--port", "0", *cpu)
    commands.append(("serve", [sys.executable, "-c", SERVE, *serve]))
    rows = []
    for name, command in commands:
        say(f"network: {name}")
        failure = _outcome([*way, "sh", "-c", LOOPBACK, "sh", *command], folder, told)
        rows.append(Row("network", name, 1, (failure,) if failure else ()))
    return rows


def _python(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "twinpass", *arguments]


def _works(way: list[str]) -> bool:
    try:
        return subprocess.run([*way, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _outcome(command: list[str], folder: Path, environment: dict[str, str]) -> str | None:
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=3 * LONGEST, check=False
        )
    except subprocess.TimeoutExpired:
        return f"still running after {3 * LONGEST:.0f} s"
    return f"exit code {done.returncode}: {' '.join(done.stderr.split())[-300:]}" if done.returncode else None
