"""`twinpass triplets` as a user meets it, and `twinpass train --positive`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.text.test_nli import PAIRS, write_jsonl
from tests.tiny import WORDS

from twinpass.config import Run
from twinpass.text.corpus import open_corpus
from twinpass.text.nli import read_nli


@pytest.fixture
def snli(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "snli.jsonl", [*PAIRS, ("x", "y", "-")])


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
def test_triplets_are_written_so_that_training_reads_them(run, snli, tmp_path, suffix: str) -> None:
    output = tmp_path / f"nli.{suffix}"
    done = run("triplets", snli, "-o", output)
    assert done.code == 0, done.err
    corpus = open_corpus(output)
    assert [row.texts for row in corpus] == read_nli([snli]).triplets()
    assert corpus.columns == ("sent0", "sent1", "hard_neg")
    said = "4 entailment, 2 neutral, 3 contradiction pairs, 1 rows skipped"
    assert f"{said} -> {output}: 2 triplets" in done.out
    assert "snli.jsonl" in done.out and "triplets" in done.out


def test_pairs_are_written_instead(run, snli, tmp_path) -> None:
    output = tmp_path / "all.csv"
    done = run("triplets", snli, "-o", output, "--pairs", "all", "--sample", 5, "--seed", 3)
    assert done.code == 0, done.err
    rows = [row.texts for row in open_corpus(output)]
    assert rows == read_nli([snli]).pairs("all", sample=5, seed=3) and len(rows) == 5


def test_json_counts_by_file(run, snli, tmp_path) -> None:
    more = write_jsonl(tmp_path / "R1" / "dev.jsonl", names=("context", "hypothesis", "label"), short=True)
    done = run("triplets", snli, more, "-o", tmp_path / "nli.csv", "--negatives", "both", "--json")
    document = json.loads(done.out)
    assert document["counts"] == {"entailment": 8, "neutral": 4, "contradiction": 6, "skipped": 1}
    assert [file["triplets"] for file in document["files"]] == [3, 3]
    assert document["files"][0]["skipped"] == {"no gold label": 1}
    assert document["rows"] == 6 and document["options"]["negatives"] == "both"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--negatives", "contra"], "expected negatives to be one of contradiction, neutral, both"),
        (["--pairs", "some"], "expected pairs to be one of"),
        (["--pairs", "neutral", "--negatives", "both"], "pairs have no hard negative"),
        (["-o", "nli.xlsx"], "expected a file name that ends in .csv, .tsv, .jsonl"),
        (["-o", "none/nli.csv"], "there is no folder none"),
    ],
)
def test_mistakes_leave_nothing_behind(run, snli, tmp_path, monkeypatch, arguments, says: str) -> None:
    monkeypatch.chdir(tmp_path)
    output = [] if "-o" in arguments else ["-o", "nli.csv"]
    done = run("triplets", snli, *output, *arguments)
    assert done.code == 2 and says in done.err, done.err
    assert [path.name for path in tmp_path.iterdir()] == ["snli.jsonl"]


def test_no_triplet_at_all_is_said(run, tmp_path) -> None:
    snli = write_jsonl(tmp_path / "a.jsonl", PAIRS[5:8])
    done = run("triplets", snli, "-o", tmp_path / "nli.csv")
    assert done.code == 2 and "nothing to write (2 entailment, 1 neutral, 0 contradiction pairs" in done.err
    assert "no premise has both an entailment and a contradiction pair" in done.err
    assert not (tmp_path / "nli.csv").exists()


def test_train_makes_positives(run, model, tmp_path) -> None:
    texts, out = tmp_path / "texts.txt", tmp_path / "out"
    texts.write_text("".join(f"{a} {b} {c}\n" for a, b, c in zip(WORDS, WORDS[3:], WORDS[7:], strict=False)))
    quick = ("--steps", 2, "--batch-size", 4, "--device", "cpu", "-m", model, "-o", out)
    done = run("train", texts, "--positive", "delete-one", *quick)
    assert done.code == 0, done.err
    assert f"because positives of {texts} are made by delete-one" in done.err
    assert Run.read(out / "run.json").positive == "delete-one"
    done = run("train", texts, "--positive", "delete-two", *quick)
    assert done.code == 2 and "Did you mean 'delete-one'" in done.err
