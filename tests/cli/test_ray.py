"""`twinpass encode --engine ray` on a real Ray with two workers: the vectors of the plain engine, kill or no kill."""

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

from twinpass.cli.ray_pool import ENVIRONMENT
from twinpass.encoder.encoder import Encoder

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
    np.testing.assert_allclose(rows(ray)[1], rows(plain)[1], atol=1e-5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "plain.parquet", "ray.parquet"]
    again = json.loads(run(*told, ray, "--engine", "ray").out)  # nothing is left to do
    assert (again["resumed"], again["distinct"]) == (3, found["distinct"])


DIES = """
import os, signal, sys
from twinpass.cli.job import Job
from twinpass.cli.main import main

note = Job.note

def note_and_die(self, made):
    note(self, made)
    if len(self.finished()) == 3:
        os.kill(os.getpid(), signal.SIGKILL)

Job.note = note_and_die
main(sys.argv[1:])
"""


def test_killed_and_run_again_it_does_only_the_rest(cluster, run, model, source, tmp_path):
    out, work = tmp_path / "v.parquet", tmp_path / "v.parquet.unfinished"
    told = ["encode", model, str(source), "-o", str(out), "--engine", "ray", "--workers", "1", "--shard-rows", "6"]
    command = [sys.executable, "-c", DIES, *told, "--address", cluster]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not out.exists()
    before = {path.name: path.stat().st_mtime_ns for path in work.glob("*.parquet")}
    ran = run(*told, "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert (found["resumed"], found["shards"], found["texts"]) == (3, 10, 60)
    kept = sum((out / name).stat().st_mtime_ns == written for name, written in before.items())
    assert kept >= 3  # one more may have been finished, but not noted
    texts, vectors = rows(out)
    assert texts == TEXTS
    np.testing.assert_allclose(vectors, Encoder.load(model, device="cpu").encode(TEXTS), atol=1e-5)


def test_a_workers_complaint_is_the_users_to_read(cluster, run, model, source, tmp_path, monkeypatch):
    """The driver believes in another model than the workers find."""
    monkeypatch.setattr(Encoder, "fingerprint", property(lambda self: "f" * 64))
    told = ["encode", model, source, "-o", tmp_path / "v.parquet", "--engine", "ray", "--workers", 1]
    ran = run(*told)
    assert ran.code == 2 and "a worker found another model under the name" in ran.err, ran.err
    assert not (tmp_path / "v.parquet").exists()
