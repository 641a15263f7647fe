"""`twinpass similarity`: a number, a matrix, or pairs."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from twinpass.encoder.encoder import Encoder

LEFT = ["the cat sat", "a dog", "many people"]
RIGHT = ["a cat", "the dog", "no water"]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    made = []
    for name, texts in (("left.txt", LEFT), ("right.txt", RIGHT)):
        (tmp_path / name).write_text("\n".join(texts) + "\n")
        made.append(tmp_path / name)
    return made


@pytest.fixture(scope="module")
def expected(model) -> np.ndarray:
    """Cosines by the definition, one pair at a time."""
    encoder = Encoder.load(model, device="cpu")

    def cosine(one: str, other: str) -> float:
        u, v = encoder.encode([one])[0].astype(float), encoder.encode([other])[0].astype(float)
        return sum(u * v) / (sum(u * u) ** 0.5 * sum(v * v) ** 0.5)

    return np.array([[cosine(one, other) for other in RIGHT] for one in LEFT])


def test_two_texts(run, model, expected):
    ran = run("similarity", "-m", model, LEFT[0], RIGHT[0])
    assert ran.out == f"{expected[0, 0]:.4f}\n"
    document = json.loads(run("similarity", "-m", model, LEFT[0], RIGHT[0], "--json").out)
    assert document["kind"] == "pair" and document["cosine"] == pytest.approx(expected[0, 0], abs=1e-5)
    assert document["left"] == [LEFT[0]] and document["right"] == [RIGHT[0]] and document["model"]["fingerprint"]


def test_several_texts_give_a_matrix(run, model):
    ran = run("similarity", "-m", model, *LEFT)
    assert ran.out.count("1.0000") >= 3 and all(text in ran.out for text in LEFT)
    document = json.loads(run("similarity", "-m", model, *LEFT, "--json").out)
    matrix = np.array(document["cosine"])
    assert matrix.shape == (3, 3) and np.allclose(matrix, matrix.T) and np.allclose(np.diag(matrix), 1, atol=1e-5)


def test_files_as_matrix(run, model, files, expected, tmp_path):
    out = tmp_path / "m.npy"
    document = json.loads(run("similarity", "-m", model, *files, "--matrix", "--json", "-o", out).out)
    np.testing.assert_allclose(document["cosine"], expected, atol=1e-5)
    np.testing.assert_allclose(np.load(out), expected, atol=1e-5)
    assert [data["source"] for data in document["data"]] == [str(file) for file in files]
    alone = json.loads(run("similarity", "-m", model, files[0], "--matrix", "--json").out)
    assert alone["kind"] == "matrix" and np.array(alone["cosine"]).shape == (3, 3)


def test_files_pairwise(run, model, files, expected, tmp_path):
    out = tmp_path / "p.csv"
    ran = run("similarity", "-m", model, *files, "--pairwise", "-o", out)
    assert f"{expected[1, 1]:.4f}" in ran.out
    rows = list(csv.reader(out.open()))
    assert rows[0] == ["left", "right", "cosine"] and rows[2][:2] == [LEFT[1], RIGHT[1]]
    np.testing.assert_allclose([float(row[2]) for row in rows[1:]], np.diag(expected), atol=1e-5)


def test_matrix_as_csv(run, model, files, expected, tmp_path):
    out = tmp_path / "m.csv"
    run("similarity", "-m", model, *files, "--matrix", "-o", out)
    rows = list(csv.reader(out.open()))
    assert rows[0] == ["text", *RIGHT] and [row[0] for row in rows[1:]] == LEFT
    np.testing.assert_allclose([[float(cell) for cell in row[1:]] for row in rows[1:]], expected, atol=1e-5)


def test_one_file_of_two_columns_pairwise(run, model, expected, tmp_path):
    table = tmp_path / "pairs.tsv"
    lines = ["sentence1\tsentence2", *(f"{a}\t{b}" for a, b in zip(LEFT, RIGHT, strict=True))]
    table.write_text("\n".join(lines) + "\n")
    document = json.loads(run("similarity", "-m", model, table, "--pairwise", "--json").out)
    np.testing.assert_allclose(document["cosine"], np.diag(expected), atol=1e-5)


def test_long_tables_show_their_beginning(run, model, tmp_path):
    source = tmp_path / "long.txt"
    source.write_text("".join(f"{'many ' * 20}{n}\n" for n in range(30)))
    ran = run("similarity", "-m", model, source, "--matrix")
    assert "the beginning of 30 x 30 cosines" in ran.out and "…" in ran.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["minilm", "a", "b"], "'minilm' is a model, and a model is named with -m: twinpass similarity a b -m minilm"),
        (["-", "-"], "stdin can be read only once"),
        (["alone"], "expected at least two texts"),
        (["{left}", "text"], "is a file. To compare the texts in files, add --pairwise or --matrix"),
        (["gone.txt", "text"], "'gone.txt' looks like a file name, but there is no such file"),
        (["{left}", "{right}", "--pairwise", "--matrix"], "exclude each other"),
        (["{left}", "{short}", "--pairwise"], "left.txt has 3, {short} has 2"),
        (["{left}", "--pairwise"], "has 1. Choose two with --columns"),
        (["{left}", "{right}", "{short}", "-m", "minilm", "--matrix"], "expected one or two files to compare, got 3"),
        (["a", "b", "-o", "x.txt"], "expected a name that ends in .csv, .npy, .parquet or .jsonl"),
        (["a", "b", "-o", "missing/x.npy"], "there is no folder missing"),
        (["{left}", "gone.txt", "--matrix"], "no file gone.txt"),
    ],
)  # fmt: skip
def test_mistakes(run, files, tmp_path, monkeypatch, arguments: list[str], message: str):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.txt").write_text("a\nb\n")
    names = {"left": str(files[0]), "right": str(files[1]), "short": str(tmp_path / "short.txt")}
    ran = run("similarity", *(argument.format(**names) for argument in arguments))
    assert (ran.code, ran.out) == (2, "")
    assert message.format(**names) in ran.err and ran.err.count("\n") == 1


@pytest.mark.parametrize(
    "text", ["", "word " * 80, "\u4f60" * 120, "docs", "a\0b"], ids=["", "long", "cjk", "folder", "nul"]
)
def test_any_text_can_be_compared(run, model, tmp_path, monkeypatch, text: str):
    (tmp_path / "docs").mkdir()
    (tmp_path / "config.json").write_text("{}")  # the empty text is not the folder we are in
    monkeypatch.chdir(tmp_path)
    ran = run("similarity", "-m", model, text, "documentation")
    assert ran.code == 0 and -1.001 <= float(ran.out) <= 1.001, ran.err
    assert run("similarity", "-m", model, "documentation", text).out == ran.out


def test_a_model_by_position_is_refused_with_the_new_spelling(run, model):
    ran = run("similarity", model, "a dog", "a cat")
    assert ran.code == 2 and f"twinpass similarity 'a dog' 'a cat' -m {model}" in ran.err
    assert run("similarity", model, "a dog", "-m", model).code == 0  # a name of a model, as a text


def test_texts_are_texts_also_without_a_space(run, model, monkeypatch):
    load, asked = Encoder.load, []
    monkeypatch.setattr(Encoder, "load", lambda name, **options: asked.append(name) or load(model, **options))
    ran = run("similarity", "acat", "adog", "abird", "--json")
    assert (ran.code, asked) == (0, ["minilm"]) and np.shape(json.loads(ran.out)["cosine"]) == (3, 3)


def test_a_dash_reads_texts_from_stdin(run, model):
    expected = run("similarity", "hello", "hi", "-m", model).out
    assert run("similarity", "-", "hi", "-m", model, stdin=b"hello\n").out == expected
    assert run("similarity", "-", "-m", model, stdin=b"hello\nhi\n").out == expected
    ran = run("similarity", "-", "-m", model, stdin=b"hello\n")
    assert ran.code == 2 and "got one on stdin: 'hello'" in ran.err
    assert run("similarity", "-", "hi", "-m", model, stdin=b"").code == 2
