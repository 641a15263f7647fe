"""Vectors to files, as a stream: .npy, .parquet or .safetensors, in one file or in shards, whole or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinpass.cli.formats import WRITERS, Writer
from twinpass.errors import OutputError
from twinpass.files import check_writable, writing, writing_folder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Write = Callable[[Sequence[str], "NDArray[np.float32]"], None]


def check_target(target: Path, *, sharded: bool) -> None:
    """Refuse, before any work is done, a name we do not write or a place that cannot be written to."""
    if target.suffix not in WRITERS:
        raise OutputError(f"cannot write {target}: wanted a name that ends in {', '.join(WRITERS)}.")
    if not (sharded and target.is_dir()):
        check_writable(target)
    elif strange := [path.name for path in target.iterdir() if not _is_ours(path, target)]:
        raise OutputError(f"cannot replace the folder {target}: it holds {strange[0]}, which is no shard.")


def _is_ours(path: Path, target: Path) -> bool:
    return path.suffix == target.suffix or path.name in ("_job.json", "_finished.jsonl")


@contextlib.contextmanager
def writing_vectors(
    target: Path, *, dimensions: int, total: int, shard_rows: int | None = None, metadata: Mapping[str, str]
) -> Iterator[Write]:
    """Yield a function that takes blocks of texts and vectors; the output gets its name when all are written.

    With `shard_rows` the target becomes a folder of files with at most so many rows each.
    """
    make = WRITERS[target.suffix]
    if shard_rows is None:
        with writing(target) as aside, _finished(make(aside, dimensions, metadata)) as writer:
            yield writer.write
        return
    with writing_folder(target) as folder:
        paths = [folder / file.name for file in files_of(target, total=total, shard_rows=shard_rows)]
        with _finished(Shards(paths, shard_rows, lambda path: make(path, dimensions, metadata))) as shards:
            yield shards.write


def files_of(target: Path, *, total: int, shard_rows: int | None) -> list[Path]:
    """Return the files of an output: itself, or its shards, vectors-00000-of-00003.npy and so on."""
    if shard_rows is None:
        return [target]
    count = -(-total // shard_rows)
    return [target / f"{target.stem}-{place:05d}-of-{count:05d}{target.suffix}" for place in range(count)]


class Shards:
    """Fills one file after another with the same number of rows."""

    def __init__(self, paths: Sequence[Path], rows: int, make: Callable[[Path], Writer]) -> None:
        self._paths = iter(paths)
        self._rows = rows
        self._make = make
        self._writer: Writer | None = None
        self._room = 0

    def write(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Write a block, beginning new files where the current one is full."""
        while len(texts):
            if self._room == 0:
                self._next()
            count = min(self._room, len(texts))
            self._current().write(texts[:count], vectors[:count])
            self._room -= count
            texts, vectors = texts[count:], vectors[count:]

    def finish(self) -> None:
        """Finish the last file."""
        if self._writer is not None:
            self._writer.finish()

    def close(self) -> None:
        """Let go of the current file."""
        if self._writer is not None:
            self._writer.close()

    def _next(self) -> None:
        if self._writer is not None:
            self._writer.finish()
            self._writer.close()
        self._writer = self._make(next(self._paths))
        self._room = self._rows

    def _current(self) -> Writer:
        if self._writer is None:
            raise RuntimeError("no shard is open")
        return self._writer


@contextlib.contextmanager
def _finished(writer: Any) -> Iterator[Any]:
    """Finish a writer if all went well, and close it in any case."""
    try:
        yield writer
        writer.finish()
    finally:
        writer.close()
