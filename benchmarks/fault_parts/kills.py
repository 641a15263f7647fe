"""SIGKILL at a random moment, then the command again: equal bytes, nothing lost, nothing doubled, nothing left over."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.fault_parts.common import Broken, Material, Program, Row, count, has_verb, worked

from twinpass.bulk.ray import ENVIRONMENT

MANY = 40  # tries from which on it pays to quantise a model and to start Ray
AGAIN = 0.25  # how often the command that resumes is killed too
STEPS = 10
CPU = ("--device", "cpu", "--quiet")


@dataclass(frozen=True)
class Case:
    """A command that is killed, the command that a user gives then, and what must be true after each."""

    name: str
    share: float  # of all kills
    command: tuple[str, ...]
    again: tuple[str, ...]
    state: Callable[[Program, Path], Any]  # everything that must be the same as without a kill
    before: tuple[tuple[str, ...], ...] = ()  # commands that make what is there before
    unchanged: bool = False  # right after a kill the state is that before the command, or that after it
    true_process: bool = False
    skipped: str | None = None


def digests(folder: Path, *patterns: str) -> dict[str, str]:
    """Return the sha256 of every file that fits a pattern, by its path."""
    found = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(found)}


def trained(program: Program, trial: Path) -> Any:
    """Return the bytes of the model and of the newest checkpoint, and the steps that are in the log."""
    output = trial / "out"
    kept = ("*.safetensors", "config.json", "tokenizer*.json", "twinpass.json", "*/model.safetensors")
    newest = max((output / "checkpoints").glob("step-*"), default=output)
    events = [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]
    return {
        "model": digests(output, *kept),
        "newest": (newest.name, digests(newest, *kept, "*/*.safetensors")),
        "steps": [(event["step"], event["loss"]) for event in events if event["event"] == "stepped"],
        "scores": [(event["step"], event["score"]) for event in events if event["event"] == "evaluated"],
        "leftovers": leftovers(output) + leftovers(output / "checkpoints") + leftovers(trial),
    }


def leftovers(folder: Path) -> list[str]:
    """Return the names that only unfinished work has; a lock is one that was never taken away, by design."""
    names = (path.name for path in (folder.iterdir() if folder.is_dir() else ()))
    return sorted(name for name in names if name.startswith(".") and not name.endswith("lock"))


def encoded(program: Program, trial: Path) -> Any:
    """Return the bytes of everything that an encode wrote, and what is left over."""
    return {"files": digests(trial, "out.*", "out.*/*.*"), "leftovers": leftovers(trial)}


def indexed(program: Program, trial: Path) -> Any:
    """Return what an index holds, read by the library; None where there is no index."""
    return worked(program.call(index_contents, trial / "index")).value


def index_contents(folder: Path) -> Any:
    """Return the ids, texts, metadata and vectors of an index."""
    from twinpass import Index

    if not Index.exists(folder):
        return None
    index = Index.open(folder)
    ids = index.ids()
    rows = [(entry.id, entry.text, sorted(entry.metadata.items())) for entry in index.entries(ids)]
    vectors = hashlib.sha256(index.vectors().tobytes()).hexdigest()
    return {"rows": rows, "vectors": vectors, "count": len(index)}


def cases(material: Material, *, int8: str | None, address: str | None, no_ray: str | None) -> list[Case]:
    """Return every command that is killed."""
    model, texts, table, more = (
        str(material.folder / name) for name in ("model", "texts.txt", "table.jsonl", "more.jsonl")
    )
    short = ("--steps", str(STEPS), "--batch-size", "8", "--save-every", "2", "--lr", "1e-3", *CPU)
    dev = ("--dev", str(material.dev), "--eval-every", "4")
    simcse = ("train", texts, "-o", "out", "-m", model, *short, *dev)
    tension = ("train", texts, "-o", "out", "-m", model, "--method", "ct", *short)
    build = ("index", "build", table, "-m", model, "-o", "index", *CPU)
    add = ("index", "add", "index", more, *CPU)
    remove = ("index", "remove", "index", "--where", "year<2005", *CPU)
    compact = ("index", "compact", "index", *CPU)

    def encode(name: str, *options: str, named: str = model) -> tuple[str, ...]:
        return ("encode", table, "-m", named, "-o", name, *options, *CPU)

    sharded = encode("out.parquet", "--shard-rows", "9")
    quantised = encode("out.npy", named=str(material.folder / "int8"))
    ray = encode("out.parquet", "--shard-rows", "9", "--ray", "--workers", "1", "--address", str(address))
    return [
        Case("train", 0.2, simcse, (*simcse, "--resume"), trained),
        Case("train, two encoders", 0.08, tension, (*tension, "--resume"), trained),
        Case("index build", 0.1, build, (*build, "--overwrite"), indexed, unchanged=True),
        Case("index build over another", 0.06, (*build, "--overwrite"), (*build, "--overwrite"), indexed,
             before=(("index", "build", more, "-m", model, "-o", "index", *CPU),), unchanged=True),
        Case("index add", 0.12, add, (*add, "--unique"), indexed, before=(build,), unchanged=True),
        Case("index remove", 0.08, remove, remove, indexed, before=(build, add), unchanged=True),
        Case("index compact", 0.08, compact, compact, indexed, before=(build, add, remove), unchanged=True),
        Case("encode .npy", 0.06, encode("out.npy"), encode("out.npy"), encoded),
        Case("encode .parquet", 0.06, encode("out.parquet"), encode("out.parquet"), encoded),
        Case("encode in shards", 0.08, sharded, sharded, encoded),
        Case("quantised encode", 0.05, quantised, quantised, encoded, skipped=int8),
        Case("Ray encode", 0.03, ray, ray, encoded, true_process=True, skipped=no_ray),
    ]  # fmt: skip


def run(
    program: Program, material: Material, *, tries: int, rng: random.Random, say: Callable[[str], None]
) -> list[Row]:
    """Kill every command its share of the times."""
    rows = []
    few = tries < MANY
    int8 = "too few tries" if few else make_int8(program, material)
    with contextlib.nullcontext((None, "too few tries")) if few else ray_cluster() as (address, no_ray):
        for case in cases(material, int8=int8, address=address, no_ray=no_ray):
            if share := int(tries * case.share + 1e-9):
                say(f"kills: {case.name}")
                rows.append(kill(program, case, share, rng))
    return rows


def kill(program: Program, case: Case, tries: int, rng: random.Random) -> Row:
    """Kill one command so many times; each time it is then run to its end and compared with a run without a kill."""
    if case.skipped:
        return Row("kills", case.name, skipped=case.skipped)
    trial, pristine = program.work / "trial", program.work / "pristine"
    start = program.process if case.true_process else program.verb
    shutil.rmtree(pristine, ignore_errors=True)
    pristine.mkdir()
    for command in case.before:
        worked(program.verb(*command, cwd=pristine))
    _renew(trial, pristine)
    old = case.state(program, trial) if case.unchanged else None
    seconds = worked(start(*case.command, cwd=trial)).seconds
    expected = case.state(program, trial)
    failures: list[str] = []
    ended: dict[str, int] = {}
    done = early = 0
    while done < tries and early < 4 * tries:
        _renew(trial, pristine)
        command, moments = case.command, []
        while not moments or (done < tries and rng.random() < AGAIN):
            moments.append(rng.uniform(0, seconds))
            first = start(*command, cwd=trial, kill_after=moments[-1])
            command = case.again
            if first.code == 0:  # not a try, but its result must be right too
                count(ended, "ended before the kill")
                early += 1
                if len(moments) == 1:  # the machine is less busy than before
                    seconds = min(seconds, first.seconds)
                break
            done += 1
            if first.code != -9:
                failures.append(f"killed after {moments[-1]:.3f} s: {first.unexpected or first.err[-300:]}")
                break
        when = f"killed after {', '.join(f'{moment:.3f}' for moment in moments)} of {seconds:.3f} s"
        if case.unchanged and (problem := _neither(case, program, trial, old, expected)):
            failures.append(f"{when}: {problem}")
            continue
        last = start(*command, cwd=trial)
        if last.code != 0:
            failures.append(f"{when}, then run again: {last.unexpected or last.err[-300:]}")
            continue
        if problem := differing(case.state(program, trial), expected):
            failures.append(f"{when}, then run again: {problem}")
    return Row("kills", case.name, done, tuple(failures), ended)


def _neither(case: Case, program: Program, trial: Path, old: Any, new: Any) -> str | None:
    try:
        found = case.state(program, trial)
    except Broken as error:
        return f"it cannot be read after the kill: {error}"
    return None if found in (old, new) else f"neither the old nor the new state: {differing(found, new)}"


def differing(found: Any, expected: Any) -> str | None:
    """Return where a state differs from the expected one."""
    if found == expected:
        return None
    if not isinstance(found, dict) or not isinstance(expected, dict):
        return f"{str(found)[:150]} instead of {str(expected)[:150]}"
    wrong = [name for name in {**expected, **found} if found.get(name) != expected.get(name)]
    parts = [f"{name}: {differing(found.get(name), expected.get(name))}" for name in wrong[:3]]
    return "; ".join(parts)


def _renew(trial: Path, pristine: Path) -> None:
    shutil.rmtree(trial, ignore_errors=True)
    shutil.copytree(pristine, trial)


def make_int8(program: Program, material: Material) -> str | None:
    """Make a quantised folder of the tiny model; return why there is none."""
    if (material.folder / "int8").is_dir():
        return None
    if not has_verb("quantize"):
        return "this version has no verb quantize"
    told = ("quantize", material.folder / "plain", material.texts, "-o", material.folder / "int8", "--force", "--quiet")
    made = program.process(*told, cwd=material.folder)
    return None if made.code == 0 else f"quantize: {' '.join(made.err.split())[-200:]}"


RAY = """
import sys, ray
context = ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80 << 20, log_to_driver=False)
print(context.address_info["address"], flush=True)
sys.stdin.read()
ray.shutdown()
"""


@contextlib.contextmanager
def ray_cluster() -> Iterator[tuple[str | None, str | None]]:
    """Start Ray on this machine in a process of its own; yield its address, or why there is none."""
    if importlib.util.find_spec("ray") is None:
        yield None, "Ray is not installed (extra [ray])"
        return
    with tempfile.TemporaryFile() as errors:
        head = subprocess.Popen(
            [sys.executable, "-c", RAY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            text=True, env={**os.environ, **ENVIRONMENT},
        )  # fmt: skip
        assert head.stdin is not None and head.stdout is not None
        try:
            address = head.stdout.readline().strip()
            yield address or None, None if address else "Ray did not start"
        finally:
            head.stdin.close()
            head.wait(60)
            head.stdout.close()
