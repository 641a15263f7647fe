"""What is particular to one file format."""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path

import pytest

from twinpass.errors import InputError, MissingExtra
from twinpass.text.corpus import Corpus, open_corpus


def put(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(corpus: Corpus) -> list[tuple[str, ...]]:
    return [row.texts for row in corpus]


def test_blank_lines_are_bad_unless_they_end_the_file(tmp_path: Path) -> None:
    assert read(open_corpus(put(tmp_path / "a.txt", "one\ntwo\n\n \n"))) == [("one",), ("two",)]
    path = put(tmp_path / "b.txt", "one\n\n\ntwo\n")
    with pytest.raises(InputError, match=r"got a blank line \(.*b.txt:2\)"):
        list(open_corpus(path))
    corpus = open_corpus(path, skip_bad_rows=True)
    assert [row.where for row in corpus] == [f"{path}:1", f"{path}:4"]
    assert corpus.bad_reasons == {"blank line": 2}


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.tsv", "a.jsonl"])
def test_bytes_that_are_not_utf8_name_file_and_line(tmp_path: Path, name: str) -> None:
    good = b'{"text": "fine"}\n' if name.endswith("jsonl") else b"fine\n"
    path = put(tmp_path / name, good + good.replace(b"fine", b"caf\xe9") + good)
    with pytest.raises(InputError, match=rf"expected UTF-8, got byte 0xe9 as byte \d+ of the line \(.*{name}:2\)"):
        list(open_corpus(path))
    corpus = open_corpus(path, skip_bad_rows=True)
    assert read(corpus) == [("fine",)] * 2
    assert corpus.bad_reasons == {"not UTF-8": 1}


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.jsonl"])
def test_binary_content_is_refused_whole(tmp_path: Path, name: str) -> None:
    path = put(tmp_path / name, b"fine\n\x00\x01\x02\n")
    with pytest.raises(InputError, match=rf"expected a text file, got a NUL byte \(.*{name}:2\)"):
        open_corpus(path, skip_bad_rows=True)
    with pytest.raises(InputError, match="UTF-16"):
        open_corpus(put(tmp_path / name, "text\nmore".encode("utf-16")))


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.jsonl"])
def test_a_nul_far_into_a_file_is_a_bad_row(tmp_path: Path, name: str) -> None:
    line = '{"text": "a sentence of some words"}\n' if name.endswith("jsonl") else "a sentence of some words\n"
    path = put(tmp_path / name, line * 6000 + "a\0b\n" + line)
    with pytest.raises(InputError, match=rf"got a NUL character \(.*{name}:6001\)"):
        list(open_corpus(path))
    assert len(read(open_corpus(path, skip_bad_rows=True))) == 6001


def test_a_byte_order_mark_alone_is_an_empty_file(tmp_path: Path) -> None:
    for name in ("a.txt", "a.csv", "a.jsonl"):
        with pytest.raises(InputError, match="is empty"):
            open_corpus(put(tmp_path / name, b"\xef\xbb\xbf"))


def test_a_row_of_tabs_is_not_a_blank_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"got an empty field \(.*a.tsv:3\)"):
        list(open_corpus(put(tmp_path / "a.tsv", "sent0\tsent1\na b\tc d\n\t\n")))


