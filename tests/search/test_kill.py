"""Killed at any moment, an index is the old one or the new one, and the next command works."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from twinpass.search.index import Block, Index

ROWS, DIMENSIONS, BLOCKS = 50, 512, 8
# What the process that is killed does, again and again; every row says which change wrote it.
CHILD = """
import itertools, sys
import numpy as np
from twinpass.search.index import Block, Index

folder, what, start, rows, dimensions, blocks = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
vectors = np.random.default_rng(0).normal(size=(rows, dimensions)).astype(np.float32)

def written(change):
    for block in range(blocks):
        print("block", flush=True)
        yield Block([f"{change} {block} {row}" for row in range(rows)], vectors, [{"change": change}] * rows)
    print("last", flush=True)

for change in itertools.count(start):
    if what == "build":
        Index.from_blocks(folder, written(change), model={"name": "m", "fingerprint": "f"}, overwrite=True)
    else:
        Index.open(folder).add_blocks(written(change))
    print(change, flush=True)
"""


def killed(folder: Path, what: str, *, start: int, rng: random.Random) -> tuple[int, bool]:
    """Kill the changes at a random moment; return the last that was finished, and whether one was under way."""
    arguments = [str(folder), what, *map(str, (start, ROWS, DIMENSIONS, BLOCKS))]
    process = subprocess.Popen([sys.executable, "-c", CHILD, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    until = rng.choice([rng.randint(1, BLOCKS), BLOCKS + 1, BLOCKS + 2, BLOCKS + 2 + rng.randint(1, BLOCKS + 1)])
    said = [process.stdout.readline().strip() for _ in range(until)]
    time.sleep(rng.uniform(0, 0.02))
    process.send_signal(signal.SIGKILL)
    said += process.stdout.read().split()
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL, said
    finished = [int(line) for line in said if line.isdecimal()]
    return (finished[-1] if finished else start - 1), not said[-1].isdecimal()


def changes_in(index: Index) -> list[int]:
    """Return the changes that an index holds, after checking that each is there whole."""
    entries = index.entries(index.ids())
    changes = [entry.metadata["change"] for entry in entries]
    assert {changes.count(change) for change in set(changes)} == {ROWS * BLOCKS}
    assert len({entry.text for entry in entries}) == len(entries) == len(index)
    assert np.isfinite(index.vectors()).all()
    return sorted(set(changes))


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize("what", ["build", "add"])
def test_killed_ten_times(what: str, tmp_path: Path) -> None:
    folder, rng = tmp_path / "index", random.Random(what)
    held: list[int] = []
    if what == "add":
        texts = [f"0 {row}" for row in range(ROWS * BLOCKS)]
        first = Block(texts, np.ones((len(texts), DIMENSIONS)), [{"change": 0}] * len(texts))
        Index.from_blocks(folder, [first], model={"name": "m", "fingerprint": "f"})
        held = [0]
    cut_short = 0
    for _ in range(10):
        start = held[-1] + 1 if held else 0
        finished, under_way = killed(folder, what, start=start, rng=rng)
        cut_short += under_way
        if not (folder / "index.json").exists():
            assert what == "build" and not held and finished < start  # nothing yet, as before
            continue
        now = changes_in(Index.open(folder))
        # All that was reported is there, and what was under way is there whole or not at all.
        assert now[-1] in (finished, finished + under_way)
        assert now == (now[-1:] if what == "build" else [*held, *range(start, now[-1] + 1)])
        held = now
    assert cut_short >= 5 and held  # the kills landed inside changes
    index = Index.open(folder)
    index.add_blocks([Block(["and on it goes"], np.ones((1, DIMENSIONS)))])
    assert len(Index.open(folder)) == len(index) and index.entries(index.ids()[-1:])[0].text == "and on it goes"
    names = {path.name for path in folder.iterdir() if path.name.startswith(("segment-", ".index"))}
    assert len(names) == len(index.info()["segments"])  # what the killed ones left is gone
