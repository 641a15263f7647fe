"""`index` and `search` with --milvus: the same verbs, another place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pymilvus", reason="needs pymilvus (extra [milvus])")
pytest.importorskip("milvus_lite", reason="needs milvus-lite (extra [milvus])")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "texts.csv"
    path.write_text('text,year\nthe cat sat,2001\na dog,2002\n"two more words",2003\n', encoding="utf-8")
    return path


@pytest.fixture
def there(tmp_path: Path):
    """Where the index is; the server that opening it starts in this process is stopped at the end."""
    path = str(tmp_path / "test.db")
    yield ["--milvus", path]
    from milvus_lite.server_manager import server_manager_instance

    server_manager_instance.release_server(path)


def test_the_verbs_work_on_milvus(run, model, table, tmp_path, there):
    ran = run("index", "build", table, "-m", model, "--columns", "text", "-o", "docs", *there)
    assert ran.code == 0 and "3 texts -> docs at" in ran.err, ran.err
    more = tmp_path / "more.csv"
    more.write_text("text,year\na dog and a cat,2004\n", encoding="utf-8")
    ran = run("index", "add", "docs", more, "--columns", "text", *there, "--json")
    assert (json.loads(ran.out)["added"], json.loads(ran.out)["rows"]) == (1, 4)
    ran = run("search", "docs", "a dog", "-k", 2, *there, "--json")
    hits = json.loads(ran.out)["results"][0]["hits"]
    assert hits[0]["text"] == "a dog" and hits[0]["score"] == pytest.approx(1, abs=1e-5) and len(hits) == 2
    ran = run("search", "docs", "a dog", "--where", "year>2002", "--json", *there)
    assert {hit["text"] for hit in json.loads(ran.out)["results"][0]["hits"]} == {"two more words", "a dog and a cat"}
    assert json.loads(run("index", "remove", "docs", "--where", "year=2002", "--json", *there).out)["rows"] == 3
    ran = run("index", "info", "docs", *there)
    assert "3, 1 removed" in ran.out and "Milvus" in ran.out
    assert any(line.split()[1:4:2] == ["columns", "year"] for line in ran.out.splitlines())
    assert json.loads(run("dedupe", "docs", "--threshold", "0.99", "--json", *there).out)["kept"] == 3
    assert len(json.loads(run("cluster", "docs", "-k", 2, "--json", *there).out)["clusters"]) == 2
    again = run("index", "build", table, "-m", model, "--columns", "text", "-o", "docs", *there)
    assert again.code == 2 and "already. Add to it, or replace it with --overwrite" in again.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--milvus"], "Option '--milvus' requires an argument"),
        (["--milvus", "index"], "expected a file that ends in .db or a server such as http://localhost:19530"),
        (["--milvus", "no.db"], "there is no no.db"),
    ],
)
def test_options_that_do_not_fit(run, arguments, message):
    ran = run("search", "docs", "query", *arguments)
    assert ran.code == 2 and message in ran.err


def test_a_build_that_fails_early_makes_no_file(run, table, tmp_path, there):
    ran = run("index", "build", table, "-m", tmp_path / "no-model", "--columns", "text", "-o", "docs", *there)
    assert ran.code == 2 and not (tmp_path / "test.db").exists()
