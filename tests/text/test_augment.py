"""Augmentations keep and drop what they say, by the seed alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinpass.text.augment import crop, delete, delete_one, hide, like, replace_by_synonym, share, split_word

WORD = st.text("abcXYZ019äßдñहि日本’'-.,!?…«»()€😀", min_size=1, max_size=6)
SENTENCE = st.lists(WORD, min_size=1, max_size=30).map(" ".join)
SEED = st.integers(0, 2**32)
PERCENT = st.integers(1, 99)
QUICK = settings(max_examples=50)
TALES = {"cat": ["puss", "feline"], "sat": ["was seated"], "mat": ["rug"]}


def synonyms(word: str) -> list[str]:
    return TALES.get(word.lower(), [])


def generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def is_subsequence(part: list[str], whole: list[str]) -> bool:
    rest = iter(whole)
    return all(word in rest for word in part)


@QUICK
@given(SENTENCE, PERCENT, SEED)
def test_a_crop_is_one_stretch_of_the_right_length(text: str, percent: int, seed: int) -> None:
    words, kept = text.split(), crop(percent)(text, generator(seed)).split()
    assert len(kept) == max(1, len(words) - share(percent, len(words)))
    assert any(words[start : start + len(kept)] == kept for start in range(len(words)))


@QUICK
@given(SENTENCE, PERCENT, SEED)
def test_a_deletion_drops_exactly_its_share_and_keeps_the_order(text: str, percent: int, seed: int) -> None:
    words, kept = text.split(), delete(percent)(text, generator(seed)).split()
    assert len(kept) == max(1, len(words) - share(percent, len(words)))
    assert is_subsequence(kept, words)


@QUICK
@given(SENTENCE, SEED)
def test_one_word_is_deleted_unless_it_is_the_only_one(text: str, seed: int) -> None:
    words, kept = text.split(), delete_one(text, generator(seed)).split()
    assert len(kept) == max(1, len(words) - 1)
    assert is_subsequence(kept, words)


@QUICK
@given(SENTENCE, PERCENT, SEED)
def test_hidden_words_are_exactly_the_share_and_filling_them_gives_the_sentence_back(
    text: str, percent: int, seed: int
) -> None:
    found = hide(text, generator(seed), percent)
    words = [word for word in text.split() if split_word(word)[1]]
    assert len(found.places) == len(set(found.places)) == share(percent, len(words))
    assert list(found.places) == sorted(found.places)
    assert found.filled(found.originals) == " ".join(text.split())


def test_the_share_is_rounded_half_up_and_none_of_few_words() -> None:
    assert [share(10, count) for count in (1, 4, 5, 14, 15, 30)] == [0, 0, 1, 1, 2, 3]
    assert delete(10)("only four  words here", generator(0)) == "only four  words here"


@pytest.mark.parametrize("operate", [crop(30), delete(30), delete_one, replace_by_synonym(synonyms)])
def test_what_has_nothing_to_change_comes_back_as_it_is(operate) -> None:
    for text in ("", "日本語の文章です", "Alone."):
        assert operate(text, generator(1)) == text


@pytest.mark.parametrize("operate", [crop(30), delete(30), delete_one, replace_by_synonym(synonyms)])
def test_the_seed_decides(operate) -> None:
    text = "the cat sat on the mat and looked at a dog in the sun"
    made = [operate(text, generator(seed)) for seed in range(20)]
    assert made == [operate(text, generator(seed)) for seed in range(20)]
    assert len(set(made)) > 2
    assert all(one and one != text for one in made)


def test_every_stretch_and_every_word_has_its_turn() -> None:
    text = "a b c d e"
    assert {crop(40)(text, generator(seed)) for seed in range(60)} == {"a b c", "b c d", "c d e"}
    assert len({delete_one(text, generator(seed)) for seed in range(60)}) == 5


@QUICK
@given(st.lists(st.sampled_from(["cat", "Cat,", "(SAT)", "mat.", "dog", "ünïcode", "--"]), max_size=9), SEED)
def test_one_word_that_has_synonyms_is_replaced_by_one_of_them(words: list[str], seed: int) -> None:
    text = " ".join(words)
    made = replace_by_synonym(synonyms)(text, generator(seed))
    having = [place for place, word in enumerate(words) if synonyms(split_word(word)[1])]
    possible = {
        " ".join([*words[:place], before + like(core, new) + after, *words[place + 1 :]])
        for place in having
        for before, core, after in [split_word(words[place])]
        for new in synonyms(core)
    }
    assert made in (possible or {text})


def test_case_and_punctuation_stay() -> None:
    assert [like("Cat", "puss"), like("CAT", "puss"), like("cat", "Puss"), like("I", "iodine")] == [
        "Puss",
        "PUSS",
        "Puss",
        "Iodine",
    ]
    assert split_word("(it's),") == ("(", "it's", "),")
    assert split_word("«हिन्दी»") == ("«", "हिन्दी", "»")  # whose last letter is a vowel sign
    assert split_word("...") == ("...", "", "")
    assert split_word("") == ("", "", "")