def test_wrong_column_count(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", "sent0,sent1\na b,c d\nonly one\nx y,z,extra\nlast,row\n")
    with pytest.raises(InputError, match=r"expected 2 comma-separated columns, got 1 \(.*a.csv:3\)"):
        list(open_corpus(path))
    corpus = open_corpus(path, skip_bad_rows=True)
    assert read(corpus) == [("a b", "c d"), ("last", "row")]
    assert corpus.bad_reasons == {"wrong number of columns": 2}


def test_a_record_over_several_lines_counts_from_its_first(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", 'sent0,sent1\n"two\nlines",b c\nd e,f g\n')
    assert [(row.texts, row.where[-1]) for row in open_corpus(path)] == [
        (("two\nlines", "b c"), "2"),
        (("d e", "f g"), "4"),
    ]


def test_an_open_quote_names_the_line_it_began_and_costs_one_row(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", 'sent0,sent1\na b,c d\n"never closed,x\ne f,g h\ni j,k l\n')
    with pytest.raises(InputError, match=r"expected a correctly quoted record, .*a.csv:3\)"):
        open_corpus(path)
    corpus = open_corpus(path, skip_bad_rows=True)
    assert read(corpus) == [("a b", "c d"), ("e f", "g h"), ("i j", "k l")]
    assert corpus.bad_reasons == {"broken quoting": 1}


def test_header_by_content(tmp_path: Path) -> None:
    words = put(tmp_path / "words.csv", "cat,dog\ntree,house\n")
    assert read(open_corpus(words)) == [("cat", "dog"), ("tree", "house")]
    assert read(open_corpus(words, header=True, pairs=True)) == [("tree", "house")]
    named = put(tmp_path / "named.csv", "titre,texte\nUn jour,Il fait beau\n")
    assert len(read(open_corpus(named))) == 2  # names we do not know might be data
    three = put(tmp_path / "three.csv", "titre,texte\nUn jour,Il fait beau\nLe soir,Il fait nuit\n")
    assert len(read(open_corpus(three, pairs=True))) == 2  # short words above sentences, twice: a header
    assert read(open_corpus(named, header=True, pairs=True)) == [("Un jour", "Il fait beau")]
    assert read(open_corpus(named, columns=["texte"])) == [("Il fait beau",)]
    short = put(tmp_path / "short.csv", "早上好,你好\n你 好,早上 好\n")
    assert len(read(open_corpus(short))) == 2
    scored = put(tmp_path / "scored.csv", "A man,A person,4.5\nA cat,A car,0\n")
    assert [row.score for row in open_corpus(scored)] == [4.5, 0.0]


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("a.csv", "yes\nno thanks to you\nmaybe so\n", 3),
        ("a.csv", "Hello\tHi\nGood morning to all\tHello there\n", 2),
        ("a.tsv", "Hello\tHi\nGood morning to all\tHello there\n", 2),
        ("a.tsv", "label\ta tag on a parcel\ntree\ta tall plant\n", 2),
        ("a.csv", "The text, as it is\nA score, too\n", 2),
        ("a.csv", "text\nno thanks to you\n", 1),
        ("a.csv", ",text\n0,no thanks to you\n", 1),
        ("a.csv", "Unnamed: 0,Sentence\n0,no thanks to you\n", 1),
        ("a.csv", "query,passage\nwho is it,it is me\n", 1),
        ("a.csv", "Sentence 1,Sentence 2,Similarity (0 to 5)\nwho is it,it is me,3\n", 1),
    ],
)
def test_what_is_a_header(tmp_path: Path, name: str, content: str, rows: int) -> None:
    assert len(read(open_corpus(put(tmp_path / name, content)))) == rows


def test_a_field_that_is_too_long_says_so(tmp_path: Path) -> None:
    long = "word " * 40_000
    assert read(open_corpus(put(tmp_path / "a.csv", f'text\n"{long}"\n'))) == [(long,)]
    path = put(tmp_path / "b.csv", f'text\nfine\n"{long * 6}"\nfine too\n')
    with pytest.raises(InputError, match=r"expected at most 1,048,576 characters in a field, got more.*b.csv:3"):
        list(open_corpus(path))
    corpus = open_corpus(path, skip_bad_rows=True)
    assert read(corpus) == [("fine",), ("fine too",)]
    assert corpus.bad_reasons == {"field too long": 1}


def test_sts_benchmark_layout_is_recognised(tmp_path: Path) -> None:
    lines = [
        'main-captions\tMSRvid\t2012test\t0001\t5.000\tA "plane" is, taking off.\t"An air plane',
        "main-news\thead\t2014\t2\t1.5\tFirst, one.\tSecond, one.\tlicence\thttp://example.org",
    ]
    path = put(tmp_path / "sts-dev.csv", "\n".join(lines))
    for corpus in (
        open_corpus(path),
        open_corpus(path, columns=["5", "6"], score="4"),
        open_corpus(path, columns=["sentence1", "sentence2"], score="score"),
    ):
        assert [(row.texts, row.score) for row in corpus] == [
            (('A "plane" is, taking off.', '"An air plane'), 5.0),
            (("First, one.", "Second, one."), 1.5),
        ]
    put(path, "\n".join([*lines, "too\tfew\tcolumns"]))
    with pytest.raises(InputError, match=r"expected 7 tab-separated columns, got 3 \(.*sts-dev.csv:3\)"):
        list(open_corpus(path))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{not json", "expected a JSON object, got text that is not JSON"),
        ('["a", "b"]', "expected a JSON object with columns as keys, got a list"),
        ("{}", "expected a JSON object with columns as keys, got an empty one"),
        ('{"text": null}', "expected text in column 'text', got no value"),
        ('{"other": "x"}', "expected text in column 'text', got no value"),
        ('{"text": 3}', "expected text in column 'text', got 3 of type int"),
        ('{"text": "\\ud800"}', "expected a JSON object, got text that is not JSON"),
    ],
)
def test_bad_json_lines(tmp_path: Path, line: str, message: str) -> None:
    path = put(tmp_path / "a.jsonl", '{"text": "good"}\n' + line + '\n{"text": "\\u00fc"}\n')
    with pytest.raises(InputError, match=rf"{message}.* \(.*a.jsonl:2\)"):
        list(open_corpus(path))
    assert read(open_corpus(path, skip_bad_rows=True)) == [("good",), ("ü",)]


