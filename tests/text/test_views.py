"""Every way of making a positive: which texts go through the encoder, and rows (x, g(x)) from single sentences."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.training.tiny_runs import make_sentences

from twinpass.config import Run
from twinpass.errors import ConfigError, InputError
from twinpass.text import views as module
from twinpass.text.augment import delete_one
from twinpass.text.corpus import open_corpus
from twinpass.text.rows import Row
from twinpass.text.views import (
    VIEWS,
    Place,
    PositiveMaker,
    WithPositives,
    add_positives,
    choose_view,
    one_by_one,
    shared_dropout,
    take_following,
    with_following,
)


def test_the_dropout_view_makes_two_passes_of_one_sentence() -> None:
    assert VIEWS["dropout"].passes(("x",)) == ("x", "x")


def test_a_shared_mask_makes_one_pass() -> None:
    assert shared_dropout(("x",)) == ("x",)


def test_pairs_and_triplets_make_a_pass_of_each_column() -> None:
    assert VIEWS["pairs"].passes(("x", "y")) == ("x", "y")
    assert VIEWS["triplets"].passes(("x", "y", "z")) == ("x", "y", "z")


@pytest.mark.parametrize(("width", "view"), [(1, "dropout"), (2, "pairs"), (3, "triplets")])
def test_the_number_of_columns_chooses(width: int, view: str) -> None:
    assert choose_view("auto", width=width, source="data.csv") == view
    assert choose_view(view, width=width, source="data.csv") == view


def test_a_view_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match=r"pairs view takes 2 .* data\.csv has 3"):
        choose_view("pairs", width=3, source="data.csv")
    assert choose_view("auto", width=4, source="data.csv") == "triplets"
    with pytest.raises(ConfigError, match="Did you mean 'pairs'"):
        choose_view("pair", width=2, source="data.csv")


class Lines:
    """Sentences in memory, as a file would give them."""

    source = "lines.txt"

    def __init__(self, texts: list[str], *, width: int = 1) -> None:
        self.texts, self.width = texts, width

    def __iter__(self) -> Iterator[Row]:
        return (Row((text,), None, f"lines.txt:{line}") for line, text in enumerate(self.texts, 1))

    def fingerprint(self) -> str:
        return str(hash(tuple(self.texts)))


def deleting(texts: list[str], seed: int = 3) -> WithPositives:
    return WithPositives(Lines(texts), PositiveMaker("delete-one", lambda: one_by_one(delete_one)), seed=seed)


def following(count: int) -> PositiveMaker:
    return PositiveMaker(f"next:{count}", lambda: take_following, ahead=count)


def test_the_first_text_is_the_sentence_itself() -> None:
    texts = make_sentences(30)
    rows = list(deleting(texts))
    assert [row.texts[0] for row in rows] == texts
    assert all(len(row.texts[1].split()) == len(row.texts[0].split()) - 1 for row in rows)
    assert [row.where for row in rows[:2]] == ["lines.txt:1", "lines.txt:2"]


@pytest.mark.parametrize("window", [1, 7, 1000])
def test_a_row_has_one_positive_however_it_is_reached(window: int, monkeypatch) -> None:
    texts = make_sentences(30)
    every = [row.texts for row in deleting(texts)]
    monkeypatch.setattr(module, "WINDOW", window)
    assert [row.texts for row in deleting(texts)] == every
    assert [row.texts for row in deleting(texts).only([2, 3, 29])] == [every[2], every[3], every[29]]
    assert [row.texts for row in deleting(texts, seed=4)] != every


def test_equal_sentences_in_other_rows_have_other_positives() -> None:
    assert len({row.texts[1] for row in deleting(["a b c d e f g h"] * 20)}) > 3


def test_positives_are_made_only_for_the_rows_asked_for() -> None:
    seen: list[str] = []

    def make(places: list[Place]) -> list[str]:
        seen.extend(place.text for place in places)
        return [place.text for place in places]

    texts = make_sentences(50)
    rows = WithPositives(Lines(texts), PositiveMaker("none", lambda: make), seed=0)
    assert rows.count() == 50 and seen == []
    assert len(list(rows.only([1, 40]))) == 2
    assert seen == [texts[1], texts[40]]
    rows.fingerprint()
    assert len(seen) == 2


def test_the_next_sentence_is_the_positive() -> None:
    texts = make_sentences(9)
    rows = [row.texts for row in WithPositives(Lines(texts), following(1), seed=0)]
    assert rows == list(pairwise(texts))


def test_one_of_the_next_three_each_as_likely() -> None:
    texts = [str(number) for number in range(2000)]
    rows = WithPositives(Lines(texts), following(3), seed=0)
    steps = [int(row.texts[1]) - int(row.texts[0]) for row in rows]
    assert len(steps) == rows.count() == 1999
    assert set(steps) == {1, 2, 3}
    assert all(600 < steps.count(step) < 730 for step in (1, 2, 3))
    assert steps[-1] == 1


def test_sentences_of_other_documents_do_not_follow(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a1\na2\n\nb1\n\nc1\nc2\nc3\n")
    (tmp_path / "b.txt").write_text("d1\nd2\n")
    corpus = open_corpus(tmp_path, skip_bad_rows=True)
    pairs = [(row.texts[0], *after) for row, after in with_following(corpus, 2)]
    assert pairs == [
        ("a1", "a2"), ("a2",), ("b1",), ("c1", "c2", "c3"), ("c2", "c3"), ("c3",), ("d1", "d2"), ("d2",)
    ]  # fmt: skip
    rows = WithPositives(corpus, following(1), seed=0)
    assert [row.texts for row in rows] == [("a1", "a2"), ("c1", "c2"), ("c2", "c3"), ("d1", "d2")]
    assert rows.count() == 4 and rows.bad_rows == 2
    assert [row.texts for row in rows.only([1, 3])] == [("c1", "c2"), ("d1", "d2")]


def test_a_quoted_field_of_several_lines_is_followed_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text\n"one\ntwo"\nthree\n')
    rows = WithPositives(open_corpus(tmp_path / "a.csv"), following(1), seed=0)
    assert [row.texts for row in rows] == [("one\ntwo", "three")]


def test_the_fingerprint_is_of_text_method_and_seed() -> None:
    texts = make_sentences(5)
    rows = [
        deleting(texts),
        deleting(texts, seed=4),
        deleting(texts[1:]),
        WithPositives(Lines(texts), following(1), seed=3),
        WithPositives(
            Lines(texts),
            PositiveMaker("delete-one", lambda: one_by_one(delete_one), fingerprint=lambda: "a model"),
            seed=3,
        ),
    ]
    assert len({one.fingerprint() for one in rows}) == 5
    assert rows[0].fingerprint() == deleting(texts).fingerprint()


def test_what_cannot_be_paired_is_refused() -> None:
    with pytest.raises(InputError, match=r"single sentences, and lines\.txt has 2 text columns"):
        WithPositives(Lines(["a"], width=2), following(1), seed=0)
    with pytest.raises(InputError, match="followed by another"):
        list(WithPositives(Lines(["alone"]), following(1), seed=0))


def no_model(name: str, percent: int) -> PositiveMaker:
    raise AssertionError("no masked language model is needed")


def test_row_numbers_and_the_seed_alone_decide() -> None:
    texts = make_sentences(20)

    def made(**fields: Any) -> list[tuple[str, ...]]:
        rows = add_positives(Lines(texts), Run(positive="delete:30", **fields), masked_words=no_model)
        assert isinstance(rows, WithPositives)
        return [row.texts for row in rows]

    assert made() == made(batch_size=2, epochs=3)
    assert made() != made(seed=43)
