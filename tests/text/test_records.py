"""The columns of a corpus beside its texts."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

from twinpass.text.corpus import open_corpus


def test_other_columns_by_name(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("sentence1,sentence2,score,source\na,b,1.5,here\nc,d,2,\n", encoding="utf-8")
    assert list(open_corpus(path).records()) == [
        (("a", "b"), {"score": "1.5", "source": "here"}),
        (("c", "d"), {"score": "2", "source": ""}),
    ]
    assert [row.score for row in open_corpus(path)] == [1.5, 2.0]


def test_values_keep_their_kind_and_missing_ones_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "a", "n": 3, "tags": ["x"]}\n{"text": "b", "n": null}\n', encoding="utf-8")
    assert list(open_corpus(path).records()) == [(("a",), {"n": 3, "tags": ["x"]}), (("b",), {})]


def test_bad_rows_are_left_out_as_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv"
    path.write_text("text\tn\na\t1\n\t2\nb\t3\n", encoding="utf-8")
    corpus = open_corpus(path, skip_bad_rows=True)
    assert [texts for texts, _ in corpus.records()] == [("a",), ("b",)] and corpus.bad_rows == 1


def test_parquet_keeps_dates_truth_and_decimals_but_takes_none_for_a_text(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = {
        "on": [date(2020, 1, 2)],
        "at": pa.array([1_600_000_000_123_456_789], pa.timestamp("ns", tz="Europe/Nowhere")),
        "ok": [True],
        "price": [Decimal("3.50")],
        "words": ["a dog"],
    }
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    (found,) = open_corpus(tmp_path / "a.parquet").records()
    at = datetime(2020, 9, 13, 12, 26, 40, 123456)
    assert found == (("a dog",), {"on": date(2020, 1, 2), "at": at, "ok": True, "price": Decimal("3.50")})


def test_keys_that_come_late_in_a_file_of_json_are_kept_too(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    late = '{"text": "last", "late": 1, "none": null}\n'
    path.write_text('{"text": "a", "score": 2}\n' * 30 + late + "\n", encoding="utf-8")
    found = list(open_corpus(path).records())
    assert found[0] == (("a",), {"score": 2}) and found[-1] == (("last",), {"late": 1})
