"""`twinpass encode --engine ray` on a real Ray with two workers: the vectors of the plain engine, kill or no kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from twinpass.cli.ray_pool import ENVIRONMENT
from twinpass.encoder.encoder import Encoder

TEXTS = [f"the cat sat on {'a mat and ' * (n % 5)}the dog number {n % 90}" for n in range(60)]


def start(ray, attempts: int = 3):
    """Start a Ray of two workers; it waits 30 s for itself, which is not always enough on a busy machine."""
    told = {
        "num_cpus": 2,
        "include_dashboard": False,
        "object_store_memory": 80 << 20,
        "log_to_driver": False,
    }
    for _ in range(attempts - 1):
        try:
            return ray.init(address="local", **told)
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
            ray.shutdown()
    return ray.init(address="local", **told)


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


def test_the_folder_holds_the_plain_engines_vectors(cluster, run, model, source, tmp_path):
    told = ["encode", model, source, "--normalize", "--shard-rows", 25, "--json", "-o"]
    ray, plain = tmp_path / "ray.parquet", tmp_path / "plain.parquet"
    ran = run(*told, ray, "--engine", "ray", "--workers", 2)
    assert ran.code == 0, ran.err
    found, wanted = json.loads(ran.out), json.loads(run(*told, plain).out)
    for name in ("texts", "truncated", "bad_rows", "dimensions", "model", "data"):
        assert found[name] == wanted[name]
    assert (found["shards"], found["resumed"]) == (3, 0)
    assert [Path(path).is_file() for path in found["files"]] == [True] * 3
    assert rows(ray)[0] == rows(plain)[0] == TEXTS
    np.testing.assert_allclose(rows(ray)[1], rows(plain)[1], atol=1e-6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "plain.parquet", "ray.parquet"]
    again = json.loads(run(*told, ray, "--engine", "ray").out)  # nothing is left to do
    assert (again["resumed"], again["distinct"]) == (3, found["distinct"])


def test_killed_and_run_again_it_does_only_the_rest(cluster, run, model, source, tmp_path):
    out = tmp_path / "v.parquet"
    told = [
        "encode",
        model,
        str(source),
        "-o",
        str(out),
        "--engine",
        "ray",
        "--workers",
        "1",
        "--shard-rows",
        "2",
    ]
    work = tmp_path / "v.parquet.unfinished"
    process = subprocess.Popen(
        [sys.executable, "-m", "twinpass", *told, "--address", cluster],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
    )
    try:
        deadline = time.monotonic() + 900
        while process.poll() is None and not (work / "_finished.jsonl").exists():
            assert time.monotonic() < deadline, "no shard was finished"
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        _, err = process.communicate()
    assert process.returncode == -signal.SIGKILL, err.decode()
    assert not out.exists()
    before = {path.name: path.stat().st_mtime_ns for path in work.glob("*.parquet")}
    ran = run(*told, "--json")
    assert ran.code == 0, ran.err
    assert 0 < json.loads(ran.out)["resumed"] < len(TEXTS)
    kept = sum((out / name).stat().st_mtime_ns == written for name, written in before.items())
    assert kept >= json.loads(ran.out)["resumed"]
    texts, vectors = rows(out)
    assert texts == TEXTS
    np.testing.assert_allclose(vectors, Encoder.load(model, device="cpu").encode(TEXTS), atol=1e-6)


def test_a_workers_complaint_is_the_users_to_read(cluster, run, model, source, tmp_path, monkeypatch):
    """The driver believes in another model than the workers find."""
    monkeypatch.setattr(Encoder, "fingerprint", property(lambda self: "f" * 64))
    told = ["encode", model, source, "-o", tmp_path / "v.parquet", "--engine", "ray", "--workers", 1]
    ran = run(*told)
    assert ran.code == 2 and "a worker found another model under the name" in ran.err, ran.err
    assert not (tmp_path / "v.parquet").exists()
