"""`encode_file(ray=True)` on a real Ray with two workers: the vectors of one process, kill or no kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.bulk.dies import DIES

from twinpass.bulk.encode_file import encode_file
from twinpass.bulk.ray import ENVIRONMENT
from twinpass.encoder.encoder import Encoder
from twinpass.errors import UserError

TEXTS = [f"the cat sat on {'a mat and ' * (n % 5)}the dog number {n % 90}" for n in range(60)]


def start(ray, attempts: int = 2):
    """Start a Ray of two workers; it waits 30 s for itself, which is not enough on a machine that is busy."""
    told = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": 80 << 20, "log_to_driver": False}
    for _ in range(attempts):
        try:
            return ray.init(address="local", **told)
        except Exception as error:
            ray.shutdown()
            if "timed out during startup" not in str(error):
                raise
    return pytest.skip(f"Ray did not start in {attempts} times 30 s: the machine is too busy")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory):
    """One Ray for all of this file: starting it is the slow part."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**ENVIRONMENT, "OMP_NUM_THREADS": "1"}.items():
            patch.setenv(name, value)  # read when Ray is imported
        ray = pytest.importorskip("ray", reason="needs Ray (extra [ray])")
        context = start(ray)
        yield context.address_info["address"]
        ray.shutdown()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "texts.txt"
    path.parent.mkdir()
    path.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return path


def rows(folder: Path) -> tuple[list[str], np.ndarray]:
    """Read a folder of shards as any reader of parquet would."""
    table = pq.read_table(folder)
    return table["text"].to_pylist(), np.stack(table["vector"].to_numpy())


def test_the_folder_holds_the_vectors_and_columns_of_one_process(cluster, model, source, tmp_path):
    table = tmp_path / "in" / "texts.jsonl"
    table.write_text(
        "".join(json.dumps({"text": text, "id": n, "tag": f"t{n % 3}"}) + "\n" for n, text in enumerate(TEXTS))
    )
    told = {"model": model, "normalize": True, "shard_rows": 25}
    ray, plain = tmp_path / "ray.parquet", tmp_path / "plain.parquet"
    found = encode_file(table, ray, **told, ray=True, workers=2)
    expected = encode_file(table, plain, **told)
    for name in ("texts", "truncated", "bad_rows", "dimensions", "columns", "shards", "resumed"):
        assert getattr(found, name) == getattr(expected, name)
    assert {**found.provenance} == {**expected.provenance}
    assert (found.shards, found.resumed, found.columns) == (3, 0, ("id", "tag"))
    assert [path.is_file() for path in found.files] == [True] * 3
    assert rows(ray)[0] == rows(plain)[0] == TEXTS
    np.testing.assert_allclose(rows(ray)[1], rows(plain)[1], atol=1e-5)
    assert pq.read_table(ray)["id"].to_pylist() == list(range(60))
    assert pq.read_table(ray).select(["text", "id", "tag"]) == pq.read_table(plain).select(["text", "id", "tag"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "plain.parquet", "ray.parquet"]
    again = encode_file(table, ray, **told, ray=True)  # nothing is left to do
    assert (again.resumed, again.distinct) == (3, found.distinct)


def test_killed_and_run_again_it_does_only_the_rest(cluster, model, source, tmp_path):
    out, work = tmp_path / "v.parquet", tmp_path / "v.parquet.unfinished"
    told = ["encode", str(source), "-m", model, "-o", str(out), "--ray", "--workers", "1", "--shard-rows", "6"]
    command = [sys.executable, "-c", DIES, *told, "--address", cluster]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not out.exists()
    before = {path.name: path.stat().st_mtime_ns for path in work.glob("*.parquet")}
    found = encode_file(source, out, model=model, ray=True, workers=1, shard_rows=6)
    assert (found.resumed, found.shards, found.texts) == (3, 10, 60)
    kept = sum((out / name).stat().st_mtime_ns == written for name, written in before.items())
    assert kept >= 3  # one more may have been finished, but not noted
    texts, vectors = rows(out)
    assert texts == TEXTS
    np.testing.assert_allclose(vectors, Encoder.load(model, device="cpu").encode(TEXTS), atol=1e-5)


def test_a_workers_error_reaches_the_user(cluster, model, source, tmp_path, monkeypatch):
    """The driver takes its model for another than the workers find."""
    monkeypatch.setattr(Encoder, "fingerprint", property(lambda self: "f" * 64))
    with pytest.raises(UserError, match="a worker found another model under the name"):
        encode_file(source, tmp_path / "v.parquet", model=model, ray=True, workers=1)
    assert not (tmp_path / "v.parquet").exists()
