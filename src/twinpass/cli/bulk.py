"""Choosing the engine of `encode`, and the work of the one that spreads over many machines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinpass.cli.console import Console
from twinpass.cli.ray_pool import find_ray
from twinpass.errors import ConfigError, OutputError

if TYPE_CHECKING:
    from twinpass.cli.encode import Tally
    from twinpass.cli.job import Job
    from twinpass.cli.ray_pool import Recipe

ENGINES = ("local", "ray")

# What is lost at most when a worker dies: minutes on a core, seconds on a GPU; 100 MB of vectors at 384 dimensions.
# Sixteen windows, so that duplicates are recognised just as the local engine recognises them.
SHARD_ROWS = 65_536


@dataclass(frozen=True)
class EngineOptions:
    """Where to encode: in this process, or on the workers of a Ray cluster."""

    engine: Annotated[str, typer.Option(help="local, or ray: many workers, resumable (extra [ray]).")] = "local"
    workers: Annotated[
        int | None, typer.Option(min=1, help="With ray: how many workers (default: all cores, or all GPUs).")
    ] = None
    address: Annotated[
        str | None, typer.Option(help="With ray: a cluster, auto or HOST:6379 (default: one on this machine).")
    ] = None

    def settle(self, output: Path, shard_rows: int | None) -> int | None:
        """Check that the options fit together, and return the rows of a shard."""
        if self.engine not in ENGINES:
            raise ConfigError(f"no engine {self.engine!r}; known: {', '.join(ENGINES)}.")
        if self.engine == "local":
            if self.workers is not None or self.address is not None:
                raise ConfigError("--workers and --address belong to --engine ray. Add it, or leave them out.")
            return shard_rows
        if output.suffix != ".parquet":
            raise OutputError(f"cannot write {output}: --engine ray writes a folder whose name ends in .parquet.")
        find_ray()  # missed now, not after the input was read
        return shard_rows or SHARD_ROWS


def encode_in_bulk(
    console: Console, tally: Tally, recipe: Recipe, spread: EngineOptions, *, output: Path, shard_rows: int
) -> dict[str, Any]:
    """Encode shard by shard on Ray's workers, or finish what an earlier run began; return the numbers."""
    from twinpass.cli.job import Job
    from twinpass.cli.ray_pool import encode_shards

    ray = find_ray()
    job = Job(output, total=tally.total, shard_rows=shard_rows, identity=recipe.identity())
    job.begin()
    _write_texts(console, tally, job)
    resumed = job.finished()
    if resumed:
        console.log(f"{len(resumed):,} of {len(job.shards):,} shards were finished before")
    with console.progress("encoding", total=tally.total) as advance:
        advance(sum(made["rows"] for made in resumed))
        for made in encode_shards(ray, job, recipe, workers=spread.workers, address=spread.address):
            advance(made["rows"])
    found = _numbers(tally, job.finished())
    job.complete()
    return found | {"shards": len(job.shards), "resumed": len(resumed)}


def _write_texts(console: Console, tally: Tally, job: Job) -> None:
    if job.without_texts():
        console.log(f"cutting the input into {len(job.shards):,} shards ...")
        tally.texts = job.write_texts(tally.corpus.texts())
        tally.check_complete()


def _numbers(tally: Tally, shards: list[dict[str, int]]) -> dict[str, Any]:
    tally.texts, tally.distinct = (sum(made[name] for made in shards) for name in ("rows", "distinct"))
    return tally.result(truncated=sum(made["truncated"] for made in shards))
