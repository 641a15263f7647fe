"""A folder of shards that can be stopped and resumed: what is being made, what is done, what is left.

::

    vectors.parquet.unfinished/         beside the output, and renamed to it when everything is done
      _job.json                         what is being made: model, data, options; another job is refused
      _texts/00000.parquet              on Ray: the input, cut into shards: all that a worker needs to read
      _finished.jsonl                   one line for each finished shard
      vectors-00000-of-00012.parquet    a finished shard

Readers of parquet folders skip names that begin with an underscore.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from twinpass.bulk.writers import Columns, Row
from twinpass.errors import InputError, OutputError
from twinpass.files import DiskFull, check_writable, explaining, locked, replace_folder, sha256, write_json, writing

JOB, FINISHED, TEXTS = "_job.json", "_finished.jsonl", "_texts"


@dataclass(frozen=True)
class Shard:
    """One file of vectors to make, and on Ray the file of texts to make it from."""

    number: int
    rows: int
    texts: Path
    vectors: Path


class Job:
    """A folder of shards in the making."""

    def __init__(self, output: Path, *, total: int, shard_rows: int, identity: Mapping[str, Any]) -> None:
        self.output = output.absolute()  # workers have other working folders
        self.identity = {**identity, "texts": total, "shard_rows": shard_rows}
        # Once complete, the folder has the name of the output.
        done = _read_identity(self.output) == self.identity
        self.folder = self.output if done else self.output.with_name(f"{self.output.name}.unfinished")
        self._finished = _read_notes(self.folder / FINISHED)
        self.damaged: list[str] = []  # shards that are not as they were written, to be encoded again
        count = -(-total // shard_rows)
        self.shards = [
            Shard(
                number,
                min(shard_rows, total - number * shard_rows),
                self.folder / TEXTS / f"{number:05d}.parquet",
                self.folder / f"{output.stem}-{number:05d}-of-{count:05d}{output.suffix}",
            )
            for number in range(count)
        ]
        for shard in self.shards:
            known = self._finished.get(shard.number, {}).get("sha256")
            if known is not None and shard.vectors.exists() and sha256(shard.vectors) != known:
                self.damaged.append(shard.vectors.name)
                del self._finished[shard.number]

    def begin(self) -> None:
        """Make the folder of this job, or resume what an earlier run of it left."""
        found = _read_identity(self.folder)
        if found is None:
            with explaining(self.folder):
                self.folder.mkdir(exist_ok=True)
            write_json(self.folder / JOB, self.identity)
        elif found != self.identity:
            differing = [name for name in self.identity if found.get(name) != self.identity[name]]
            listed = ", ".join(f"{name} {found.get(name)!r} (now {self.identity[name]!r})" for name in differing)
            raise OutputError(
                f"{self.folder} holds the unfinished work of another job: {listed}. Finish that one with the command "
                "that began it, delete the folder, or choose another output."
            )

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Begin the job, and complete it if nothing failed; after a failure keep what a later run can resume.

        Meanwhile a second run of any job with this output is refused.
        """
        with locked(self.output.with_name(f".{self.output.name}.lock"), wait=False, what=self.output, keep=False):
            self.begin()
            try:
                yield
                self.complete()
            except BaseException as error:
                holds_work = bool(self.finished()) or (self.folder / TEXTS).exists()
                keep = holds_work and not isinstance(error, InputError)  # an input that changed: all is in doubt
                if self.folder != self.output and not keep:
                    shutil.rmtree(self.folder, ignore_errors=True)
                if keep and isinstance(error, DiskFull):
                    advice = "Finished shards are kept: free space, then run the same command again."
                    raise DiskFull(error.target, error.reason, needed=error.needed, advice=advice) from error
                raise

    def finished(self) -> list[dict[str, Any]]:
        """Return what was counted in each shard that is done."""
        return [self._finished[shard.number] for shard in self.shards if self._is_done(shard)]

    def left(self) -> list[Shard]:
        """Return the shards that are still to be encoded."""
        return [shard for shard in self.shards if not self._is_done(shard)]

    def _is_done(self, shard: Shard) -> bool:
        return shard.number in self._finished and shard.vectors.exists()

    def cut(self, rows: Iterator[Row], shards: Collection[Shard]) -> Iterator[tuple[Shard, Iterator[Row]]]:
        """Yield each of these shards with its rows of the input, reading past the others."""
        chosen = {*shards}
        for shard in self.shards:
            own = islice(rows, shard.rows)
            if shard in chosen:
                yield shard, own
            for _ in own:
                pass
        next(rows, None)  # reports an input that has become longer

    def without_texts(self) -> list[Shard]:
        """Return the shards that are left and whose texts are still to be written."""
        return [shard for shard in self.left() if not shard.texts.exists()]

    def write_texts(self, rows: Iterator[Row], columns: Columns) -> None:
        """Cut the input into the files of texts that workers still need."""
        import pyarrow as pa
        from pyarrow import parquet

        schema = pa.schema([("text", pa.string()), *columns.fields()])
        with explaining(self.folder):
            (self.folder / TEXTS).mkdir(exist_ok=True)
        for shard, own in self.cut(rows, self.without_texts()):
            texts, others = zip(*own, strict=True)
            table = pa.Table.from_pydict({"text": texts, **columns.values(others)}, schema=schema)
            with writing(shard.texts) as aside:
                parquet.write_table(table, aside, compression="zstd", write_page_checksum=True)

    def note(self, made: dict[str, Any]) -> None:
        """Record that a shard is done; its texts are no longer needed."""
        with explaining(self.folder), (self.folder / FINISHED).open("a", encoding="utf-8") as notes:
            notes.write(
                f"\n{json.dumps({**made, 'note': _digest(made)})}\n"
            )  # on a line of its own, even after one that a kill cut short
        self._finished[made["shard"]] = made
        self.shards[made["shard"]].texts.unlink(missing_ok=True)

    def complete(self) -> None:
        """Give the folder the output's name, in one step."""
        shutil.rmtree(self.folder / TEXTS, ignore_errors=True)
        if self.folder != self.output:
            with explaining(self.output):
                replace_folder(self.folder, self.output)


def check_shard_folder(output: Path) -> None:
    """Raise OutputError if the output cannot be written, or is a folder that holds anything but shards."""
    if not output.is_dir():
        check_writable(output)
        return
    ours = (JOB, FINISHED)
    strange = [path.name for path in output.iterdir() if path.suffix != output.suffix and path.name not in ours]
    if strange:
        raise OutputError(f"cannot replace the folder {output}: it holds {strange[0]}, which is not a shard.")


def read_rows(path: Path) -> list[Row]:
    """Return the rows of one file of texts."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        rows = parquet.read_table(path, page_checksum_verification=True).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is damaged: {error}. Delete it, and run the same command again.") from error
    return [(row.pop("text"), row) for row in rows]


def _read_identity(folder: Path) -> dict[str, Any] | None:
    path = folder / JOB
    try:
        found: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except ValueError as error:
        raise OutputError(f"{path} is damaged: {error}. Delete {folder}, or choose another output.") from error
    return found


def _read_notes(path: Path) -> dict[int, dict[str, Any]]:
    """Return what was noted of each shard, skipping a line that a kill cut short or that is damaged."""
    found = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []:
        try:
            note = json.loads(line)
            own = note.pop("note")
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        if own == _digest(note):
            found[note["shard"]] = note
    return found


def _digest(made: Mapping[str, Any]) -> str:
    """Return a checksum of what is noted of a shard."""
    return hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:16]
