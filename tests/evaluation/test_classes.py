"""Your own classes: nearest neighbours against naive loops, the logistic regression, files that cannot be scored."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from twinpass.errors import InputError
from twinpass.evaluation.answers import Predictions, answers_from_json
from twinpass.evaluation.classes import ClassSet, nearest_neighbours, read_classes
from twinpass.evaluation.compare import compare
from twinpass.evaluation.evaluate import evaluate


def encode(texts) -> np.ndarray:
    """Vectors of made-up words: texts of one topic point in similar directions."""
    seeds = [sum(map(ord, text)) for text in texts]
    noise = np.array([np.random.default_rng(seed).normal(size=6) for seed in seeds], np.float32)
    topics = np.array(
        [[float(text.startswith(topic)) for topic in ("bill", "ship", "crash")] * 2 for text in texts], "f4"
    )
    return 1.2 * topics + noise


def tickets(count: int) -> list[tuple[str, str]]:
    topics = ("bill", "ship", "crash")
    return [(f"{topics[place % 3]} number {place}", topics[place % 3].upper()) for place in range(count)]


def write(path: Path, rows: list[tuple[str, str]], header: str = "text,category") -> Path:
    path.write_text(header + "\n" + "".join(f"{text},{label}\n" for text, label in rows), encoding="utf-8")
    return path


def naive(texts: list[str], classes: list[str]) -> list[str]:
    vectors, predicted = encode(texts).astype(float), []
    for i, text in enumerate(texts):
        best, nearest = -2.0, ""
        for j, other in enumerate(texts):
            cosine = vectors[i] @ vectors[j] / np.linalg.norm(vectors[i]) / np.linalg.norm(vectors[j])
            if other != text and cosine > best + 1e-9:
                best, nearest = cosine, classes[j]
        predicted.append(nearest)
    return predicted


def test_each_text_gets_the_class_of_its_nearest_other_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows = [*tickets(40), ("bill number 0", "SHIP"), ("bill number 0", "BILL")]  # a text three times is no neighbour
    asked = read_classes(str(write(tmp_path / "t.csv", rows)), None, None)
    expected = naive([text for text, _ in rows], [label for _, label in rows])
    for block in (1, 100, 1 << 24):
        monkeypatch.setattr("twinpass.evaluation.classes._BLOCK", block)
        found = nearest_neighbours(encode, asked)
        assert [asked.names[number] for number in found.predicted] == expected
    assert [asked.names[number] for number in found.gold] == [label for _, label in rows]


def test_evaluate_scores_both_protocols(tmp_path: Path):
    rows = tickets(120)
    path = write(tmp_path / "t.csv", rows)
    results = evaluate(encode, f"labelled:{path}", resamples=100, protocol="fast", cache=False)
    (task,) = results.tasks
    nearest, logistic = task.scores
    right = np.mean(
        [a == b for a, b in zip(naive([t for t, _ in rows], [c for _, c in rows]), [c for _, c in rows], strict=True)]
    )
    assert nearest.protocol == "nearest neighbour, leave one out" and nearest.value == pytest.approx(100 * right)
    assert logistic.protocol == "logistic regression, fast" and logistic.value > 50  # by chance 33
    for score in task.scores:
        assert score.low <= score.value <= score.high and score.n == 120 and score.metric == "accuracy"
    assert "3 classes; always choosing the largest one is right for 33.33 %" in task.notes
    assert "nearest neighbour, leave one out" in repr(results) and "120 texts" in repr(results)
    results.save(tmp_path / "r.json")
    same = compare(tmp_path / "r.json", tmp_path / "r.json", resamples=20)
    assert same.differences[0].difference == 0


def test_the_column_may_have_any_name_and_numbers_as_classes(tmp_path: Path):
    rows = [(text, str(len(label))) for text, label in tickets(20)]
    path = write(tmp_path / "t.csv", rows, header="message,kind")
    asked = read_classes(str(path), "message", "kind")
    assert asked.names == ["4", "5"] and len(asked.texts) == 20
    result = evaluate(encode, f"labelled:{path}", columns="message", score="kind", resamples=0, cache=False).tasks[0]
    assert len(result.scores) == 1 and "fewer than 100 texts: no logistic regression" in result.notes


def test_more_than_ten_classes_are_kept():
    items = Predictions(np.arange(12), np.arange(12)[::-1].copy())
    again = answers_from_json(json.loads(json.dumps(items.to_json())))
    assert again.gold.tolist() == items.gold.tolist() and again.predicted.tolist() == items.predicted.tolist()


def test_pairs_are_still_pairs(tmp_path: Path):
    path = tmp_path / "p.csv"
    path.write_text("sentence1,sentence2,label\na b,a c,1\nc d,e f,0\n", encoding="utf-8")
    assert read_classes(str(path), None, None) is None
    assert evaluate(encode, f"labelled:{path}", resamples=0, cache=False).tasks[0].scores[0].metric == "ap"


def test_files_without_classes_are_refused(tmp_path: Path):
    with pytest.raises(InputError, match=r"has one class only .'x'"):
        read_classes(str(write(tmp_path / "one.csv", [("a b", "x"), ("c d", "x")])), None, None)
    with pytest.raises(InputError, match="all rows have the same text"):
        read_classes(str(write(tmp_path / "same.csv", [("a b", "x"), ("a b", "y")])), None, None)
    with pytest.raises(
        InputError, match=r"expects a column of labels\. Choose it with --score\. Its other columns: year"
    ):
        read_classes(str(write(tmp_path / "no.csv", [("a b", "1999"), ("c d", "2000")], "text,year")), None, None)
    assert isinstance(read_classes(str(write(tmp_path / "ok.csv", tickets(3))), None, "category"), ClassSet)
