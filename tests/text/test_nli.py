"""Triplets and pairs from inference data in every released format, against naive loops."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from twinpass.errors import ConfigError, InputError
from twinpass.files import sha256
from twinpass.text.corpus import open_corpus
from twinpass.text.nli import NEGATIVES, UNDECIDED, read_nli, triplets

PAIRS = [
    ("A man eats.", "Someone eats.", "entailment"),
    ("A man eats.", "A man sleeps.", "contradiction"),
    ("A man eats.", "A man eats soup.", "neutral"),
    ("A man eats.", "A person is eating.", "entailment"),
    ("A man eats.", "Nobody eats.", "contradiction"),
    ("A dog runs.", "An animal runs.", "entailment"),
    ("A dog runs.", 'A dog runs "home".', "neutral"),
    ("A bird, red.", "A bird flies.", "entailment"),
    ("The sea.", "No water.", "contradiction"),
]
PARSES = "( A ( parse ) )"


def write_jsonl(path: Path, pairs=PAIRS, names=("sentence1", "sentence2", "gold_label"), short=False) -> Path:
    records = [
        {"uid": place, names[0]: a, names[1]: b, names[2]: label[0] if short else label}
        for place, (a, b, label) in enumerate(pairs)
    ]
    content = "".join(json.dumps(record) + "\n" for record in records)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(content.encode()))
    else:
        path.write_text(content)
    return path


def write_released_txt(path: Path, pairs=PAIRS) -> Path:
    """SNLI's layout: parses, then sentences, then what the annotators said, of whom some rows have fewer."""
    lines = ["gold_label\tsentence1_parse\tsentence2_parse\tsentence1\tsentence2\tpairID\tlabel1\tlabel2"]
    for place, (a, b, label) in enumerate(pairs):
        annotators = [label] if place % 2 else [label, "neutral"]
        lines.append("\t".join([label, PARSES, PARSES, a, b, f"{place}", *annotators]))
    path.write_text("\n".join(lines) + "\n")
    return path


