"""Tokenised data gives every text back, batches visit every row once an epoch, and leaks and overlap are found."""

from __future__ import annotations

import numpy as np
import pytest
from tests.training.tiny_runs import make_triplets

from twinpass.errors import InputError
from twinpass.text.corpus import open_corpus
from twinpass.training import data as module
from twinpass.training.batches import Batches
from twinpass.training.data import InMemory, find_rows, leakage, lexical_overlap, overlap_f1, read_data, text_hash


def letters(texts: list[str]) -> list[list[int]]:
    return [[ord(letter) for letter in text] for text in texts]


@pytest.mark.parametrize("window", [1, 3, 1000])
def test_every_text_keeps_its_ids(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WINDOW", window)
    rows = [*make_triplets(7), ("same", "same", "")]
    data = read_data(InMemory(rows), letters)
    assert (len(data), data.width) == (8, 3)
    for number, row in enumerate(rows):
        for column, text in zip(data.columns(np.array([number])), row, strict=True):
            assert data.ids(int(column[0])).tolist() == letters([text])[0]
    assert data.keys[7, 0] == data.keys[7, 1] == text_hash("same")


def test_only_the_rows_that_few_steps_see_are_tokenised() -> None:
    rows = make_triplets(50)
    batches = Batches(50, 4, seed=3, needs_negatives=False)
    held = batches.visited(3)
    asked: list[str] = []
    data = read_data(InMemory(rows), lambda texts: asked.extend(texts) or letters(texts), total=50, held=held)
    assert (len(data), len(asked)) == (50, 3 * 3 * 4)
    for _, batch in batches.since(0, until=3):
        columns, keys = data.columns(batch), data.key_columns(batch)
        for place, number in enumerate(batch):
            assert [data.ids(int(column[place])).tolist() for column in columns] == letters(list(rows[number]))
            assert [int(key[place]) for key in keys] == [text_hash(text) for text in rows[number]]
    assert batches.visited(batches.per_epoch) is None


def test_a_text_is_tokenised_once_per_window() -> None:
    asked: list[str] = []
    read_data(InMemory(["a", "b", "a", "a"]), lambda texts: asked.extend(texts) or letters(texts))
    assert asked == ["a", "b"]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (["one"], "one row"),
        (["same", "same", "same"], "hold the same text"),
        ([("a", "same"), ("b", "same")], "hold the same text"),
        ([], "no text"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(rows: list[str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_data(InMemory(rows), letters)


def test_rows_of_different_width_are_refused() -> None:
    with pytest.raises(InputError, match="row 1 has 2 texts and row 0 has 1"):
        InMemory(["a", ("b", "c")])  # type: ignore[list-item]


@pytest.mark.parametrize(("rows", "size"), [(10, 3), (10, 5), (9, 4), (5, 64), (2, 2), (3, 2)])
def test_an_epoch_visits_every_row_once_and_leaves_none_alone(rows: int, size: int) -> None:
    batches = Batches(rows, size, seed=1, needs_negatives=True)
    epoch = [batch for _, batch in batches.since(0, until=batches.per_epoch)]
    assert sorted(np.concatenate(epoch).tolist()) == list(range(rows))
    assert min(map(len, epoch)) >= 2


def test_a_lone_last_row_is_fine_where_it_has_a_hard_negative() -> None:
    assert Batches(9, 4, seed=1, needs_negatives=False).per_epoch == 3


def test_a_step_takes_the_same_rows_wherever_one_starts() -> None:
    batches = Batches(10, 3, seed=5, needs_negatives=True)
    whole = {step: batch.tolist() for step, batch in batches.since(0, until=11)}
    assert list(whole) == list(range(11))
    for start in range(11):
        assert {step: batch.tolist() for step, batch in batches.since(start, until=11)} == {
            step: batch for step, batch in whole.items() if step >= start
        }


def test_epochs_and_seeds_differ_in_order() -> None:
    first, second = (batch.tolist() for _, batch in Batches(20, 20, seed=1, needs_negatives=True).since(0, until=2))
    (_, other), *_ = Batches(20, 20, seed=2, needs_negatives=True).since(0, until=1)
    assert first != second
    assert first != other.tolist()


def test_rows_are_found_again_by_number() -> None:
    assert find_rows(InMemory([("a", "b"), ("c", "d"), ("e", "f")]), [2, 0]) == ["row 0: a | b", "row 2: e | f"]


def test_a_leak_is_found_through_case_spaces_and_punctuation() -> None:
    training = InMemory(["It can't be so.", "Something else entirely", "A  MAN is playing, a flute!"])
    evaluation = InMemory(
        [("it ca n't be so .", "a man is playing a flute"), ("unseen", "it can't be so"), ("..", "!")]
    )
    found = leakage(training, evaluation)
    assert (found.sentences, found.of_sentences) == (2, 3)
    assert (found.rows, found.of_rows) == (1, 3)
    assert found.examples == ("row 0: It can't be so.", "row 2: A  MAN is playing, a flute!")


def test_no_leak_is_no_leak() -> None:
    found = leakage(InMemory(["a", "b"]), InMemory([("c", "d")]))
    assert (found.sentences, found.rows, found.examples) == (0, 0, ())


@pytest.mark.parametrize(
    ("left", "right", "f1"),
    [("a b c", "a b d", 2 / 3), ("A, b", "a b", 1.0), ("a a b", "a c", 0.4), ("a", "b", 0.0), ("", "", 0.0)],
)
def test_overlap_is_the_f1_of_bags(left: str, right: str, f1: float) -> None:
    assert overlap_f1(left, right) == pytest.approx(f1)


def test_overlap_of_pairs_is_their_mean() -> None:
    assert lexical_overlap([("a", "a"), ("a", "b", "a")]) == 0.5


def test_the_known_overlap_of_captions_and_sts15_is_found(shared) -> None:
    """The data's own notes: about 650 STS15 pairs have both sentences among the Flickr30k captions."""
    captions = open_corpus(str(shared / "data/flickr30k_captions.tsv.gz"), columns=[f"cap{n}" for n in range(1, 6)])
    folder = shared / "data/senteval/downstream/STS/STS15-en-test"
    lines = (folder / "STS.input.images.txt").read_text(encoding="utf-8").splitlines()
    golds = (folder / "STS.gs.images.txt").read_text(encoding="utf-8").splitlines()
    scored = [tuple(line.split("\t")[:2]) for line, gold in zip(lines, golds, strict=True) if gold.strip()]
    assert 630 <= leakage(captions, InMemory(scored)).rows <= 670


def test_lexical_overlap_is_taken_over_a_random_sample(monkeypatch):
    """A file sorted by source would be judged by its first source alone."""
    monkeypatch.setattr("twinpass.training.data.OVERLAP_ROWS", 200)
    pairs = [(f"a b c {n}", f"a b c {n}") for n in range(1000)] + [(f"x {n}", f"y -{n} z") for n in range(1000)]
    found, again = (read_data(InMemory(pairs), lambda texts: [[1]] * len(texts)).overlap for _ in range(2))
    assert found == again
    assert abs(found - lexical_overlap(pairs)) < 0.15 < 1 - lexical_overlap(pairs)
