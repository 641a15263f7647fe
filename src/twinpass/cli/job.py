"""A bulk encoding that can be stopped and taken up again: what it is, what is done, what is left.

::

    vectors.parquet.unfinished/         beside the output, and renamed to it when everything is done
      _job.json                         what is being made: model, data, options; another job is refused
      _texts/00000.parquet              the input, cut into shards: all that a worker needs to see
      _finished.jsonl                   one line for each finished shard
      vectors-00000-of-00012.parquet    a finished shard

Readers of parquet folders pass over names that begin with a line.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinpass.cli.vectors import files_of
from twinpass.errors import OutputError
from twinpass.files import explaining, replace_folder, write_json, writing


@dataclass(frozen=True)
class Shard:
    """One file of texts, and the file of vectors to make of it."""

    number: int
    rows: int
    texts: Path
    vectors: Path


class Job:
    """A bulk encoding on disk."""

    def __init__(self, output: Path, *, total: int, shard_rows: int, identity: Mapping[str, Any]) -> None:
        self.output = output.absolute()  # workers have other working folders
        self.identity = {**identity, "texts": total, "shard_rows": shard_rows}
        self.folder = self._find_folder()
        self._finished = _notes(self.folder / "_finished.jsonl")
        files = files_of(output, total=total, shard_rows=shard_rows)
        self.shards = [
            Shard(
                number,
                min(shard_rows, total - number * shard_rows),
                self.folder / "_texts" / f"{number:05d}.parquet",
                self.folder / file.name,
            )
            for number, file in enumerate(files)
        ]

    def _find_folder(self) -> Path:
        """Return the output if it is this job's already, else the folder beside it where the job is made."""
        if self._described(self.output) == self.identity:
            return self.output
        return self.output.with_name(f"{self.output.name}.unfinished")

    @staticmethod
    def _described(folder: Path) -> dict[str, Any] | None:
        path = folder / "_job.json"
        found: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
        return found

    def begin(self) -> None:
        """Make the folder of this job, or take up what an earlier run of it left."""
        found = self._described(self.folder)
        if found is None:
            with explaining(self.folder):
                self.folder.mkdir(exist_ok=True)
            write_json(self.folder / "_job.json", self.identity)
        elif found != self.identity:
            raise self._another(found)

    def _another(self, found: Mapping[str, Any]) -> OutputError:
        differing = [name for name in self.identity if found.get(name) != self.identity[name]]
        told = ", ".join(f"{name} {found.get(name)!r} (now {self.identity[name]!r})" for name in differing)
        return OutputError(
            f"{self.folder} holds the unfinished work of another job: {told}. Finish that one with the command that "
            "began it, delete the folder, or choose another output."
        )

    def finished(self) -> list[dict[str, int]]:
        """Return what was counted in each shard that is done."""
        return [self._finished[shard.number] for shard in self.shards if self._is_done(shard)]

    def left(self) -> list[Shard]:
        """Return the shards that are still to be encoded."""
        return [shard for shard in self.shards if not self._is_done(shard)]

    def _is_done(self, shard: Shard) -> bool:
        return shard.number in self._finished and shard.vectors.exists()

    def without_texts(self) -> list[Shard]:
        """Return the shards that are left and whose texts are still to be written."""
        return [shard for shard in self.left() if not shard.texts.exists()]

    def write_texts(self, texts: Iterable[str]) -> int:
        """Cut the input into the files of texts that are still needed; return how many texts it has."""
        stream, count, needed = iter(texts), 0, {*self.without_texts()}
        with explaining(self.folder):
            (self.folder / "_texts").mkdir(exist_ok=True)
        for shard in self.shards:
            held = list(itertools.islice(stream, shard.rows))
            count += len(held)
            if shard in needed and len(held) == shard.rows:
                _write_texts(shard.texts, held)
        return count + sum(1 for _ in stream)  # more than was counted at first, if the input grew

    def note(self, made: dict[str, int]) -> None:
        """Remember that a shard is done; its texts are no longer needed."""
        with explaining(self.folder), (self.folder / "_finished.jsonl").open("a", encoding="utf-8") as notes:
            notes.write(f"\n{json.dumps(made)}\n")  # on a line of its own, even after one that a kill cut short
        self._finished[made["shard"]] = made
        self.shards[made["shard"]].texts.unlink(missing_ok=True)

    def complete(self) -> None:
        """Give the folder the output's name, in one step."""
        shutil.rmtree(self.folder / "_texts", ignore_errors=True)
        if self.folder != self.output:
            with explaining(self.output):
                replace_folder(self.folder, self.output)


def read_texts(path: Path) -> list[str]:
    """Return the texts of one shard."""
    from pyarrow import parquet

    texts: list[str] = parquet.read_table(path)["text"].to_pylist()
    return texts


def _write_texts(path: Path, texts: list[str]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    with writing(path) as aside:
        parquet.write_table(pa.table({"text": pa.array(texts, pa.string())}), aside, compression="zstd")


def _notes(path: Path) -> dict[int, dict[str, int]]:
    """Return what was noted of each shard, passing over a line that a kill cut short."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            note = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[note["shard"]] = note
    return found
