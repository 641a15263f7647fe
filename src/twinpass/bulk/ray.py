"""Encoding on many workers: Ray Data hands shards of texts to actors, each of which loads the model once."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinpass.bulk.shards import Job, read_rows
from twinpass.bulk.writers import Content, encode_rows
from twinpass.errors import ConfigError, MissingExtra, ModelError, UserError
from twinpass.files import sha256

if TYPE_CHECKING:
    from twinpass.encoder.encoder import Encoder

# Read when Ray is imported or started: no usage statistics, and no bars of its own on the terminal.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
}
LOCAL_STORE = 128 << 20  # bytes of shared memory for a cluster of our own: only names of files pass through it


class ShardEncoder:
    """An actor: it loads the model once, then makes files of vectors from files of texts."""

    def __init__(self, loading: Mapping[str, Any], content: Content) -> None:
        self._content = content
        self._refusal: UserError | None = None
        try:
            self._encoder = _load(loading, content.metadata)
        except UserError as error:  # reported with the first shard
            self._refusal = error

    def __call__(self, shard: dict[str, Any]) -> dict[str, str]:
        """Encode a shard and return, as JSON, what was counted in it, or why it was refused."""
        return {"made": json.dumps(self._encode(int(shard["shard"]), Path(shard["texts"]), Path(shard["vectors"])))}

    def _encode(self, number: int, texts: Path, vectors: Path) -> dict[str, Any]:
        """Return a user's error as an answer: raised, Ray would bury it in tracebacks of its own."""
        try:
            if self._refusal is not None:
                raise self._refusal
            rows = read_rows(texts)
            counted = encode_rows(rows, len(rows), vectors, self._encoder, self._content)
            return {"shard": number, **counted, "sha256": sha256(vectors)}
        except UserError as error:
            return {"refusal": str(error)}


def _load(loading: Mapping[str, Any], metadata: Mapping[str, str]) -> Encoder:
    """Load the model, and make sure that it is the one which every other worker has."""
    from twinpass.encoder.encoder import Encoder

    name, expected = metadata["model"], metadata["model_fingerprint"]
    encoder = Encoder.load(name, **loading)
    found = encoder.fingerprint
    if found != expected:
        raise ModelError(
            f"a worker found another model under the name {name}: its fingerprint is {found[:12]}, not "
            f"{expected[:12]}. Put the same files on every machine."
        )
    return encoder


def encode_shards(
    job: Job, loading: Mapping[str, Any], content: Content, *, workers: int | None, address: str | None
) -> Iterator[dict[str, Any]]:
    """Encode what is left of a job, yielding what was counted in each shard as it is finished.

    `loading` are the options of Encoder.load: every worker encodes as any other would.
    """
    ray, left = find_ray(), job.left()
    if not left:
        return
    with _cluster(ray, address, workers=workers):
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        items = [{"shard": shard.number, "texts": str(shard.texts), "vectors": str(shard.vectors)} for shard in left]
        needs, most = _resources(ray, device=str(loading["device"]))
        # A task takes minutes, so none waits in an actor's queue while another actor has nothing to do.
        pool = ray.data.ActorPoolStrategy(size=min(workers or most, len(left)), max_tasks_in_flight_per_actor=1)
        tasks = ray.data.from_items(items, override_num_blocks=len(items))  # one for each shard
        done = tasks.map(ShardEncoder, compute=pool, fn_constructor_args=(loading, content), **needs)
        for row in done.iter_rows():
            made = json.loads(row["made"])
            if "refusal" in made:
                raise UserError(made["refusal"])
            job.note(made)
            yield made


def _resources(ray: Any, *, device: str) -> tuple[dict[str, int], int]:
    """Return what one worker needs, and how many such workers the cluster can hold."""
    found = ray.cluster_resources()
    cards = int(found.get("GPU", 0))
    if device.startswith("cuda") and not cards:
        raise ConfigError(f"--device {device} needs a cluster with a GPU; this one has none. Try --device cpu.")
    if cards and not device.startswith("cpu"):
        return {"num_gpus": 1, "num_cpus": 1}, cards
    return {"num_cpus": 1}, max(1, int(found.get("CPU", 1)))


@contextlib.contextmanager
def _cluster(ray: Any, address: str | None, *, workers: int | None) -> Iterator[None]:
    """Connect to the cluster at this address, or to a new one on this machine, until the work is done."""
    if ray.is_initialized():  # the caller's cluster: used, and left running
        yield
        return
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    try:
        if address is None:
            own = {"include_dashboard": False, "object_store_memory": LOCAL_STORE}
            ray.init(address="local", num_cpus=workers or os.cpu_count(), **own, **quiet)
        else:
            ray.init(address=address, **quiet)
    except Exception as error:  # Ray raises Exception itself after a timeout
        ray.shutdown()
        advice = "Try again when it is less busy" if address is None else "Start one with: ray start --head"
        where = "start Ray on this machine" if address is None else f"reach a Ray cluster at {address}"
        raise ConfigError(f"cannot {where}: {str(error).rstrip('.')}. {advice}.") from error
    try:
        yield
    finally:
        ray.shutdown()


def find_ray() -> Any:
    """Return the library, set up to send no usage statistics."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingExtra("--ray", "ray") from error
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    return ray
