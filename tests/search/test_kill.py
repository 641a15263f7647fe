"""Killed before any of its file operations, a change of an index is whole or not there, and can be made again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

# Makes each change again and again, in a process of its own that kills itself before its first, second, third ...
# operation that changes a file, until a change comes to its end. Every time it compares what is left.
DRIVER = """
import contextlib, itertools, json, os, shutil, signal, sys
from pathlib import Path
import numpy as np
from twinpass.search import writer
from twinpass.search.index import Block, Index
from twinpass.search.manifest import read_manifest

place = Path(sys.argv[1])
old, folder = place / "old", place / "index"
vectors = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
os.fsync = lambda handle: None  # a killed process loses nothing that the system has; waiting for the disk takes long
left = 0  # operations until the kill; none if negative

def step():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def watch(event, args):
    changes = event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir") or event == "open" and args[1] != "r"
    if changes and str(args[0]).startswith(str(folder)):
        step()

def blocks(name, first=0):
    for part in range(2):
        step()
        notes = [{"name": name, "key": first + 40 * part + row} for row in range(40)]
        yield Block([f"{name} {part} {row}" for row in range(40)], vectors, notes)

def build(name, **options):
    Index.from_blocks(folder, blocks(name), model={"name": "m", "fingerprint": "f"}, overwrite=True, **options)

CHANGES = {
    "build": lambda: build("new"),
    "overwrite": lambda: build("other"),
    "add": lambda: Index.open(folder).add_blocks(blocks("added")),
    "add and join": lambda: Index.open(folder).add_blocks(blocks("added")),
    "remove": lambda: Index.open(folder).remove(ids=[1, 5]),
    "remove and join": lambda: Index.open(folder).remove(where="name = new"),
    "compact": lambda: Index.open(folder).compact(),
    "replace by id": lambda: Index.open(folder).add_blocks(blocks("added", 30)),
}

def restore():
    shutil.rmtree(folder, ignore_errors=True)
    if old.exists():
        shutil.copytree(old, folder)

def content():
    if not (folder / "index.json").exists():
        return None
    index = Index.open(folder)
    Index.verify(folder).check()
    ids = index.ids()
    rows = [(entry.id, entry.text, entry.metadata) for entry in index.entries(ids)]
    words = [hits.to_dict() for hits in index.search(["added 3", "new 1 7"], mode="keyword")]
    return rows, words, index.vectors(ids).tobytes()

sys.addaudithook(watch)
for name, change in CHANGES.items():
    writer.MOST_PARTS = 1 if name == "add and join" else 8
    restore()
    if name == "replace by id":
        build("new", id_column="key")
        shutil.rmtree(old)
        shutil.copytree(folder, old)
    before = content()
    change()
    after = content()
    for operation in itertools.count(1):
        restore()
        if (child := os.fork()) == 0:
            left = operation
            change()
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        assert status in (0, signal.SIGKILL), (name, operation, status)
        found = content()
        assert found == after or status and found == before, (name, operation)
        if status == 0:
            break
        if found == before:
            change()
            assert content() == after, (name, operation)
        else:
            Index.open(folder).add_blocks([Block(["and on"], vectors[:1], [{"key": "z"}])])  # the next command works
        with contextlib.suppress(FileNotFoundError):
            names = {path.name for path in folder.iterdir()}
            assert names == {"index.json", "lock", *read_manifest(folder).names}, (name, operation, names)
    print(json.dumps([name, operation - 1]), flush=True)
    if name in ("build", "add"):  # what the later ones change
        shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(folder, old)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork and no SIGKILL")
def test_killed_before_every_operation_of_every_change(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", DRIVER, str(tmp_path)], capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-2_000:]
    kills = dict(map(json.loads, ran.stdout.splitlines()))
    assert len(kills) == 8 and min(kills.values()) >= 8 and sum(kills.values()) >= 120, kills
