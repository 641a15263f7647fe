"""Checks that hold for every format: what was written is read, packed or not, and bad rows are found."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import tracemalloc
import warnings
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from twinpass.errors import ConfigError, InputError
from twinpass.text.corpus import Corpus, open_corpus
from twinpass.text.formats import READERS
from twinpass.text.sources import FORMS

ROWS = [
    ("A man plays.", "Someone is playing, it seems."),
    ("Grüße aus Köln — 你好", 'She said "no" twice.'),
    ("  kept as it is ", "naïve\u2028still the same line"),
]
TABULAR = ["csv", "tsv", "jsonl", "parquet"]
Writer = Callable[[Sequence[str], Sequence[Sequence[object]]], bytes]


def _csv(names: Sequence[str], rows: Sequence[Sequence[object]]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer).writerows([names, *rows])
    return buffer.getvalue().encode()


def _tsv(names: Sequence[str], rows: Sequence[Sequence[object]]) -> bytes:
    return "".join("\t".join(map(str, row)) + "\n" for row in [names, *rows]).encode()


def _jsonl(names: Sequence[str], rows: Sequence[Sequence[object]]) -> bytes:
    return "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows).encode()


def _parquet(names: Sequence[str], rows: Sequence[Sequence[object]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    columns = [list(column) for column in zip(*rows, strict=True)]
    pq.write_table(pa.table(dict(zip(names, columns, strict=True))), sink)
    return sink.getvalue()


WRITERS: dict[str, Writer] = {"csv": _csv, "tsv": _tsv, "jsonl": _jsonl, "parquet": _parquet}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Write a table in a format and return the file's path."""

    def write(format: str, names: Sequence[str], rows: Sequence[Sequence[object]], packing: str = "") -> str:
        pack = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[packing]
        path = tmp_path / f"data.{format}{packing}"
        path.write_bytes(pack(WRITERS[format](names, rows)))
        return str(path)

    return write


def read(corpus: Corpus) -> list[tuple[str, ...]]:
    return [row.texts for row in corpus]


def test_every_registered_format_is_checked_here() -> None:
    assert {*READERS} == {"txt", "scsv", *WRITERS} == {*FORMS}


@pytest.mark.parametrize("packing", ["", ".gz", ".xz"])
@pytest.mark.parametrize("format", TABULAR)
def test_round_trip(write: Callable[..., str], format: str, packing: str) -> None:
    corpus = open_corpus(write(format, ["sent0", "sent1"], ROWS, packing))
    assert corpus.width == 2 and not corpus.scored and corpus.columns == ("sent0", "sent1")
    assert read(corpus) == ROWS == read(corpus)
    assert list(corpus.texts()) == [text for row in ROWS for text in row]
    assert corpus.bad_rows == 0


