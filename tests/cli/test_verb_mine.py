from __future__ import annotations

import json
from pathlib import Path


def test_pairs_become_triplets(run, tmp_path: Path, model: Path):
    pairs, output = tmp_path / "pairs.csv", tmp_path / "triplets.jsonl"
    words = ("water", "oil", "words", "parts", "days", "cats")
    pairs.write_text("query,answer\n" + "".join(f"how many {w},people find {w}\n" for w in words), encoding="utf-8")
    ran = run("mine", pairs, "-m", model, "-o", output, "--relative-margin", 0, "--ranks", "1-4", "--json")
    document = json.loads(ran.out)
    rows = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert (ran.code, document["pairs"], document["rows"]) == (0, 6, len(rows))
    assert document["model"]["name"] == str(model) and document["options"]["last"] == 4
    assert all(row["negative"] != row["positive"] for row in rows)
    shown = run("mine", pairs, "-m", model, "-o", output, "--relative-margin", 0)
    assert "pairs have a hard negative" in shown.out and "left out" in shown.out


def test_ranks_that_are_not_ranks(run, tmp_path: Path):
    ran = run("mine", "pairs.csv", "-o", tmp_path / "x.jsonl", "--ranks", "best")
    assert ran.code == 2 and "expected the first and the last, such as 1-50" in ran.err
