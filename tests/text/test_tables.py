"""Rows to .csv, .parquet and .jsonl: names, types and order survive, or become text."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from twinpass.errors import OutputError
from twinpass.text.tables import joined, write_table

ROWS = [
    {"id": 1, "whole": 1, "real": 1, "flag": True, "mixed": 1, "big": 2**60, "huge": 10**30, "deep": {"a": [1]}},
    {"id": 2, "whole": None, "real": 0.5, "flag": None, "mixed": "x", "big": 0, "huge": 1, "late": 'a "b",\nc'},
    {"id": 3, "real": float("nan"), "mixed": True, "nothing": None},
]
TYPES = {
    "id": "int64", "text": "string", "whole": "int64", "real": "double", "flag": "bool", "mixed": "string",
    "big": "int64", "huge": "string", "deep": "string", "late": "string", "nothing": "string",
}  # fmt: skip


def test_parquet_has_a_type_for_every_column(tmp_path: Path) -> None:
    assert write_table(tmp_path / "t.parquet", iter(ROWS), columns=("id", "text")) == 3
    table = pq.read_table(tmp_path / "t.parquet")
    assert {field.name: str(field.type) for field in table.schema} == TYPES
    columns = table.to_pydict()
    assert columns["real"] == [1.0, 0.5, None] and columns["mixed"] == ["1", "x", "true"]
    assert columns["deep"] == ['{"a": [1]}', None, None] and columns["huge"] == [str(10**30), "1", None]


def test_csv_is_read_back(tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", iter(ROWS), columns=("id", "text"))
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == list(TYPES)
    assert rows[1]["late"] == 'a "b",\nc' and rows[0]["flag"] == "true" and rows[2]["real"] == rows[2]["late"] == ""


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_without_rows_there_are_columns(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"empty{suffix}"
    assert write_table(path, [], columns=("id", "text")) == 0
    if suffix == ".parquet":
        assert pq.read_table(path).column_names == ["id", "text"]
    else:
        assert path.read_text() == ("id,text\n" if suffix == ".csv" else "")


def test_many_rows_are_written_in_batches(tmp_path: Path) -> None:
    count = write_table(tmp_path / "t.parquet", ({"id": row} for row in range(9_000)), columns=["id"])
    assert count == 9_000 and pq.read_table(tmp_path / "t.parquet")["id"].to_pylist() == list(range(9_000))


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("mine")
    with pytest.raises(ZeroDivisionError):
        write_table(path, ({"id": 1 // (2 - row)} for row in range(5)), columns=["id"])
    assert path.read_text() == "mine" and [each.name for each in tmp_path.iterdir()] == ["t.csv"]
    with pytest.raises(OutputError, match=r"ends in \.csv, \.parquet or \.jsonl"):
        write_table(tmp_path / "t.json", [], columns=["id"])


def test_a_users_column_of_our_name_gets_a_prefix() -> None:
    row = joined({"id": 1}, {"id": "a", "source_id": "b", "x": 2})
    assert row == {"id": 1, "source_source_id": "a", "source_id": "b", "x": 2}
    assert json.dumps(joined({"id": 1}, {})) == '{"id": 1}'