def test_parquet_leaves_stored_vectors_alone_and_finds_bad_strings(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    damaged = pa.array([b"fine", b"caf\xe9"], pa.binary()).view(pa.string())
    table = pa.table({"vector": [[1.0], [2.0]], "kept": damaged, "kind": pa.array(["a b", "c"]).dictionary_encode()})
    pq.write_table(table, tmp_path / "a.parquet")
    corpus = open_corpus(tmp_path / "a.parquet", columns="kept,kind", skip_bad_rows=True)
    assert read(corpus) == [("fine", "a b")] and corpus.bad_reasons == {"not UTF-8": 1}
    with pytest.raises(InputError, match="is not a parquet file"):
        open_corpus(put(tmp_path / "b.parquet", "not parquet at all"))


def test_parquet_columns_of_one_name_are_told_apart_by_position(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"said": ["a b", "c d"], "vector": [[1.0], [2.0]], "stars": [1, 2], "said ": ["e f", "g h"]}
    arrays = [pa.array(column) for column in columns.values()]
    pq.write_table(pa.Table.from_arrays(arrays, [name.strip() for name in columns]), tmp_path / "a.parquet")
    assert read(open_corpus(tmp_path / "a.parquet", pairs=True)) == [("a b", "e f"), ("c d", "g h")]
    assert read(open_corpus(tmp_path / "a.parquet", columns=["2", "0"])) == [("e f", "a b"), ("g h", "c d")]
    with pytest.raises(InputError, match=r"2 columns called 'said'. Name one by position, .*: 0, 2\."):
        open_corpus(tmp_path / "a.parquet", columns=["said"])


def test_every_row_bad(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", "sent0,sent1\n,\n,\n")
    with pytest.raises(InputError, match="no row to read that is not bad"):
        open_corpus(path, skip_bad_rows=True)


def test_real_files(shared: Path) -> None:
    data = shared / "data"
    dev = open_corpus(data / "senteval/downstream/STS/STSBenchmark/sts-dev.csv")
    assert (dev.width, dev.scored, sum(1 for _ in dev)) == (2, True, 1500)
    nli = open_corpus(data / "nli_triples.csv.gz")
    assert (nli.width, nli.scored, sum(1 for _ in nli)) == (3, False, 68_068)
    sick = open_corpus(f"tsv:{data}/senteval/downstream/SICK/SICK_trial.txt")
    assert (sick.width, sick.scored, sum(1 for _ in sick)) == (2, True, 500)


def test_a_bad_line_between_blank_lines_is_counted_once(tmp_path: Path) -> None:
    corpus = open_corpus(put(tmp_path / "a.txt", b"one\n\n\xff\n\n\ntwo\n"), skip_bad_rows=True)
    assert read(corpus) == [("one",), ("two",)]
    assert corpus.bad_reasons == {"not UTF-8": 1, "blank line": 3}


def test_decimals_of_parquet_are_scores(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = {"sentence1": ["a b", "c"], "sentence2": ["d", "e f"], "score": [Decimal("3.50"), Decimal("1.00")]}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    assert [row.score for row in open_corpus(tmp_path / "a.parquet")] == [3.5, 1.0]
    assert [row.score for row in open_corpus(tmp_path / "a.parquet", score="score")] == [3.5, 1.0]


class _Split(list[dict[str, object]]):
    @property
    def column_names(self) -> list[str]:
        return list(self[0]) if self else []

    def select_columns(self, names: list[str]) -> _Split:
        return _Split({name: row[name] for name in names} for row in self)


def test_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = _Split({"sentence1": "a b", "sentence2": "c d", "score": float(n)} for n in range(3))
    asked = []

    class Library:
        @staticmethod
        def load_dataset(name: str, config: str | None) -> dict[str, _Split]:
            asked.append((name, config))
            return {"train": rows, "test": _Split(rows[:1])}

    monkeypatch.setitem(sys.modules, "datasets", Library)  # type: ignore[arg-type]
    corpus = open_corpus("hf:owner/name")
    assert corpus.scored and [row.score for row in corpus] == [0.0, 1.0, 2.0]
    assert next(iter(corpus)).where == "hf:owner/name:1"
    assert len(read(open_corpus("hf:owner/name/en:test"))) == 1
    assert asked == [("owner/name", None), ("owner/name", "en")]
    with pytest.raises(InputError, match=r"no split 'dev'. Known: train, test"):
        open_corpus("hf:owner/name:dev")
    with pytest.raises(InputError, match="does not name a data set"):
        open_corpus("hf:name")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"twinpass\[hub\]"):
        open_corpus("hf:owner/name")