@pytest.mark.parametrize("packing", ["", ".gz", ".xz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_text_round_trip(tmp_path: Path, packing: str, end: str) -> None:
    pack = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[packing]
    path = tmp_path / f"data.txt{packing}"
    texts = [text for row in ROWS for text in row]
    path.write_bytes(pack(b"\xef\xbb\xbf" + end.join(texts).encode()))
    corpus = open_corpus(path)
    assert list(corpus.texts()) == texts
    assert [row.where for row in corpus] == [f"{path}:{line}" for line in range(1, 7)]


def test_fingerprint_is_of_the_content_alone(write: Callable[..., str]) -> None:
    prints = {
        open_corpus(write(format, ["sent0", "sent1"], ROWS, packing)).fingerprint()
        for format in TABULAR
        for packing in ("", ".gz")
    }
    assert len(prints) == 1
    assert open_corpus(write("csv", ["sent0", "sent1"], ROWS)).survey() == (3, 6, *prints)
    moved = [("A man plays.S", "omeone is playing, it seems."), *ROWS[1:]]
    assert open_corpus(write("csv", ["sent0", "sent1"], moved)).fingerprint() not in prints


@pytest.mark.parametrize("format", TABULAR)
@pytest.mark.parametrize(
    ("names", "texts", "scored"),
    [
        (["sentence1", "sentence2", "score"], (0, 1), True),
        (["label", "sentence2", "sentence1"], (2, 1), True),
        (["id", "premise", "hypothesis"], (1, 2), False),
        (["anchor", "positive", "negative"], (0, 1, 2), False),
        (["hard_neg", "sent1", "sent0"], (2, 1, 0), False),
        (["id", "text", "score"], (1,), False),
    ],
)
def test_columns_are_found_by_name(
    write: Callable[..., str], format: str, names: list[str], texts: tuple[int, ...], scored: bool
) -> None:
    numeric = {"score", "label", "id"}
    row = [7.5 if name in numeric else f"the text of {name}" for name in names]
    corpus = open_corpus(write(format, names, [row, row]))
    assert read(corpus) == [tuple(row[at] for at in texts)] * 2
    assert corpus.scored == scored
    assert [found.score for found in corpus] == [7.5 if scored else None] * 2


@pytest.mark.parametrize("format", TABULAR)
def test_columns_as_told(write: Callable[..., str], format: str) -> None:
    path = write(format, ["one", "two", "points"], [["first text", "second text", 0.25]])
    assert read(open_corpus(path, columns=["two"])) == [("second text",)]
    assert read(open_corpus(path, columns="two, one")) == [("second text", "first text")]
    assert repr(open_corpus(path, columns="two")) == f"Corpus({path!r}, columns=('two',), scored=False)"
    assert read(open_corpus(path, columns=["1", "0"], score="2", header=True)) == [("second text", "first text")]
    told = open_corpus(path, columns=["two", "one"], score="points")
    assert [(row.texts, row.score) for row in told] == [(("second text", "first text"), 0.25)]
    assert not open_corpus(path, columns=["one", "two"]).scored
    assert read(open_corpus(path, score="points")) == [("first text", "second text")]


TICKETS = (
    ["ticket_id", "subject", "body", "category"],
    [["T-1", "Login fails", "I cannot log in since Monday.", "account"],
     ["T-2", "Charged twice", "My card was charged twice.", "billing"],
     ["T-3", "Where is it", "The parcel has not arrived yet.", "shipping"]],
)  # fmt: skip


@pytest.mark.parametrize("format", TABULAR)
def test_where_several_columns_could_be_meant_it_asks(write: Callable[..., str], format: str) -> None:
    path = write(format, *TICKETS)
    with pytest.raises(InputError) as asked:
        open_corpus(path)
    message = str(asked.value)
    assert "several columns that could be the text" in message and "--columns subject,body --join ' '" in message
    assert [line.split(maxsplit=1) for line in message.splitlines()[1:5]] == [
        ["ticket_id", "T-1"], ["subject", "Login fails"], ["body", "I cannot log in since Monday."],
        ["category", "account"],
    ]  # fmt: skip
    assert read(open_corpus(path, columns="body")) == [(row[2],) for row in TICKETS[1]]
    assert read(open_corpus(path, pairs=True)) == [(row[1], row[2]) for row in TICKETS[1]]


@pytest.mark.parametrize("format", TABULAR)
def test_one_column_of_sentences_is_taken_and_named(write: Callable[..., str], format: str) -> None:
    lines: list[str] = []
    rows = [
        [7, "2024-03-01 10:00", "I cannot log in.", "billing"],
        [8, "2024-03-02 11:30", "Charged twice!", "account"],
    ]
    corpus = open_corpus(write(format, ["ID", "date", "message", "category"], rows), log=lines.append)
    assert corpus.columns == ("message",) and read(corpus) == [("I cannot log in.",), ("Charged twice!",)]
    assert "the text is in message, not in date, category; --columns chooses others" in lines[-1]
    header = [line for line in lines if "the first row (ID, date, message, category) names the columns" in line]
    assert len(header) == (format in ("csv", "tsv"))


@pytest.mark.parametrize("format", TABULAR)
def test_columns_are_joined_into_one_text(write: Callable[..., str], format: str) -> None:
    names, rows = TICKETS
    corpus = open_corpus(write(format, names, rows), columns=["subject", "body"], join=" / ")
    assert (corpus.width, corpus.columns) == (1, ("subject + body",))
    assert read(corpus) == [(f"{row[1]} / {row[2]}",) for row in rows]
    assert [others for _, others in corpus.records()] == [dict(zip(names, row, strict=True)) for row in rows]
    gaps = [["T-1", "", "I cannot log in.", "x"], ["T-2", "Charged twice", "", "x"], ["T-3", "", "", "x"]]
    corpus = open_corpus(write(format, names, gaps), columns="subject,body", join=" ", skip_bad_rows=True)
    assert read(corpus) == [("I cannot log in.",), ("Charged twice",)] and corpus.bad_rows == 1
    with pytest.raises(ConfigError, match="join needs the columns"):
        open_corpus(write(format, names, rows), join=" ")


def test_what_cannot_be_joined_is_a_bad_row(write: Callable[..., str]) -> None:
    path = write("jsonl", ["a", "b"], [["one text", 2], ["two texts", [1]]])
    corpus = open_corpus(path, columns="a,b", join=" ", skip_bad_rows=True)
    assert read(corpus) == [("one text 2",)] and corpus.bad_reasons == {"not a text": 1}


def test_a_file_of_texts_and_nothing_else_needs_no_columns(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("What is it?,It is a dog.\nWho is there?,Nobody at all.\n")
    assert read(open_corpus(path)) == [("What is it?", "It is a dog."), ("Who is there?", "Nobody at all.")]
    path.write_text("Login fails,I cannot log in.,account\nCharged twice,My card was charged.,billing\n")
    with pytest.raises(InputError, match=r"(?s)could be the text:.*0  Login fails.*--columns 0,1 --join"):
        open_corpus(path)


@pytest.mark.parametrize("format", TABULAR)
def test_a_missing_column_gets_a_suggestion(write: Callable[..., str], format: str) -> None:
    path = write(format, ["one", "other"], [["first text", "second text"]])
    with pytest.raises(InputError, match=r"no column 'othr'. Did you mean 'other'\? Its columns: one, other"):
        open_corpus(path, columns=["one", "othr"])
    with pytest.raises(InputError, match="no column '9'"):
        open_corpus(path, score="9")


@pytest.mark.parametrize("format", ["csv", "tsv"])
@pytest.mark.parametrize("names", [["text", "Text"], ["sent0", "sent1", "sent1"], ["sentence", "sentence"]])
def test_nothing_is_guessed_between_columns_of_one_name(
    write: Callable[..., str], format: str, names: list[str]
) -> None:
    path = write(format, names, [[f"the text of {at}" for at in range(len(names))]])
    with pytest.raises(InputError, match=rf"2 columns called '{names[-2]}'|2 columns called '{names[-1]}'"):
        open_corpus(path)
    assert read(open_corpus(path, columns=["1", "0"])) == [("the text of 1", "the text of 0")]


@pytest.mark.parametrize("format", TABULAR)
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (["", "b c", 1.0], "expected text in column 'sentence1', got an empty field"),
        (["a b", "   ", 1.0], "expected text in column 'sentence2', got an empty field"),
        (["a b", "b c", float("nan")], "expected a finite number in column 'score', got '?nan'?"),
        (["a b", "b c", float("inf")], "expected a finite number in column 'score', got '?inf'?"),
    ],
)
def test_bad_rows(write: Callable[..., str], format: str, bad: list[object], message: str) -> None:
    good = ["a man", "a woman", 2.0]
    names = ["sentence1", "sentence2", "score"]
    path = write(format, names, [*[good] * 30, bad, good])
    line = 32 if format in ("csv", "tsv") else 31
    with pytest.raises(
        InputError, match=rf"{message} \(.*data.{format}:{line}\). Fix the row, or pass --skip-bad-rows"
    ):
        list(open_corpus(path, columns=["sentence1", "sentence2"], score="score"))
    corpus = open_corpus(path, columns=["sentence1", "sentence2"], score="score", skip_bad_rows=True)
    assert len(read(corpus)) == 31
    reason = "score is not a number" if "number" in message else "empty field"
    assert corpus.bad_rows == 1 and corpus.bad_reasons == {reason: 1}


@pytest.mark.parametrize("format", TABULAR)
def test_a_nan_among_the_first_scores_is_a_bad_row_and_not_a_file_without_scores(
    write: Callable[..., str], format: str
) -> None:
    names = ["sentence1", "sentence2", "score"]
    path = write(format, names, [["a man", "a woman", 2.0], ["a cat", "a dog", float("nan")]])
    with pytest.raises(InputError, match="expected a finite number"):
        list(open_corpus(path))
    corpus = open_corpus(path, skip_bad_rows=True)
    assert corpus.scored and [row.score for row in corpus] == [2.0]


@pytest.mark.parametrize("word", ["n/a", "nan", "unknown", "3_5"])
def test_a_word_among_scores_that_are_called_so_is_a_bad_row(tmp_path: Path, word: str) -> None:
    path = tmp_path / "scored.csv"
    path.write_text(f"sentence1,sentence2,score\na man,a woman,2\na cat,a dog,{word}\na sea,a lake,4\n")
    with pytest.raises(InputError, match=r"expected a finite number in column 'score', got .*scored.csv:3"):
        list(open_corpus(path))
    labels = tmp_path / "labels.csv"
    labels.write_text("premise,hypothesis,label\na man,a woman,neutral\na cat,a dog,entailment\n")
    assert not open_corpus(labels).scored


@pytest.mark.parametrize("format", TABULAR)
def test_words_in_a_column_that_is_called_a_score_are_refused(write: Callable[..., str], format: str) -> None:
    names = ["sentence1", "sentence2", "score"]
    path = write(format, names, [["a man", "a woman", "high"], ["a cat", "a dog", "low"]])
    with pytest.raises(
        InputError, match=r"expected numbers in column 'score', got 'high'.*--columns sentence1,sentence2"
    ):
        open_corpus(path)
    assert not open_corpus(path, columns="sentence1,sentence2").scored
    assert open_corpus(path, label="score").width == 2
    assert not open_corpus(
        write(format, [*names[:2], "label"], [["a", "b", "neutral"], ["c", "d", "entailment"]])
    ).scored
    assert not open_corpus(write(format, names, [["a man", "a woman", ""], ["a cat", "a dog", ""]])).scored
    assert open_corpus(write(format, [*names, "label"], [["a", "b", "high", 1], ["c", "d", "low", 0]])).scored
    assert (
        open_corpus(write(format, ["id", "text", "score"], [["1", "a man", "high"], ["2", "a cat", "low"]])).width == 1
    )


def test_a_nan_does_not_make_text_of_a_last_column_of_numbers(tmp_path: Path) -> None:
    path = tmp_path / "scored.csv"
    path.write_text("a man,a woman,2\na cat,a dog,NaN\n")
    corpus = open_corpus(path, skip_bad_rows=True)
    assert corpus.scored and [(row.texts, row.score) for row in corpus] == [(("a man", "a woman"), 2.0)]


@pytest.mark.parametrize("format", ["txt", *TABULAR])
@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_an_empty_file_is_refused(tmp_path: Path, format: str, content: bytes) -> None:
    path = tmp_path / f"data.{format}"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"data.{format} is (empty|not a parquet file)"):
        open_corpus(path)


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_columns_without_rows_are_empty(tmp_path: Path, write: Callable[..., str], format: str) -> None:
    if format == "csv":
        path = write(format, ["sent0", "sent1"], [])
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = str(tmp_path / "data.parquet")
        pq.write_table(pa.table({"ungewohnt": pa.array([], pa.string())}), path)
    with pytest.raises(InputError, match="is empty"):
        open_corpus(path)


