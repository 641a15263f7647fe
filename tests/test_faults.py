"""benchmarks/faults.py with few tries, and the main verbs without a network: nothing fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
FEW = {
    "kills,flips": ("--tries", "10"),
    "requests": ("--tries", "150", "--seconds", "1", "--clients", "20", "--timeout", "5"),
}
ALONE = """
import socket, sys
from twinpass.cli.main import main

try:
    socket.create_connection(("192.0.2.1", 80), timeout=3)
except OSError:
    pass
else:
    sys.exit("there is a network")
for command in sys.stdin.read().splitlines():
    try:
        main(command.split())
    except SystemExit as stop:
        if stop.code:
            sys.exit(f"{command}: {stop.code}")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="children are forked")
@pytest.mark.parametrize("part", FEW)
def test_no_fault_does_harm(part: str) -> None:
    command = [sys.executable, str(TOP / "benchmarks" / "faults.py"), "--only", part, *FEW[part], "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout, done.stderr[-3000:]
    rows = json.loads(done.stdout)["rows"]
    # Times and memory say nothing on a machine that is busy with tests.
    judged = [row for row in rows if not row["what"].startswith(("stopped in", "memory,", "half-open"))]
    assert [failure for row in judged for failure in row["failures"]] == []
    assert sum(row["tries"] for row in judged) > 3


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
def test_the_main_verbs_need_no_network(model: str, sentences: Path, tmp_path: Path) -> None:
    way = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-r", "-n"]
    if subprocess.run([*way, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not make a network namespace")
    cpu = "--device cpu --quiet"
    commands = [
        f"encode {sentences} -m {model} -o v.npy {cpu}",
        f"train {sentences} -m {model} -o trained --steps 2 --batch-size 2 {cpu}",
        f"index build {sentences} -m trained -o index {cpu}",
        f"search index dog {cpu}",
    ]
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    environment |= {"HF_HOME": str(tmp_path / "hub"), "TWINPASS_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [*way, sys.executable, "-c", ALONE], input="\n".join(commands), cwd=tmp_path, env=environment,
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "trained" / "model.safetensors").is_file() and "dog" in done.stdout
