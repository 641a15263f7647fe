"""The verbs index, search, dedupe and cluster on a tiny model."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

ROWS = """text,author,year
the cat sat on the mat,ann,2019
a dog,bob,2021
she said that they could look at it,cy,2022
the cat sat on the mat,dan,2023
many people find water and oil,ann,2020
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text(ROWS, encoding="utf-8")
    return path


@pytest.fixture
def index(run, model: str, table: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "index"
    ran = run("index", "build", table, "-m", model, "-o", folder)
    assert ran.code == 0 and "5 texts (4 distinct)" in ran.err, ran.err
    return folder


def test_build_and_info(run, model, index):
    found = json.loads(run("index", "info", index, "--json").out)
    assert (found["rows"], found["distinct"], found["columns"]) == (5, 4, ["author", "year"])
    assert found["model"]["name"] == model and len(found["model"]["fingerprint"]) == 64
    assert found["history"][0]["data"][0]["source"].endswith("rows.csv")
    assert "searched exactly" in run("index", "info", index).out


def test_search_finds_the_text_itself_first(run, index):
    ran = run("search", index, "a dog", "the cat sat on the mat", "-k", 2, "--json")
    first, second = json.loads(ran.out)["results"]
    assert first["hits"][0] | {"score": 1} == {
        "id": 1,
        "text": "a dog",
        "score": 1,
        "metadata": {"author": "bob", "year": "2021"},
        "copies": 1,
    }
    assert (second["hits"][0]["id"], second["hits"][0]["copies"]) == (0, 2)
    ran = run("search", index, "the cat sat on the mat", "-k", 2, "--no-group", "--json")
    assert [hit["id"] for hit in json.loads(ran.out)["results"][0]["hits"]] == [0, 3]
    assert "a dog" in run("search", index, "a dog", "-k", 1).out


def test_search_with_conditions(run, index):
    options = ["--where", "year>=2020", "--where", "author!=dan", "--min-score", "-1", "--json"]
    hits = json.loads(run("search", index, "a dog", *options).out)["results"][0]["hits"]
    assert {hit["id"] for hit in hits} == {1, 2, 4}
    hits = json.loads(run("search", index, "dog cat", "--mode", "hybrid", *options).out)["results"][0]["hits"]
    assert {hit["id"] for hit in hits} == {1, 2, 4} and hits[0]["id"] == 1
    found = json.loads(run("search", index, "dog cat", "--mode", "keyword", *options).out)
    assert [hit["id"] for hit in found["results"][0]["hits"]] == [1] and "model" not in found
    assert "Did you mean 'keyword'" in run("search", index, "dog", "--mode", "keywords").err
    assert "nothing was found" in run("search", index, "x", "--where", "author=zed").out
    ran = run("search", index, "a dog", "--where", "autor=ann")
    assert ran.code == 2 and "Did you mean 'author'" in ran.err


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("author==ann", {0, 4}),
        ("author=ann or author = bob", {0, 1, 4}),
        ("author in (ann, 'bob') and not year < 2020", {1, 4}),
        ("(author like 'a%' or author=dan) and year != 2019", {3, 4}),
        ("author is null", set()),
    ],
)
def test_search_with_filters(run, index, where, ids):
    ran = run("search", index, "a dog", "--where", where, "--json")
    assert {hit["id"] for hit in json.loads(ran.out)["results"][0]["hits"]} == ids


def test_a_filter_that_cannot_be_read_says_where(run, index):
    ran = run("search", index, "a dog", "--where", "author=ann,bob")
    assert ran.code == 2 and "For several values: author in (ann,bob)" in ran.err
    assert ran.err.rstrip().splitlines()[-2:] == ["  author=ann,bob", "            ^"]
    assert "expected a closing '" in run("index", "remove", index, "--where", "author='ann").err


