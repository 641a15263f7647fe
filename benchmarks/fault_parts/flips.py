"""One bit flipped, or the end cut off: every kind of file that is written and read again.

A try is good if the damage is refused with a message (exit code 2), noticed (a warning), or makes no difference to
the answer. Another answer without a word, an unexpected error, a signal and a hang are failures.
"""

from __future__ import annotations

import fnmatch
import os
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.fault_parts.common import Ended, Material, Program, Row, count, has_verb, worked
from benchmarks.fault_parts.kills import digests, index_contents, make_int8

CPU = ("--device", "cpu")  # not --quiet, which hides warnings
CUT = 0.25  # how often the end is cut off instead

# Formats that cannot hold a checksum, or files whose every content is valid. What is known about them is in
# docs/reliability.md; a different answer is counted as "not covered", anything else as for all files.
UNCOVERED = {"vectors.npy": "numpy's format has no checksum"}


@dataclass(frozen=True)
class Victim:
    """Files of one kind, and how their answer is found; `files` are patterns within the folder `made` fills."""

    name: str
    share: float  # of all tries
    make: Callable[[Program, Material, Path], object]
    files: tuple[str, ...]
    answer: Callable[[Program, Material, Path], Ended]
    verify: Callable[[Program, Material, Path], Ended] | None = None  # finds what the answer does not show
    skipped: Callable[[Program, Material], str | None] = lambda program, material: None


def _value(ended: Ended, value: Any) -> Ended:
    return Ended(ended.code, ended.out, ended.err, value, ended.seconds)


# A model folder


def _copy_model(program: Program, material: Material, folder: Path) -> None:
    shutil.copytree(material.model, folder / "model")


def _copy_int8(program: Program, material: Material, folder: Path) -> None:
    shutil.copytree(material.folder / "int8", folder / "model")


def _encode(program: Program, material: Material, folder: Path) -> Ended:
    return _value(
        program.verb("encode", material.texts, "-m", "model", "-o", "out.npy", *CPU, cwd=folder),
        digests(folder, "out.npy"),
    )


# A training run that was killed


def _stop_training(program: Program, material: Material, folder: Path) -> None:
    program.call(_train_and_die, str(material.texts), str(material.model), str(material.dev), cwd=folder)
    if not list((folder / "out" / "checkpoints").glob("step-*")):
        raise RuntimeError("the training that is resumed wrote no checkpoint")


def _train_and_die(texts: str, model: str, dev: str) -> None:
    """Train as the command does, and end like a killed process after the third checkpoint."""
    import twinpass
    from twinpass.log import Saved

    seen = 0

    def die(event: object) -> None:
        nonlocal seen
        seen += isinstance(event, Saved)
        if seen == 3:
            os._exit(9)

    told = {"steps": 8, "batch_size": 8, "save_every": 2, "eval_every": 2, "learning_rate": 1e-3, "device": "cpu"}
    twinpass.train(twinpass.Run(data=texts, model=model, output="out", dev=dev, seed=42, **told), on_event=die)


def _resume(program: Program, material: Material, folder: Path) -> Ended:
    told = (
        "--steps",
        8,
        "--batch-size",
        8,
        "--save-every",
        2,
        "--eval-every",
        2,
        "--lr",
        "1e-3",
        "--dev",
        material.dev,
    )
    command = ("train", material.texts, "-o", "out", "-m", material.model, *told, "--resume", *CPU)
    return _value(program.verb(*command, cwd=folder), digests(folder / "out", "*.safetensors", "*/model.safetensors"))


def _resume_run(program: Program, material: Material, folder: Path) -> Ended:
    return program.call(_train_from_file, cwd=folder)


def _train_from_file() -> Any:
    import twinpass

    result = twinpass.train(twinpass.Run.read("out/run.json"), resume=True)
    return digests(Path(result.output), "*.safetensors", "*/model.safetensors")


# An index


def _build_index(program: Program, material: Material, folder: Path) -> None:
    worked(program.verb("index", "build", material.table, "-m", material.model, "-o", "index", *CPU, cwd=folder))
    worked(program.verb("index", "add", "index", material.more, *CPU, cwd=folder))
    worked(program.verb("index", "remove", "index", "--where", "year<1995", *CPU, cwd=folder))


def _build_graph(program: Program, material: Material, folder: Path) -> None:
    worked(program.call(_make_graph, str(material.model), str(material.table), cwd=folder))


def _make_graph(model: str, table: str) -> None:
    from twinpass import Index
    from twinpass.search.engines import approximate

    approximate.LEAST["hnsw"] = 10  # a graph of 120 rows, too
    Index.build("index", table, encoder=model, kind="hnsw", device="cpu")


