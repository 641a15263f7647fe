"""The examples run, on a tiny model and a tiny corpus."""

from __future__ import annotations

import csv
import runpy
import sys
from pathlib import Path

import pytest
from tests.training.tiny_runs import make_sentences, make_triplets

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_example(name: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_unsupervised(tiny, tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "text.txt").write_text("\n".join(make_sentences(20)))
    options = ["--data", str(tmp_path / "text.txt"), "--model", str(tiny), "--output", str(tmp_path / "out")]
    run_example("unsupervised.py", monkeypatch, *options, "--steps", "10", "--batch-size", "8")
    shown = capsys.readouterr().out
    assert "step 10/10  loss" in shown and "uniformity" in shown and "(3, 32)" in shown
    assert (tmp_path / "out/model.safetensors").is_file()


@pytest.mark.parametrize(("width", "view"), [(2, "pairs"), (3, "triplets")])
def test_supervised(tiny, tmp_path, monkeypatch, capsys, width: int, view: str) -> None:
    with (tmp_path / "rows.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerows([("sent0", "sent1", "hard_neg")[:width], *(row[:width] for row in make_triplets(30))])
    options = ["--data", str(tmp_path / "rows.csv"), "--model", str(tiny), "--output", str(tmp_path / "out")]
    run_example("supervised.py", monkeypatch, *options, "--steps", "3", "--batch-size", "8", "--held-out", "10")
    shown = capsys.readouterr().out
    assert f"20 rows, {view} because" in shown and "recall@1" in shown
    assert (tmp_path / "out/README.md").is_file()
