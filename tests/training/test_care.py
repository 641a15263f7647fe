"""Leaks are found however a data set splits its words; overlap is the F1 between bags of words."""

from __future__ import annotations

import pytest

from twinpass.text.corpus import open_corpus
from twinpass.training.care import leakage, lexical_overlap, overlap_f1
from twinpass.training.data import InMemory


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