def test_small_vectors(run, model, table, tmp_path, monkeypatch):
    monkeypatch.setattr("twinpass.search.engines.approximate.SMALL_FROM", 5)
    for storage in ("int8", "binary"):
        ran = run("index", "build", "-m", model, table, "-o", tmp_path / storage, "--vectors", storage)
        assert ran.code == 0 and f"{storage}, recall@10" in ran.err and "in memory (float32:" in ran.err
        assert f"vectors in {storage}" in run("index", "info", tmp_path / storage).out
        hits = json.loads(run("search", tmp_path / storage, "a dog", "--json").out)["results"][0]["hits"]
        assert hits[0]["text"] == "a dog" and len(hits) == 4


def test_verify(run, index):
    ran = run("index", "verify", index)
    assert ran.code == 0 and "rows.arrow" in ran.out and "damaged" not in ran.out
    path = index / "segment-000001" / "vectors.f32"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    ran = run("index", "verify", index, "--json")
    found = json.loads(ran.out)
    assert ran.code == 2 and (found["whole"], found["damaged"]) == (False, 1)
    assert [each["file"] for each in found["files"] if each["state"] == "damaged"] == ["segment-000001/vectors.f32"]
    assert "vectors.f32 is damaged: megabyte 1 does not match its checksum. Restore" in ran.err
    ran = run("search", index, "a dog")
    assert ran.code == 2 and "vectors.f32 is damaged" in ran.err and "twinpass index verify" in ran.err
    assert run("index", "verify", index.parent).code == 2


def test_queries_of_a_file(run, index, tmp_path):
    queries = tmp_path / "queries.txt"
    queries.write_text("a dog\nthe cat sat on the mat\n", encoding="utf-8")
    lines = run("search", index, "--queries", queries, "-k", 1).out.splitlines()
    assert [json.loads(line)["hits"][0]["id"] for line in lines] == [1, 0]
    assert run("search", index, "--queries", queries, "-k", 1, "-o", tmp_path / "answers.jsonl").code == 0
    assert (tmp_path / "answers.jsonl").read_text().splitlines() == lines
    assert run("search", index).code == 2 and run("search", index, "x", "--queries", queries).code == 2
    found = json.loads(run("search", index, "--queries", queries, "-k", 1, "--json").out)
    assert [json.dumps(each, ensure_ascii=False) for each in found["results"]] == lines


def test_queries_of_stdin(run, index, tmp_path):
    for mode in ("dense", "keyword"):
        ran = run("search", index, "-", "-k", 1, "--mode", mode, stdin=b"a dog\nthe cat sat on the mat\n")
        found = [json.loads(line) for line in ran.out.splitlines()]
        assert [(each["query"], each["hits"][0]["id"]) for each in found] == [
            ("a dog", 1),
            ("the cat sat on the mat", 0),
        ]
    assert run("search", index, "-", "-k", 1, "-o", tmp_path / "out.csv", stdin=b"a dog\nwater\n").code == 0
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as stream:
        assert [row["query"] for row in csv.DictReader(stream)] == ["a dog", "water"]


def test_add_remove_compact(run, index, tmp_path):
    more = tmp_path / "more.txt"
    more.write_text("a dog\nsome other words\n", encoding="utf-8")
    ran = run("index", "add", index, more, "--unique", "--json")
    assert {key: json.loads(ran.out)[key] for key in ("added", "skipped", "rows")} == {
        "added": 1,
        "skipped": 1,
        "rows": 6,
    }
    assert json.loads(run("index", "remove", index, "--where", "author=ann", "--json").out)["removed"] == 2
    assert json.loads(run("index", "remove", index, "--ids", "5", "--json").out)["rows"] == 3
    more.write_text("a dog\n", encoding="utf-8")
    assert json.loads(run("index", "remove", index, "--texts", more, "--json").out)["rows"] == 2
    assert run("index", "compact", index).code == 0
    assert "expected numbers, such as 3,17" in run("index", "remove", index, "--ids", "one").err
    assert "no row with the id 0" in run("index", "remove", index, "--ids", "0").err


