"""Recall@10 against exact search, queries per second, memory and build time of each kind of index; keyword search.

    python benchmarks/search.py --vectors captions.npy
    python benchmarks/search.py --data ../shared/data          # encodes the Flickr30k captions first

Some rows are drawn as queries and not indexed, so recall is that of queries the index has never seen. Each kind is
built and searched in processes of its own. Beside the clock stands the processor's time, which a busy machine does not
lengthen; with OMP_NUM_THREADS=1 it is the time of one core. For the keyword and hybrid searches of the exact index,
texts are drawn from a vocabulary with Zipf's law; queries are three words of such a text.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

KINDS = ("exact", "hnsw", "ivf-pq", "int8", "binary")
STORAGES = ("int8", "binary")  # small vectors, in an index of the kind exact
VOCABULARY, LENGTH = 50_000, 12  # distinct words, and words of a text
MODEL = {"name": "benchmark", "fingerprint": "0" * 64}


def resident() -> float:
    """Return the megabytes of this process that are its own, the index's mapped files left out."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1e3


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return what work returns, seconds by the clock, and seconds of the processor."""
    wall, processor = time.perf_counter(), time.process_time()
    found = work()
    return found, time.perf_counter() - wall, time.process_time() - processor


def build(kind: str, vectors: Path, queries: int, folder: Path) -> dict[str, Any]:
    """Build an index of one kind."""
    from twinpass.search.index import Block, Index

    rows = np.load(vectors, mmap_mode="r")
    _, kept = split(len(rows), queries)

    def blocks() -> Iterator[Block]:
        for at in range(0, len(kept), 4096):
            some = kept[at : at + 4096]
            yield Block(texts_of(some), rows[some])

    chosen = {"kind": "exact", "storage": kind} if kind in STORAGES else {"kind": kind}
    index, wall, processor = timed(lambda: Index.from_blocks(folder, blocks(), model=MODEL, **chosen))
    segment = index.info()["segments"][0]
    return {
        "kind": segment["kind"],
        "rows": len(kept),
        "build seconds": [wall, processor],
        "build peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "recall shown at build": segment.get("recall_at_10", 1.0),
        "effort": segment.get("effort"),
        "vectors in memory MB": segment.get("memory", 4 * rows.shape[1] * len(kept)) / 1e6,
        "disk MB": index.info()["bytes"] / 1e6,
    }


def search(kind: str, vectors: Path, queries: int, folder: Path) -> dict[str, Any]:
    """Search an index in a process that has not built it, so that the memory is the search's own."""
    import faiss  # noqa: F401 - loaded before memory is measured

    from twinpass.search.index import Index

    rows = np.load(vectors, mmap_mode="r")
    asked = np.ascontiguousarray(rows[split(len(rows), queries)[0]])
    before = resident()
    index = Index.open(folder)
    index.nearest(asked[:1], 10)  # what is loaded at first use is loaded now
    memory = resident() - before
    (scores, _), batch_wall, batch = timed(lambda: index.nearest(asked, 10))
    some = asked[:200]
    _, single_wall, single = timed(lambda: [index.nearest(query[None], 10) for query in some])
    np.save(folder.parent / f"{kind}.npy", scores)
    words = {}
    if kind == "exact":
        asking = [" ".join(text.split()[:3]) for text in texts_of(np.arange(len(some)))]
        index.search_vectors(None, 10, texts=asking[:1], mode="keyword")  # reads the words' files
        for mode in ("dense", "keyword", "hybrid"):
            pairs = zip(some, asking, strict=True)
            _, wall, processor = timed(
                lambda mode=mode, pairs=pairs: [
                    index.search_vectors(vector, 10, texts=[text], mode=mode) for vector, text in pairs
                ]
            )
            words[mode] = [1e3 * wall / len(some), 1e3 * processor / len(some)]
    return {
        "milliseconds per query, with texts": words,
        "queries per second, together": [len(asked) / batch_wall, len(asked) / batch],
        "queries per second, one by one": [len(some) / single_wall, len(some) / single],
        "memory MB": memory,
    }


def texts_of(rows: np.ndarray) -> list[str]:
    """Return a text for each row, the same in every process."""
    words = (np.random.default_rng(int(row)).zipf(1.2, LENGTH) % VOCABULARY for row in rows)
    return [" ".join(f"w{word}" for word in each) for each in words]


def split(rows: int, queries: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that ask and the rows that are indexed."""
    order = np.random.default_rng(0).permutation(rows)
    return np.sort(order[:queries]), np.sort(order[queries:])


def encode_captions(data: Path, target: Path) -> None:
    """Encode the Flickr30k captions with the built-in model."""
    source = data / "flickr30k_captions.tsv.gz"
    columns = ",".join(f"cap{number}" for number in range(1, 6))
    command = [sys.executable, "-m", "twinpass", "encode", str(source), "-m", "minilm", "--columns", columns]
    subprocess.run([*command, "--normalize", "-o", str(target)], check=True)


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| kind | recall@10 | shown at build | queries/s together | one by one | memory MB | vectors MB | disk MB "
        "| build s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        together, single = row["queries per second, together"], row["queries per second, one by one"]
        build = row["build seconds"]
        lines.append(
            f"| {row['kind']} | {row['recall']:.3f} | {row['recall shown at build']:.3f} "
            f"| {together[0]:,.0f} ({together[1]:,.0f}) | {single[0]:,.0f} ({single[1]:,.0f}) "
            f"| {row['memory MB']:,.0f} | {row['vectors in memory MB']:,.1f} | {row['disk MB']:,.0f} "
            f"| {build[0]:,.0f} ({build[1]:,.0f}) |"
        )
    lines += ["", "| mode of the exact index | ms per query, with texts |", "|---|---|"]
    modes = rows[0]["milliseconds per query, with texts"]
    lines += [f"| {mode} | {wall:,.2f} ({processor:,.2f}) |" for mode, (wall, processor) in modes.items()]
    return "\n".join([*lines, "", f"{rows[0]['rows']:,} vectors; in brackets: by the processor's time"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, help="a .npy file of vectors")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--json", action="store_true")
    # What a child does: build or search, the kind, the folder.
    parser.add_argument("--step", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        step, kind, folder = arguments.step
        work = {"build": build, "search": search}[step]
        print(json.dumps(work(kind, arguments.vectors, arguments.queries, Path(folder))))
        return
    with tempfile.TemporaryDirectory() as place:
        vectors = arguments.vectors or Path(place) / "captions.npy"
        if not arguments.vectors:
            encode_captions(arguments.data, vectors)
        rows: list[dict[str, Any]] = []
        for kind in ["exact", *(kind for kind in arguments.kinds.split(",") if kind != "exact")]:
            rows.append({})
            for step in ("build", "search"):
                child = [sys.executable, __file__, "--vectors", str(vectors)]
                child += ["--queries", str(arguments.queries), "--step", step, kind, f"{place}/index-{kind}"]
                rows[-1] |= json.loads(subprocess.run(child, check=True, stdout=subprocess.PIPE).stdout)
            truth, found = (np.load(f"{place}/{name}.npy") for name in ("exact", kind))
            # By score, so that equals count as equal.
            rows[-1]["recall"] = float((found >= truth[:, -1:] - 1e-6).mean())
    print(json.dumps(rows, indent=2) if arguments.json else table(rows))


if __name__ == "__main__":
    main()
