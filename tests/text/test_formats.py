"""What is particular to one file format."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from twinpass.errors import InputError, MissingExtra
from twinpass.text import formats
from twinpass.text.corpus import Corpus, open_corpus
from twinpass.text.rows import SAMPLE
from twinpass.text.sources import Line, Source


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


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize("index", ["", "Unnamed: 0", "Unnamed: 0.1"])
@pytest.mark.parametrize("others", ["review,rating", "review", "Review Text,Star Rating"])
def test_an_index_of_pandas_needs_no_name(tmp_path: Path, index: str, others: str, mark: str) -> None:
    texts, ratings = ["Great product it is", "Bad product it is", "meh product here"], [5, 1, 3]
    rows = [f"{place},{text},{stars}" for place, (text, stars) in enumerate(zip(texts, ratings, strict=True))]
    lines = [",".join(row.split(",")[: others.count(",") + 2]) for row in (f"{index},{others}", *rows)]
    said: list[str] = []
    path = put(tmp_path / "a.csv", "\n".join(lines).replace(",", mark))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(open_corpus(path, log=said.append).texts()) == texts
    assert f"the first row ({index}, {others.replace(',', ', ')}) names the columns" in said[-1]


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (",Great it is\n5,Bad it is\n4,meh it is\n", ["Great it is", "Bad it is", "meh it is"]),
        (",great\n5,It is bad\n5,It is meh\n", ["great", "It is bad", "It is meh"]),
    ],
)
def test_a_missing_number_is_no_index(tmp_path: Path, content: str, texts: list[str]) -> None:
    assert list(open_corpus(put(tmp_path / "a.csv", content)).texts()) == texts


@pytest.mark.parametrize("content", [",review\n0,It is good\n", ",Customer Message\n0,it is late\n1,it is slow\n"])
def test_a_possible_header_beside_an_index_is_mentioned(tmp_path: Path, content: str) -> None:
    with pytest.warns(UserWarning, match=r"the first row \(, .*\) is read as text"):
        assert len(read(open_corpus(put(tmp_path / "a.csv", content)))) == content.count("\n")


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("Ticket ID,Customer Message\nA1,my card was charged\nA2,it is late\n", ["my card was charged", "it is late"]),
        ("Created At,Customer Message\n2024-03-01 10:00,all is well\n3 March 2024,not so\n", ["all is well", "not so"]),
        (
            "Issue Type,Customer Message\nbilling,all is well\naccount,it is late\napi,it is slow\n",
            ["all is well", "it is late", "it is slow"],
        ),
    ],
)
def test_names_of_several_words_above_ids_dates_and_categories(tmp_path: Path, content: str, texts: list[str]) -> None:
    lines: list[str] = []
    corpus = open_corpus(put(tmp_path / "a.csv", content), log=lines.append)
    assert list(corpus.texts()) == texts and "names the columns; --no-header" in lines[0]


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ("Ticket ID,Customer Message\nA1,my card was charged\n", 2),  # one row below is not enough
        ("Issue Type,Customer Message\nbilling,all is well\naccount,it is late\n", 3),  # two are not enough for words
        ("issue type,customer message\nbilling,all is well\naccount,it is late\napi,it is slow\n", 4),
        ("New York,Flight Delayed\nParis,my bag is lost\nLondon,where is it now\nOslo,who knows it\n", 4),
        ("Customer Question,Agent Answer\nwhere is it,it is here\nwho is it,it is me\n", 3),
        ("customer question,agent answer\nwhere is it?,it is here.\nwho then?,it is me!\n", 3),
        ("Customer Message\nmy card was charged\nit is late\n", 3),
    ],
)
def test_other_names_of_several_words_are_read_and_mentioned(tmp_path: Path, content: str, rows: int) -> None:
    with pytest.warns(UserWarning, match=r"the first row \(.*\) is read as text.*--header"):
        assert len(read(open_corpus(put(tmp_path / "a.csv", content)))) == rows


@pytest.mark.parametrize(
    "content",
    [
        "A man,A person\nA cat sits,A dog runs\nA sea,A lake\n",
        "Login fails,account\nCharged twice,billing\nNo answer,account\n",
        "Login fails,T-1\nCharged twice,T-2\nNo answer,T-3\n",
        "Markets Fall,Shares Drop\nRain Expected,Storm Ahead\nTeam Wins,Cup Won\n",
        "Hello World\n",
    ],
)
def test_short_sentences_are_no_names(tmp_path: Path, content: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(read(open_corpus(put(tmp_path / "a.csv", content)))) == content.count("\n")


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("id;text\n1;I like it, really\n2;No, I do not\n", ["I like it, really", "No, I do not"]),
        ("id;text\n1;I like it\n", ["I like it"]),
        ('id;score;text\n1;3,5;"well; yes"\n2;4,5;no\n', ["well; yes", "no"]),
        ("1;I like it\n2;No\n", ["I like it", "No"]),
        ("1;I like it, yes\n2;No, no\n", ["I like it, yes", "No, no"]),
        ("1; I like it\n2; No\n", [" I like it", " No"]),
        ("Ticket ID;Customer Message\nA1;my card, again\nA2;it is late\n", ["my card, again", "it is late"]),
        ("Nr;Nachricht\n1;wie geht es\n2;was ist los\n", ["wie geht es", "was ist los"]),
        ("Frage;Antwort\nWie geht es?;Gut, danke\nUnd wie geht es dir?;Na ja, gut\n", None),
        ("1;my card;\n2;it is late;\n", ["my card", "it is late"]),
        ('"hello, you";1\n"yes, please";2\n', ["hello, you", "yes, please"]),
    ],
)
def test_semicolons_separate_under_names_and_beside_numbers(tmp_path: Path, content: str, texts: list[str]) -> None:
    lines: list[str] = []
    path = put(tmp_path / "a.csv", content)
    columns = "Antwort" if texts is None else None
    found = list(open_corpus(path, columns=columns, log=lines.append).texts())
    assert found == (["Gut, danke", "Na ja, gut"] if texts is None else texts)
    assert lines[0].endswith("a.csv: its columns are separated by semicolons; csv:NAME reads commas")


@pytest.mark.parametrize(
    "content",
    [
        "Ich kam, sah; siegte\nEr ging;sie blieb\nWir essen, trinken;schlafen\n",
        "hello my friend,a;b\ngood, bye now,c;d\nsee you later,e;f\n",
        "AT&amp;T is a good firm\nR&amp;D is a big cost\nP&amp;L is a long list\n",
        "bob;Hello, you\nann;Bye, now\n",
    ],
)
def test_where_nothing_tells_what_separates_the_user_is_asked(tmp_path: Path, content: str) -> None:
    """No text is lost silently: not what stands behind a semicolon of prose, nor behind a comma."""
    path = put(tmp_path / "a.csv", content)
    advice = (
        rf"nothing tells which\. Write csv:{path} to read commas, scsv:{path} to .* or txt:{path} to read every line"
    )
    with pytest.raises(InputError, match=advice):
        open_corpus(path)
    for more in ({"header": False}, {"columns": "0"}):  # they do not say what separates columns
        with pytest.raises(InputError, match=advice):
            open_corpus(path, **more)
    assert list(open_corpus(f"txt:{path}").texts()) == content.splitlines()
    by_comma = list(open_corpus(f"csv:{path}", columns="0", skip_bad_rows=True))
    assert by_comma and all(
        row.texts[0] == content.split("\n")[int(row.where[-1]) - 1].split(",")[0] for row in by_comma
    )
    assert next(open_corpus(f"scsv:{path}", columns="0").texts()) == content.partition(";")[0]
    put(tmp_path / "b.csv", content)
    for named in (tmp_path, f"{tmp_path}/?.csv"):
        with pytest.raises(InputError, match=r"a\.csv: commas or semicolons could separate its columns") as error:
            open_corpus(named)
        assert f"Write csv:{named} to read commas, scsv:{named} to" in str(error.value), "not one file of several"


def test_what_was_guessed_stands_in_the_question_for_columns(tmp_path: Path) -> None:
    path = put(
        tmp_path / "a.csv", "nr;frage hier;antwort da\n1;was ist das, bitte;ein Hund, ja\n2;wo ist es;am Tisch\n"
    )
    with pytest.raises(InputError, match=r"(?s)several columns .*a\.csv, its columns are separated by semicolons"):
        open_corpus(path, header=False, single=True)
    path = put(tmp_path / "b.csv", "Yes,No\nWhat is this thing?,It is a cat\nWho are you then?,I am Bob the cat\n")
    with pytest.raises(InputError, match=r"(?s)several columns .*the first row \(Yes, No\) names .*--no-header"):
        open_corpus(path)


@pytest.mark.parametrize(
    "content",
    [
        "I came; I saw\nHe went; he won\n",
        "I came;I saw\n",
        "I came;I saw\nHe went home\n",
        '"a;b c"\n"d;e f"\n',
        "int a = 1;\nint b = 2;\nf(a);\n",
        "AT&amp;T is late\nR&amp;D is slow\nall is well\n",
    ],
)
def test_semicolons_in_sentences_separate_nothing(tmp_path: Path, content: str) -> None:
    expected = content.replace('"', "").splitlines()
    assert list(open_corpus(put(tmp_path / "a.csv", content)).texts()) == expected
    tagged = put(tmp_path / "tagged.csv", "text,tags\nhello there,a;b\nbye you,c;d\n")
    assert list(open_corpus(tagged).texts()) == ["hello there", "bye you"]
    numbered = put(tmp_path / "numbered.csv", "how are you,en;1\nwhat is it,de;2\n")
    assert read(open_corpus(numbered)) == [("how are you",), ("what is it",)]


@pytest.mark.parametrize(
    "content",
    [
        "Nr;Nachricht\n1;wie geht es\nbroken\n2;was ist los\n",
        "Name;Nachricht\nbob;so, so\nbroken\nann;ja gut\nkim;hm, nun, ja\n",
    ],
)
def test_one_bad_row_does_not_make_texts_of_lines_with_semicolons(tmp_path: Path, content: str) -> None:
    path = put(tmp_path / "a.csv", content)
    with pytest.raises(InputError, match=r"expected 2 semicolon-separated columns, got 1 \(.*a.csv:3\)"):
        list(open_corpus(path, columns="1"))


def test_semicolons_that_separate_nothing_but_might_are_mentioned(tmp_path: Path) -> None:
    said: list[str] = []
    path = put(tmp_path / "a.csv", "bob;wie geht es\nbroken\nann;was ist los\n")
    assert len(read(open_corpus(path, log=said.append))) == 3
    assert said == [f"{path}: most lines have equally many semicolons and are not split at them; scsv:NAME splits them"]
    assert read(open_corpus(f"scsv:{path}", skip_bad_rows=True, log=said.append))[1] == ("was ist los",)
    assert not any("equally" in line or "separated" in line for line in said[1:])  # the user knows it
    one = put(tmp_path / "one.csv", "I came;I saw\n")
    assert read(open_corpus(f"scsv:{one}")) == [("I came", "I saw")]
    with pytest.raises(InputError, match="expected 2 semicolon-separated columns, got 1"):
        list(open_corpus(f"scsv:{path}"))


@pytest.mark.parametrize(
    ("first", "texts"),
    [
        ("sep=;", ("I came, late", "I saw")),
        ('"SEP=,"\r', ("I came", " late;I saw")),
        ("sep=\t", ("I came, late;I saw",)),
    ],
)
def test_a_first_line_that_states_the_separator_is_obeyed(tmp_path: Path, first: str, texts: tuple[str, ...]) -> None:
    said: list[str] = []
    path = put(tmp_path / "a.csv", f"{first}\nI came, late;I saw\nbroken,x;y\tz,\n")
    rows = iter(open_corpus(path, log=said.append))
    row = next(rows)
    assert (row.texts, row.where, said) == (texts, f"{path}:2", [])
    if first != "sep=;":
        with pytest.raises(InputError, match=r"expected . .*-separated columns, got .*a.csv:3\)"):
            next(rows)


@pytest.mark.parametrize("prefix", ["csv", "scsv", "tsv"])
@pytest.mark.parametrize(("mark", "format"), [(",", "csv"), (";", "scsv"), ("\t", "tsv")])
def test_a_stated_format_and_a_first_line_that_states_a_separator_agree(
    tmp_path: Path, prefix: str, mark: str, format: str
) -> None:
    content = f"sep={mark}\nI came{mark}I saw\n"
    path = put(tmp_path / "a.csv", content)
    suffixed = put(tmp_path / f"b.{prefix}", content)
    for name, file in ((f"{prefix}:{path}", path), *([(str(suffixed), suffixed)] * (prefix == "tsv"))):
        if prefix == format:
            assert [(row.texts, row.where) for row in open_corpus(name)] == [(("I came", "I saw"), f"{file}:2")]
            continue
        with pytest.raises(InputError) as error:
            open_corpus(name)
        names = {"csv": "commas", "scsv": "semicolons", "tsv": "tabs"}
        assert str(error.value) == (
            f"expected columns separated by {names[prefix]} ({prefix}), got a first line that states {names[format]} "
            f"({file}:1). Write {format}:{file}, or delete that line."
        )
    assert read(open_corpus(path, header=False)) == [("I came", "I saw")]


def test_tabs_that_a_stated_separator_leaves_alone_are_mentioned(tmp_path: Path) -> None:
    said: list[str] = []
    path = put(tmp_path / "a.csv", "g\tf\t2012\t1\t5.0\tA man, a cat\tA dog\ng\tf\t2012\t2\t1.5\tA sea\tA lake\n")
    hint = "its first lines hold tabs and are not split at them; tsv:NAME splits them"
    with pytest.raises(InputError, match=rf"expected 2 comma-separated columns, got 1; {hint} \(.*a\.csv:2\)"):
        list(open_corpus(f"csv:{path}", log=said.append))
    assert said == [f"{path}: {hint}"]
    with pytest.raises(InputError, match=hint):
        open_corpus(f"scsv:{path}", columns="3")
    said.clear()
    assert open_corpus(path, log=said.append).scored and open_corpus(f"tsv:{path}", log=said.append).scored
    assert not any("hold tabs" in line for line in said)
    some = put(tmp_path / "b.csv", "A man,A cat\nA\tsea,A lake\n")  # most lines hold no tab
    assert read(open_corpus(f"csv:{some}", log=said.append))[1] == ("A\tsea", "A lake")
    assert not any("hold tabs" in line for line in said)


@pytest.mark.parametrize(
    "content",
    ["sentence1;sentence2;score\na cat;a dog;3,5\na man;n/a, so;-1\n", 'a cat;a dog;3,5\na man;"n/a, so";-1,0\n'],
)
def test_decimal_commas_between_semicolons_are_numbers(tmp_path: Path, content: str) -> None:
    corpus = open_corpus(put(tmp_path / "a.csv", content))
    assert [(row.texts, row.score) for row in corpus] == [(("a cat", "a dog"), 3.5), (("a man", "n/a, so"), -1.0)]
    equal = put(tmp_path / "b.csv", "a cat;a dog;+3,5\na man;a sea;,25\n")
    assert [row.score for row in open_corpus(equal)] == [3.5, 0.25]
    texts = put(tmp_path / "c.csv", "price;text\n3,5;4,5\n1,234;too much of it\n1.234,50;so it is\n")
    assert next(iter(open_corpus(texts).records())) == (("4,5",), {"price": "3,5"}), "only scores are numbers"


@pytest.mark.parametrize("row", [b'"a b","c d"\n', b'"a b";"c d"\n', b"caf\xe9;b\n", b'"a" b;"c" d\n'])
def test_a_separator_is_guessed_from_the_first_rows_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: bytes
) -> None:
    taken: list[int] = []
    whole = formats.read_lines

    def counted(source: Source) -> Iterator[Line]:
        for line in whole(source):
            taken.append(line[0])
            yield line

    monkeypatch.setattr(formats, "read_lines", counted)
    with contextlib.suppress(InputError):  # where the first row is bad
        open_corpus(put(tmp_path / "a.csv", row * 1_000))
    assert max(taken) <= SAMPLE + 1 and len(taken) < 5 * SAMPLE


def test_a_bad_row_among_semicolons_is_one_bad_row(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", "id;text\n1;I like it\nbroken\n2;No\n")
    with pytest.raises(InputError, match=r"expected 2 semicolon-separated columns, got 1 \(.*a.csv:3\)"):
        list(open_corpus(path))
    assert read(open_corpus(path, skip_bad_rows=True)) == [("I like it",), ("No",)]
    with pytest.raises(InputError, match="is empty"):
        open_corpus(put(tmp_path / "b.csv", "id;text\n"))


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