def test_an_index_by_the_users_own_ids(run, model, tmp_path):
    table, folder = tmp_path / "tickets.csv", tmp_path / "tickets"
    table.write_text('ticket_id,text,id\nT-1,a dog,7\n"T,2",water and oil,8\nT-3,many people,9\n', encoding="utf-8")
    options = ["--columns", "text"]
    assert run("index", "build", "-m", model, table, *options, "-o", folder, "--id-column", "ticket_id").code == 0
    table.write_text("ticket_id,text,id\nT-1,a cat sat,5\nT-4,the mat,6\n", encoding="utf-8")
    added = json.loads(run("index", "add", folder, table, *options, "--json").out)
    assert (added["added"], added["replaced"], added["rows"]) == (2, 1, 4)
    (hit,) = json.loads(run("search", folder, "a cat sat", "-k", 1, "--json").out)["results"][0]["hits"]
    assert (hit["id"], hit["text"], hit["metadata"]) == ("T-1", "a cat sat", {"id": "5"})
    heading = run("search", folder, "a cat sat").out.splitlines()[2]
    assert heading.split() == ["┃", "id", "┃", "score", "┃", "text", "┃", "source_id", "┃"]
    removed = json.loads(run("index", "remove", folder, "--id", "T,2", "--ids", "T-1,T-3", "--json").out)
    assert (removed["removed"], removed["rows"]) == (3, 1)
    ran = run("index", "remove", folder, "--id", "T-1")
    assert ran.code == 2 and "no row with the id T-1 in the column ticket_id" in ran.err


def test_a_row_of_several_texts_is_several_entries(run, model, tmp_path):
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"sent0": "a dog", "sent1": "a cat", "place": {"page": 3}}\n', encoding="utf-8")
    assert run("index", "build", pairs, "-m", model, "-o", tmp_path / "index").code == 0
    hits = json.loads(run("search", tmp_path / "index", "a cat", "--json").out)["results"][0]["hits"]
    assert [hit["text"] for hit in hits] == ["a cat", "a dog"]
    assert hits[0]["metadata"] == hits[1]["metadata"] == {"place": {"page": 3}}


def test_what_is_refused_before_any_work(run, model, index, table, tmp_path):
    assert "holds an index already" in run("index", "build", table, "-m", model, "-o", index).err
    assert "no kind of index" in run("index", "build", table, "-m", model, "-o", tmp_path / "b", "--kind", "best").err
    assert "is not an index" in run("search", tmp_path, "x").err
    ran = run("index", "build", "-m", model, table, "-o", tmp_path / "b", "--vectors", "int9")
    assert ran.code == 2 and "no vectors of type 'int9'. Did you mean 'int8'" in ran.err
    assert "Missing command" in run("index").err and run("index").code == 2
    ran = run("search", index, "a dog", "-m", model, "--pooler", "cls")
    assert ran.code == 2 and f"built with the model {model}" in ran.err


def test_dedupe(run, model, index, table, tmp_path):
    ran = run("dedupe", index, "--threshold", "0.9999", "--json")
    found = json.loads(ran.out)
    assert (found["texts"], found["kept"], found["duplicates"]) == (5, 4, 1)
    assert found["groups"][0]["kept"]["id"] == 0 and found["groups"][0]["others"][0]["id"] == 3
    left = tmp_path / "left.jsonl"
    assert run("dedupe", table, "-m", model, "--threshold", "0.9999", "-o", left).code == 0
    rows = [json.loads(line) for line in left.read_text().splitlines()]
    assert [row["id"] for row in rows] == [0, 1, 2, 4] and rows[0]["author"] == "ann"
    assert run("dedupe", index, "--threshold", "0.9999", "-o", tmp_path / "left.txt").code == 0
    assert (tmp_path / "left.txt").read_text().splitlines()[1] == "a dog"
    assert "threshold is 2.0" in run("dedupe", index, "--threshold", "2").err