def make(kind: str, folder: Path) -> Path | str:
    if kind == "snli.txt":
        return write_released_txt(folder / "snli_1.0_train.txt")
    if kind == "anli.jsonl":
        names = ("context", "hypothesis", "label")
        return write_jsonl(folder / "R1" / "train.jsonl", names=names, short=True)
    if kind in ("csv", "scsv"):
        mark = {"csv": ",", "scsv": ";"}[kind]
        rows = [("label", "premise", "hypothesis"), *((c, a, b) for a, b, c in PAIRS)]
        quoted = ['"' + f'"{mark}"'.join(cell.replace('"', '""') for cell in row) + '"' for row in rows]
        (folder / "pairs.csv").write_text("\n".join(quoted) + "\n")
        return folder / "pairs.csv" if kind == "csv" else f"scsv:{folder}/pairs.csv"
    if kind == "tsv":
        rows = [("premise", "hypothesis", "label", "family"), *((*pair, "snli") for pair in PAIRS)]
        (folder / "pairs.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
        return folder / "pairs.tsv"
    return write_jsonl(folder / kind)


@pytest.mark.parametrize("kind", ["snli.jsonl", "mnli.jsonl.gz", "snli.txt", "anli.jsonl", "csv", "scsv", "tsv"])
def test_every_released_format_reads_alike(kind: str, tmp_path: Path) -> None:
    nli = read_nli([make(kind, tmp_path)])
    for label in ("entailment", "neutral", "contradiction"):
        assert nli.pairs(label) == [(a, b) for a, b, found in PAIRS if found == label]
    assert nli.counts == {"entailment": 4, "neutral": 2, "contradiction": 3, "skipped": 0}
    assert Counter(nli.pairs("all")) == Counter((a, b) for a, b, _ in PAIRS)


@pytest.mark.parametrize("negatives", NEGATIVES)
def test_every_entailment_with_a_negative_makes_a_triplet(negatives: str, tmp_path: Path) -> None:
    nli = read_nli([write_jsonl(tmp_path / "a.jsonl")])
    for seed in range(5):
        made = nli.triplets(negatives=negatives, seed=seed)
        wanted = []
        for premise, entailed, label in PAIRS:
            possible = [b for a, b, c in PAIRS if a == premise and c in NEGATIVES[negatives]]
            if label == "entailment" and possible:
                wanted.append((premise, entailed, possible))
        assert [row[:2] for row in made] == [row[:2] for row in wanted]
        assert all(row[2] in possible for row, (_, _, possible) in zip(made, wanted, strict=True))
        assert made == nli.triplets(negatives=negatives, seed=seed)
    drawn = {row for seed in range(30) for row in nli.triplets(negatives=negatives, seed=seed)}
    assert len(drawn) == sum(len(possible) for _, _, possible in wanted)


def test_counts_by_file_and_negatives_of_other_files(tmp_path: Path) -> None:
    first = write_jsonl(tmp_path / "a.jsonl", PAIRS[:4])
    second = write_jsonl(tmp_path / "b.jsonl", [*PAIRS[4:], ("A dog runs.", "It sits.", "contradiction")])
    nli = read_nli([first, second])
    assert nli.triplets_by_file() == [2, 1]
    assert len(nli.triplets()) == 3
    assert [file.pairs["entailment"] for file in nli.files] == [2, 2]


def test_rows_without_a_gold_label_are_counted(tmp_path: Path) -> None:
    rows = [*PAIRS, ("x", "y", "-"), ("x", "z", "-"), ("x", " ", "neutral")]
    nli = read_nli([write_jsonl(tmp_path / "a.jsonl", rows)])
    assert nli.files[0].skipped == {UNDECIDED: 2, "empty text": 1}
    assert nli.counts["skipped"] == 3 and len(nli.pairs("all")) == len(PAIRS)


def test_a_sample_is_seeded_and_in_order(tmp_path: Path) -> None:
    nli = read_nli([write_jsonl(tmp_path / "a.jsonl")])
    every = nli.pairs("all")
    some = nli.pairs("all", sample=5, seed=1)
    assert some == nli.pairs("all", sample=5, seed=1) == [pair for pair in every if pair in some]
    assert len(some) == 5
    assert any(nli.pairs("all", sample=5, seed=seed) != some for seed in range(2, 6))
    assert nli.pairs("all", sample=99) == every
    assert len(nli.triplets(sample=1)) == 1


def test_mistakes_are_explained(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a label .*, got 'perhaps' \(.*a\.jsonl:2\)"):
        read_nli([write_jsonl(tmp_path / "a.jsonl", [PAIRS[0], ("x", "y", "perhaps")])])
    with pytest.raises(InputError, match=r"no column for a premise \(sentence1 or premise or context\)"):
        read_nli([write_jsonl(tmp_path / "b.jsonl", names=("one", "two", "label"))])
    with pytest.raises(InputError, match="is a folder"):
        read_nli([tmp_path])
    with pytest.raises(InputError, match="no file"):
        read_nli([tmp_path / "none.jsonl"])
    with pytest.raises(ConfigError, match="Did you mean 'contradiction'"):
        read_nli([]).triplets(negatives="contradictions")
    with pytest.raises(ConfigError, match="expected pairs to be one of"):
        read_nli([]).pairs("yes")


def test_bad_rows_stop_or_are_skipped(tmp_path: Path) -> None:
    path = write_released_txt(tmp_path / "a.txt")
    with path.open("a") as stream:
        stream.write("neutral\tonly\tthree\n")
    with pytest.raises(InputError, match=r"expected 8 tab-separated columns, got 3 \(.*a\.txt:11\)"):
        read_nli([path])
    nli = read_nli([path], skip_bad_rows=True)
    assert nli.files[0].skipped == {"wrong number of columns": 1}
    assert len(nli.pairs("all")) == len(PAIRS)
    gap = tmp_path / "b.jsonl"
    gap.write_text('{"sentence1": "a", "sentence2": null, "gold_label": "neutral"}\n')
    with pytest.raises(InputError, match="one is missing"):
        read_nli([gap])


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_a_bad_row_among_the_first_is_counted_once(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    if suffix == ".csv":
        path.write_text("premise,hypothesis,label\na,b,neutral\nonly two,columns\n")
    else:
        path.write_text('{"premise": "a", "hypothesis": "b", "label": "n"}\n{"premise": "cut off\n')
    nli = read_nli([path], skip_bad_rows=True)
    assert nli.counts["skipped"] == 1 and nli.pairs("all") == [("a", "b")]


@pytest.mark.parametrize("suffix", ["txt", "tsv", "jsonl", "csv"])
def test_an_empty_release_is_refused(suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"a.{suffix}").touch()
    with pytest.raises(InputError, match=rf"a\.{suffix} is empty"):
        read_nli([tmp_path / f"a.{suffix}"])


def test_blank_lines_at_the_end_of_a_release_do_no_harm(tmp_path: Path) -> None:
    path = write_released_txt(tmp_path / "a.txt")
    path.write_text(path.read_text() + "\n \n")
    assert read_nli([path]).counts["skipped"] == 0


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
def test_triplets_of_odd_texts_are_read_back(suffix: str, tmp_path: Path) -> None:
    premise = 'A\nman "eats", so.'
    odd = [(premise, "Some\rone.", "entailment"), (premise, "No\tone.", "contradiction")]
    output = tmp_path / f"out.{suffix}"
    made = triplets(write_jsonl(tmp_path / "a.jsonl", odd), output)
    (row,) = open_corpus(output)
    expected = (premise, "Some\rone.", "No\tone.")
    assert row.texts == (tuple(" ".join(text.split()) for text in expected) if suffix == "tsv" else expected)
    assert made.rows == 1 and made.sha256 == sha256(output)


def test_triplets_is_the_verb_as_a_function(tmp_path: Path) -> None:
    first, second = write_jsonl(tmp_path / "a.jsonl"), write_released_txt(tmp_path / "b.txt")
    made = triplets([first, second], tmp_path / "nli.csv", negatives="both", sample=3, seed=1)
    expected = read_nli([first, second]).triplets(negatives="both", sample=3, seed=1)
    assert [row.texts for row in open_corpus(tmp_path / "nli.csv")] == expected
    assert (made.rows, made.counts["entailment"], made.output) == (3, 8, tmp_path / "nli.csv")
    counts = {"entailment": 4, "neutral": 2, "contradiction": 3, "skipped": 0, "triplets": 3}
    assert made.records() == [{"file": str(path)} | counts for path in (first, second)]
    assert "8 entailment, 4 neutral, 6 contradiction pairs, 0 rows skipped" in repr(made)
    assert "<table>" in made._repr_html_()
    document = json.loads(json.dumps(made.to_dict()))
    assert document["options"] == {
        "negatives": "both", "pairs": None, "sample": 3, "skip_bad_rows": False, "seed": 1
    }  # fmt: skip
    assert document["files"][0]["triplets"] == 3 and "twinpass" in document
    assert "triplets" not in triplets(first, tmp_path / "pairs.csv", pairs="all").records()[0]
    with pytest.raises(ConfigError, match="at least 1 row, got 0"):
        triplets(first, tmp_path / "none.csv", sample=0)
    with pytest.raises(InputError, match="no pair is labelled neutral"):
        triplets(write_jsonl(tmp_path / "c.jsonl", PAIRS[:2]), tmp_path / "none.csv", pairs="neutral")
    assert not (tmp_path / "none.csv").exists()


def test_the_shared_pool_gives_the_premises_of_the_triples_that_others_made_of_it(shared: Path) -> None:
    nli = read_nli([shared / "data" / "nli_pairs.tsv.gz"])
    assert nli.counts == {
        "entailment": 101_806, "neutral": 101_033, "contradiction": 91_044, "skipped": 0
    }  # fmt: skip
    made = {(premise, entailed) for premise, entailed, _ in nli.triplets()}
    theirs = {row.texts[:2] for row in open_corpus(shared / "data" / "nli_triples.csv.gz")}
    assert made == theirs and len(made) == 65_565


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_numbered_labels_are_those_of_the_hub(suffix: str, tmp_path: Path) -> None:
    rows = [("a", "b", 0), ("a", "c", 1), ("a", "d", 2), ("a", "e", -1)]
    path = tmp_path / f"snli.{suffix}"
    if suffix == "jsonl":
        lines = [json.dumps(dict(zip(("premise", "hypothesis", "label"), row, strict=True))) for row in rows]
    else:
        lines = ["premise,hypothesis,label", *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    nli = read_nli([path])
    assert {label: list(pairs) for label, pairs in nli.labelled.items()} == {
        "entailment": [("a", "b")],
        "neutral": [("a", "c")],
        "contradiction": [("a", "d")],
    }
    assert nli.files[0].skipped["no gold label"] == 1