@pytest.mark.parametrize("format", ["txt", "csv", "jsonl", "parquet"])
def test_reading_takes_constant_memory(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"data.{format}"
    count = 40_000 if format != "parquet" else 20_000
    if format == "parquet":
        path.write_bytes(_parquet(["text"], [(f"sentence number {n} of many",) for n in range(count)]))
    else:
        line = {"txt": "{}\n", "csv": '"{}"\n', "jsonl": '{{"text": "{}"}}\n'}[format]
        with path.open("w") as stream:
            stream.writelines(line.format(f"sentence number {n} of many") for n in range(count))
    corpus = open_corpus(path)
    tracemalloc.start()
    assert sum(1 for _ in corpus) == count
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_500_000  # the sentences alone would take more than twice that


def test_a_first_row_that_may_be_names_is_read_and_mentioned(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("frage,antwort\nwas ist das,ein hund\n")
    with pytest.warns(UserWarning, match=r"the first row \(frage, antwort\) is read as text.*--header"):
        assert len(list(open_corpus(path))) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(open_corpus(path, header=True, pairs=True))) == 1
        assert len(list(open_corpus(path, header=False))) == 2
        path.write_text("was ist das,ein hund\nund das,eine katze\n")
        assert len(list(open_corpus(path))) == 2


@pytest.mark.parametrize("content", ["date,review\n2024-03-01,good\n2024-03-02,bad\n", "user,tag\nbob,red\nann,blue\n"])
def test_for_single_texts_columns_under_possible_names_are_not_all_read(tmp_path: Path, content: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError, match=r"(?s)several columns .*If the first row .* names the columns: --header"):
            open_corpus(path, single=True)
        with pytest.raises(InputError, match=r"several columns that could be the text"):
            open_corpus(path, single=True, header=True)
        assert len(read(open_corpus(path, single=True, header=False))) == 3
    with pytest.warns(UserWarning, match="is read as text"):
        assert len(read(open_corpus(path))) == 3  # as pairs, for training
    with pytest.warns(UserWarning, match="is read as text"):
        assert len(read(open_corpus(path, single=True, columns="1"))) == 3
    path.write_text("was ist das,ein hund\nund das,eine katze\n")
    assert read(open_corpus(path, single=True)) == [("was ist das", "ein hund"), ("und das", "eine katze")]


def test_for_single_texts_a_row_of_names_alone_is_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("date,review\n")
    with pytest.raises(InputError, match=r"is empty: expected rows .* \(date, review\). Add rows, .*--no-header"):
        open_corpus(path, single=True)
    assert read(open_corpus(path, single=True, header=False)) == [("date", "review")]


def test_a_second_row_of_another_width_is_what_is_wrong_with_a_table(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("user,tag\nbob\nann\n")
    with pytest.raises(InputError, match=r"expected 2 comma-separated columns, got 1 \(.*rows.csv:2\)"):
        open_corpus(path, single=True)
    with pytest.raises(InputError, match="several columns that could be the text"):
        open_corpus(path, single=True, skip_bad_rows=True)


def test_every_decision_is_said_once_whichever_file_it_is_about(tmp_path: Path) -> None:
    content = {"a": "id,text\n1,all is well\n", "b": "id;text\n1;all is well\n", "c": "id;text\n2;not so\n"}
    for name, lines in content.items():
        (tmp_path / f"{name}.csv").write_text(lines)
    said: list[str] = []
    assert list(open_corpus(tmp_path, log=said.append).texts()) == ["all is well", "all is well", "not so"]
    assert said == [f"{tmp_path}/b.csv and 1 more file: its columns are separated by semicolons; csv:NAME reads commas"]


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