def test_cluster(run, index, tmp_path):
    ran = run("cluster", index, "-k", 2, "--json", "-o", tmp_path / "clusters.jsonl")
    found = json.loads(ran.out)
    assert sum(each["size"] for each in found["clusters"]) == 5
    rows = [json.loads(line) for line in (tmp_path / "clusters.jsonl").read_text().splitlines()]
    assert rows[0]["cluster"] == rows[3]["cluster"]  # the same text
    assert "words" in run("cluster", index).out
    assert "number of clusters is 6" in run("cluster", index, "-k", 6).err


def test_rows_are_written_as_the_suffix_says(run, index, tmp_path):
    import pyarrow.parquet as pq

    verbs = {
        "search": (["search", index, "a dog", "the cat sat on the mat", "-k", 2], 4, ["query", "rank", "id", "score"]),
        "cluster": (["cluster", index, "-k", 2], 5, ["id", "cluster", "words", "cosine"]),
        "dedupe": (["dedupe", index, "--threshold", "0.9999"], 4, ["id"]),
    }
    for name, (verb, count, first) in verbs.items():
        columns = [*first, "text", *(["copies"] if name == "search" else []), "author", "year"]
        for suffix in (".csv", ".parquet", ".jsonl"):
            assert run(*verb, "-o", tmp_path / f"{name}{suffix}").code == 0
        with (tmp_path / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
            from_csv = list(csv.DictReader(stream))
        from_parquet = pq.read_table(tmp_path / f"{name}.parquet").to_pylist()
        assert list(from_csv[0]) == list(from_parquet[0]) == columns and len(from_csv) == len(from_parquet) == count
        assert [{key: str(value) for key, value in row.items()} for row in from_parquet] == from_csv
        if name != "search":  # whose lines are answers
            lines = (tmp_path / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
            assert list(map(json.loads, lines)) == from_parquet
        ran = run(*verb, "-o", tmp_path / f"{name}.xlsx")
        assert ran.code == 2 and ".csv, .parquet or .jsonl" in ran.err and not (tmp_path / f"{name}.xlsx").exists()


def test_a_model_beside_an_index_that_needs_none_is_refused(run, model, index):
    for ran in (run("dedupe", index, "-m", model), run("cluster", index, "-m", model, "-k", 2)):
        assert ran.code == 2 and "omit the model" in ran.err


def test_numbers_beyond_what_a_library_counts_to(run, index):
    ran = run("index", "remove", index, "--ids", 10**30)
    assert ran.code == 2 and f"no row with the id {10**30}" in ran.err
    assert run("cluster", index, "-k", 2, "--seed", 10**12).code == 0


def test_metadata_that_is_no_number_is_null_in_files_too(run, model, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "a dog", "x": NaN}\n', encoding="utf-8")
    for verb in (["dedupe"], ["cluster", "-k", 1]):
        assert run(*verb, tmp_path / "rows.jsonl", "-m", model, "-o", tmp_path / "out.jsonl").code == 0
        written = (tmp_path / "out.jsonl").read_text(encoding="utf-8")
        assert '"x": null' in written and "NaN" not in written


def test_an_empty_query_is_no_query(run, index):
    ran = run("search", index, "  ")
    assert (ran.code, ran.out) == (2, "") and "a query is empty" in ran.err


def test_truncated_texts_are_counted(run, model, tmp_path):
    (tmp_path / "long.txt").write_text(f"{'the cat sat on the mat ' * 200}\na dog\n", encoding="utf-8")
    ran = run("index", "build", tmp_path / "long.txt", "-m", model, "-o", tmp_path / "index", "--json")
    assert json.loads(ran.out)["truncated"] == 1 and "2 texts (1 truncated)" in ran.err
    ran = run("index", "add", tmp_path / "index", tmp_path / "long.txt", "--json")
    assert json.loads(ran.out)["truncated"] == 1
