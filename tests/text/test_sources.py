"""From what a user names to files: folders, patterns, standard input, and names of nothing."""

from __future__ import annotations

import gzip
import io
import os
import sys
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.text.test_formats import put, read

from twinpass.errors import ConfigError, InputError
from twinpass.text.corpus import open_corpus


def test_folder_and_pattern_are_sorted(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    put(tmp_path / "b.txt", "second\n")
    put(tmp_path / "a.txt.gz", gzip.compress(b"first\n"))
    put(tmp_path / "inner" / "c.txt", "third\n")
    put(tmp_path / "empty.txt", "")
    put(tmp_path / "README.md", "not read")
    put(tmp_path / ".hidden.txt", "not read")
    assert read(open_corpus(tmp_path)) == [("first",), ("second",), ("third",)]
    assert read(open_corpus(f"{tmp_path}/*.txt")) == [("second",)]
    assert read(open_corpus(f"{tmp_path}/**/*.txt*")) == [("first",), ("second",), ("third",)]
    put(tmp_path / "pairs.csv", "sent0,sent1\na b,c d\n")
    with pytest.raises(InputError, match=r"do not belong to one corpus.*1 text column.*2 text column"):
        open_corpus(tmp_path)


def test_names_that_lead_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "sentences.txt", "one\n")
    with pytest.raises(InputError, match=r"no file .*sentence.txt. Did you mean 'sentences.txt'\?"):
        open_corpus(tmp_path / "sentence.txt")
    with pytest.raises(InputError, match="no folder"):
        open_corpus(tmp_path / "nowhere" / "a.txt")
    with pytest.raises(InputError, match="no file matches"):
        open_corpus(f"{tmp_path}/*.csv")
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="the folder docs has no file"):
        open_corpus("docs")  # without a colon it is not the built-in corpus
    (tmp_path / "bare").mkdir()
    with pytest.raises(InputError, match="has no file we can read"):
        open_corpus(tmp_path / "bare")
    for name in ("x" * 300, f"{'x' * 300}/a.txt", f"txt:{'x' * 300}", "a\0b"):
        with pytest.raises(InputError, match="no file"):
            open_corpus(name)
    path = put(tmp_path / "a.doc", "one a line\n")
    with pytest.raises(InputError, match=r"cannot tell the format .* or name the format: txt:"):
        open_corpus(path)
    assert read(open_corpus(f"txt:{path}")) == [("one a line",)]


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_damaged_packing(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(InputError, match="cannot unpack"):
        open_corpus(put(tmp_path / f"a.txt{suffix}", "plain text"))
    whole = gzip.compress(b"".join(b"line %d\n" % n for n in range(50_000)))
    with pytest.raises(InputError, match="cannot unpack"):
        list(open_corpus(put(tmp_path / "b.txt.gz", whole[: len(whole) // 2])))


def test_standard_input_can_be_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    corpus = open_corpus("-")
    assert read(corpus) == read(corpus) == [("one",), ("two",)]
    assert next(iter(corpus)).where == "stdin:1"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"sent0,sent1\na b,c d\n")))
    assert read(open_corpus("csv:-")) == [("a b", "c d")]


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="needs /dev/fd")
def test_a_pipe_can_be_read_twice() -> None:
    end, start = os.pipe()
    os.write(start, b"one\ntwo\n")
    os.close(start)
    corpus = open_corpus(f"txt:/dev/fd/{end}")
    assert read(corpus) == read(corpus) == [("one",), ("two",)]
    assert next(iter(corpus)).where == f"/dev/fd/{end}:1"
    os.close(end)


def test_a_closed_standard_input_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="standard input is closed"):
        open_corpus("-")


LONG = "long " * 50
FILES = {
    "a.txt": f"one\n{LONG}\nthree\n",
    "a.txt.gz": f"one\n{LONG}\nthree\n",
    "a.tsv": f"text\tid\none\t1\n{LONG}\t2\nthree\t3\n",
    "a.csv": f'text,id\none,1\n"{LONG}",2\nthree,3\n',
    "a.jsonl": f'{{"text": "one"}}\n{{"text": "{LONG}"}}\n{{"text": "three"}}\n',
}


@pytest.mark.parametrize("name", FILES)
def test_a_line_is_bounded(tmp_path: Path, name: str) -> None:
    content = FILES[name].encode()
    path = put(tmp_path / name, gzip.compress(content) if name.endswith(".gz") else content)
    line = 1 + FILES[name][: FILES[name].index("long")].count("\n")
    with pytest.raises(InputError, match=rf"at most 100 bytes in a line.*{name}:{line}\)"):
        list(open_corpus(path, columns="text", max_line_bytes=100))
    corpus = open_corpus(path, columns="text", skip_bad_rows=True, max_line_bytes=100)
    assert read(corpus) == [("one",), ("three",)]
    assert corpus.bad_reasons == {"line too long": 1}
    assert len(read(open_corpus(path, columns="text"))) == 3
    with pytest.raises(ConfigError, match="at least 1"):
        open_corpus(path, max_line_bytes=0)


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_the_end_of_a_line_does_not_count(tmp_path: Path, end: str) -> None:
    path = put(tmp_path / "a.txt", f"{'x' * 100}{end}".encode())
    assert read(open_corpus(path, max_line_bytes=100)) == [("x" * 100,)]
    with pytest.raises(InputError, match="at most 99 bytes"):
        open_corpus(path, max_line_bytes=99)


def test_records_and_cells_are_bounded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quoted = put(tmp_path / "a.csv", 'text,id\none,1\n"two\n' + "more\n" * 50 + '",2\nthree,3\n')
    corpus = open_corpus(quoted, columns="text", skip_bad_rows=True, max_line_bytes=100)
    assert ("one",) in read(corpus) and ("three",) in read(corpus)
    assert corpus.bad_reasons["record too long"] == 1
    pq.write_table(pa.table({"text": ["one", LONG, "é" * 60]}), tmp_path / "a.parquet")
    corpus = open_corpus(tmp_path / "a.parquet", skip_bad_rows=True, max_line_bytes=100)
    assert read(corpus) == [("one",)] and corpus.bad_reasons == {"text too long": 2}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(FILES["a.txt"].encode())))
    with pytest.raises(InputError, match=r"at most 100 bytes in a line.*stdin:2"):
        list(open_corpus("-", max_line_bytes=100))


def test_a_packed_line_of_any_length_takes_little_memory(tmp_path: Path) -> None:
    path = put(tmp_path / "bomb.txt.gz", gzip.compress(b"x" * 50_000_000, 1))
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"at most 10,000,000 bytes.*bomb.txt.gz:1\)"):
            open_corpus(path)
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()