def _search(program: Program, material: Material, folder: Path) -> Ended:
    queries = folder / "queries.txt"
    queries.write_text("\n".join(material.texts.read_text().splitlines()[:5]), encoding="utf-8")
    asked = program.verb("search", "index", "--queries", queries, "-k", 20, *CPU, cwd=folder)
    if asked.code != 0:
        return asked
    filtered = program.verb("search", "index", "--queries", queries, "-k", 5, "--where", "year>=2000", *CPU, cwd=folder)
    return _value(filtered, (asked.out, filtered.out))


def _verify(program: Program, material: Material, folder: Path) -> Ended:
    return program.verb("index", "verify", "index", *CPU, cwd=folder)


# Vectors on disk


def _encode_parquet(program: Program, material: Material, folder: Path) -> None:
    worked(program.verb("encode", material.table, "-m", material.model, "-o", "vectors.parquet", *CPU, cwd=folder))


def _load(program: Program, material: Material, folder: Path) -> Ended:
    loaded = program.verb("index", "load", "vectors.parquet", "-o", "index", *CPU, cwd=folder)
    return program.call(index_contents, folder / "index") if loaded.code == 0 else loaded


def _encode_npy(program: Program, material: Material, folder: Path) -> None:
    lines = [line for row in material.dev.read_text().splitlines()[1:] for line in row.split(",")[:2]]
    (folder / "vectors.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    worked(program.verb("encode", "vectors.txt", "-m", material.model, "-o", "vectors.npy", *CPU, cwd=folder))


def _evaluate_npy(program: Program, material: Material, folder: Path) -> Ended:
    told = ("--tasks", f"scored:{material.dev}", "--resamples", 100, "--no-cache", "--format", "csv")
    ended = program.verb("evaluate", "vectors.npy", *told, *CPU, cwd=folder)
    return _value(ended, ended.out)


def _stop_shards(program: Program, material: Material, folder: Path) -> None:
    program.call(_encode_and_die, str(material.model), str(material.table), cwd=folder)
    if len(list((folder / "out.parquet.unfinished").glob("*.parquet"))) < 3:
        raise RuntimeError("the encode that is resumed wrote no shards")


def _encode_and_die(model: str, table: str) -> None:
    """Encode in shards, and end like a killed process after the third."""
    import twinpass
    from twinpass.bulk.shards import Job

    note = Job.note

    def note_and_die(self: Job, made: dict[str, int]) -> None:
        note(self, made)
        if len(self.finished()) == 3:
            os._exit(9)

    Job.note = note_and_die  # type: ignore[method-assign]
    twinpass.encode_file(table, "out.parquet", model=model, shard_rows=20, device="cpu")


def _resume_shards(program: Program, material: Material, folder: Path) -> Ended:
    command = ("encode", material.table, "-m", material.model, "-o", "out.parquet", "--shard-rows", 20, *CPU)
    return _value(program.verb(*command, cwd=folder), digests(folder, "out.parquet/*.parquet"))


# Evaluations


def _evaluate(program: Program, material: Material, folder: Path) -> None:
    told = ("--tasks", f"scored:{material.dev}", "--resamples", 100, "--no-cache", *CPU)
    worked(program.verb("evaluate", material.model, *told, "-o", "first.json", cwd=folder))
    worked(program.verb("evaluate", material.folder / "plain", *told, "-o", "second.json", cwd=folder))


def _compare(program: Program, material: Material, folder: Path) -> Ended:
    ended = program.verb("compare", "first.json", "second.json", *CPU, cwd=folder)
    return _value(ended, ended.out)


def _fill_cache(program: Program, material: Material, folder: Path) -> None:
    worked(_evaluate_cached(program, material, folder))


def _evaluate_cached(program: Program, material: Material, folder: Path) -> Ended:
    told = ("--tasks", f"scored:{material.dev}", "--resamples", 100, "--format", "csv", *CPU)
    ended = program.verb("evaluate", material.model, *told, cwd=folder, TWINPASS_CACHE=str(folder / "cache"))
    # A vector that is computed again comes from a smaller batch, and may differ in its last bits.
    return _value(ended, re.sub(r"\d+\.\d+", lambda found: f"{float(found[0]):.3f}", ended.out))


def _try_processor(program: Program, material: Material, folder: Path) -> None:
    worked(_examine(program, material, folder))


def _examine(program: Program, material: Material, folder: Path) -> Ended:
    return program.call(_verdict, cwd=folder, TWINPASS_CACHE=str(folder / "cache"))


def _verdict() -> Any:
    from twinpass import processor

    return processor.examine(processor.BF16).to_dict()


VICTIMS = [
    Victim("model folder", 0.2, _copy_model, ("model/*", "model/*/*"), _encode),
    Victim("quantised folder", 0.08, _copy_int8, ("model/*", "model/*/*"), _encode, skipped=make_int8),
    Victim("checkpoint", 0.16, _stop_training, ("out/checkpoints/*/*", "out/checkpoints/*/*/*"), _resume),
    Victim("log and run.json", 0.06, _stop_training, ("out/log.jsonl", "out/run.json"), _resume),
    Victim("run.json, from Python", 0.04, _stop_training, ("out/run.json",), _resume_run),
    Victim("index", 0.17, _build_index, ("index/index.json", "index/*/*", "index/removed*"), _search, _verify),
    Victim("index with a graph", 0.04, _build_graph, ("index/*/engine.faiss", "index/*/*"), _search, _verify),
    Victim("encode's .parquet", 0.06, _encode_parquet, ("vectors.parquet",), _load),
    Victim("encode's .npy", 0.02, _encode_npy, ("vectors.npy",), _evaluate_npy),
    Victim("unfinished shards", 0.06, _stop_shards, ("out.parquet.unfinished/*",), _resume_shards),
    Victim("result files", 0.05, _evaluate, ("first.json",), _compare),
    Victim("vector cache", 0.05, _fill_cache, ("cache/vectors/*",), _evaluate_cached),
    Victim("processor cache", 0.01, _try_processor, ("cache/processor/*",), _examine),
]


def run(
    program: Program, material: Material, *, tries: int, rng: random.Random, say: Callable[[str], None]
) -> list[Row]:
    """Damage every kind of file its share of the times."""
    rows = []
    for victim in VICTIMS:
        if share := int(tries * victim.share + 1e-9):
            say(f"flips: {victim.name}")
            reason = victim.skipped(program, material)
            skipped = Row("flips", victim.name, skipped=reason)
            rows.append(skipped if reason else damage(program, material, victim, share, rng))
    return rows


def damage(program: Program, material: Material, victim: Victim, tries: int, rng: random.Random) -> Row:
    """Damage one kind of file so many times, the files of a kind in turn."""
    pristine, trial = program.work / "pristine", program.work / "trial"
    shutil.rmtree(pristine, ignore_errors=True)
    shutil.rmtree(trial, ignore_errors=True)
    trial.mkdir()
    victim.make(program, material, trial)  # where it is used: files may hold their own path
    trial.rename(pristine)
    files = sorted({path for pattern in victim.files for path in pristine.glob(pattern) if path.is_file()})
    files = [path for path in files if path.stat().st_size and not path.name.endswith(("lock", ".md"))]
    shutil.copytree(pristine, trial)
    expected = worked(victim.answer(program, material, trial))
    failures: list[str] = []
    ended: dict[str, int] = {}
    turns: list[Path] = []
    for _ in range(tries):
        shutil.rmtree(trial)
        shutil.copytree(pristine, trial)
        turns = turns or rng.sample(files, len(files))
        path = trial / turns.pop().relative_to(pristine)
        done = _damage(path, rng)
        found = victim.answer(program, material, trial)
        how = _judge(program, material, victim, trial, found, expected, path)
        if how.startswith("FAILED"):
            failures.append(f"{path.relative_to(trial)}, {done}: {how.removeprefix('FAILED ')}")
        else:
            count(ended, how)
    return Row("flips", victim.name, tries, tuple(failures), ended)


def _judge(
    program: Program, material: Material, victim: Victim, trial: Path, found: Ended, expected: Ended, path: Path
) -> str:
    """Return how a try ended; a failure begins with FAILED."""
    if found.unexpected:
        return f"FAILED {found.unexpected}"
    if found.code == 2:
        return "refused"
    said = {*found.err.splitlines()} - {*expected.err.splitlines()}
    noticed = any("warning" in line or "damaged" in line or path.name in line for line in said)
    if found.value == expected.value:
        return "noticed, same answer" if noticed else "harmless"
    if noticed:
        return "warned"
    if victim.verify is not None and has_verb("index", "verify"):
        verified = victim.verify(program, material, trial)
        if verified.code == 2 and not verified.unexpected:
            return "found by verify"
    if any(fnmatch.fnmatch(path.name, pattern) for pattern in UNCOVERED):
        return "not covered"
    return "FAILED another answer without a word"


def _damage(path: Path, rng: random.Random) -> str:
    content = bytearray(path.read_bytes())
    if rng.random() < CUT:
        length = rng.randrange(len(content))
        path.write_bytes(content[:length])
        return f"cut to {length} of {len(content)} bytes"
    place, bit = rng.randrange(len(content)), rng.randrange(8)
    content[place] ^= 1 << bit
    path.write_bytes(content)
    return f"bit {bit} of byte {place} of {len(content)} flipped"
