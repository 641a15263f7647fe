import json

import numpy as np
import pytest

from twinpass.encoder.any_model import Model
from twinpass.errors import InputError
from twinpass.evaluation.evaluate import Settings, evaluate, make_jobs
from twinpass.evaluation.retrieval import read_folder

QUICK = Settings(resamples=100)


def letters(texts):
    return np.array([[text.count(c) for c in "abcdefgh"] for text in texts], dtype=np.float32)


MODEL = Model("letters", letters)


def test_scored_pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("sentence1\tsentence2\tscore\nabc one\tabc two\t5\nabc one\tdef two\t1\nabcd x\tabce x\t3\n")
    (task,) = evaluate(MODEL, f"scored:{path}", resamples=100).tasks
    assert [(s.metric, s.over) for s in task.scores] == [("spearman", "all"), ("pearson", "all")]
    assert task.scores[0].value == pytest.approx(100) and task.scores[0].n == 3
    assert len(task.files[str(path)]) == 64


def test_an_interval_does_not_depend_on_how_the_path_is_spelt(tmp_path, monkeypatch):
    path = tmp_path / "pairs.tsv"
    rows = (f"{'abc'[: 1 + n % 3]}d x{n}\t{'bcd'[n % 3 :]}e y\t{n % 5}\n" for n in range(20))
    path.write_text("sentence1\tsentence2\tscore\n" + "".join(rows))
    monkeypatch.chdir(tmp_path)
    found = [
        evaluate(MODEL, f"scored:{name}", resamples=100).tasks[0].scores[0]
        for name in (path, "pairs.tsv", "./pairs.tsv")
    ]
    assert len({(score.low, score.high) for score in found}) == 1 and found[0].low < found[0].high


def test_labelled_pairs_and_their_threshold(tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = [("aab", "ab", 1), ("abc", "abd", 1), ("abc", "fgh", 0), ("ab", "gh", 0)]
    path.write_text("".join(json.dumps({"sentence1": a, "sentence2": b, "label": y}) + "\n" for a, b, y in rows))
    result = evaluate(MODEL, f"labelled:{path}", resamples=100)
    assert [(s.metric, s.value) for s in result.tasks[0].scores] == [("ap", 100), ("accuracy", 100)]
    assert "best threshold" in result.tasks[0].notes[0]
    assert "AP" in result.to_text("markdown")
    path.write_text(path.read_text().replace('"label": 1', '"label": 2', 1))
    with pytest.raises(InputError, match=r"pairs.jsonl:1: expected a label of 0 or 1, got 2"):
        make_jobs(f"labelled:{path}", QUICK)


def test_retrieval_pools_documents_and_repeated_queries(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("query,answer\naa,aab\naa,aac\nbb,bbc\ndd,ddh\n")
    (task,) = evaluate(MODEL, f"retrieval:{path}", resamples=100).tasks
    scores = {s.metric: s for s in task.scores}
    assert task.scores[0].metric == "mrr" and scores["mrr"].n == 3
    assert scores["r_at_1"].value == pytest.approx(100 * (0.5 + 1 + 1) / 3)
    assert scores["ndcg_at_10"].value == pytest.approx(100)


def write_folder(root):
    (root / "qrels").mkdir()
    (root / "corpus.jsonl").write_text('{"_id": "d1", "title": "a", "text": "ab"}\n{"_id": "d2", "text": "gh"}\n')
    (root / "queries.jsonl").write_text('{"_id": "q1", "text": "aa"}\n{"_id": "q2", "text": "unused"}\n')
    (root / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\n".replace("\\t", "\t"))


def test_retrieval_from_a_folder_of_queries_documents_and_judgements(tmp_path):
    write_folder(tmp_path)
    assert read_folder(tmp_path) == (["aa"], ["a ab", "gh"], [[0]])
    (task,) = evaluate(MODEL, f"retrieval:{tmp_path}", resamples=100).tasks
    assert task.scores[0].value == 100


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("corpus.jsonl", '{"text": "x"}\n', "corpus.jsonl:1: expected a JSON object with _id and text"),
        ("qrels/test.tsv", "q1\td9\t1\n", "test.tsv:1: no query 'q1' or no document 'd9'"),
        ("qrels/test.tsv", "q1\td1\n", "test.tsv:1: expected query, document and a whole number, tab-separated"),
    ],
)
def test_a_broken_folder_is_named_by_file_and_line(tmp_path, file, text, message):
    write_folder(tmp_path)
    (tmp_path / file).write_text(text)
    with pytest.raises(InputError, match=message):
        read_folder(tmp_path)


def test_files_without_what_is_needed_are_refused(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("query,answer\na,b\n")
    with pytest.raises(InputError, match="expects a column of scores"):
        make_jobs(f"scored:{path}", QUICK)
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    with pytest.raises(InputError, match="expects two text columns, got 1"):
        make_jobs(f"retrieval:{tmp_path / 'lines.txt'}", QUICK)


def test_the_built_in_pairs_are_a_retrieval_task():
    (task,) = evaluate(MODEL, "docs-pairs:json,email", resamples=100).tasks
    assert task.kind == "retrieval" and 0 < task.scores[0].n <= 1000


def test_a_file_of_classes_with_several_texts_says_how_to_choose_one(tmp_path):
    path = tmp_path / "tickets.csv"
    path.write_text("ticket_id,subject,body,category\nT-1,Paid twice,I paid,billing\nT-2,Late,It is late,mail")
    with pytest.raises(InputError, match=r"one text and its class\. Choose the texts with --columns"):
        make_jobs(f"labelled:{path}", QUICK)
