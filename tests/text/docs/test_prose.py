"""From docstrings to sentences: markup goes, abbreviations end nothing, and what is not prose is no sentence."""

from __future__ import annotations

import pytest

from twinpass.text.docs.prose import clean, is_sentence, paragraphs, sentences


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        ("Call :func:`open` or :py:meth:`~io.IOBase.close`.", "Call open or close."),
        ("See `the guide <http://example.org/x>`_ and [the page](http://example.org).", "See the guide and the page."),
        ("A ``str`` is *never* **ever** 2 * 3 * 4.", "A str is never ever 2 * 3 * 4."),
        ("Made of [`~models.BertLayer`] and [`Linear`].", "Made of BertLayer and Linear."),
        ("As shown by others [2]_, it holds.", "As shown by others, it holds."),
        ("Use n_jobs and _private names.", "Use n_jobs and _private names."),
    ],
)
def test_markup_is_removed(marked: str, plain: str) -> None:
    assert clean(marked) == plain


def test_sentences_are_not_cut_at_abbreviations() -> None:
    text = "This is from J. Smith et al. It is good, i.e. Fine. Is it? Yes! (See Fig. 3 for more.) The end"
    assert sentences(text) == [
        "This is from J. Smith et al. It is good, i.e. Fine.",
        "Is it?",
        "Yes!",
        "(See Fig. 3 for more.)",
        "The end",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "TODO: this has to be done at some time.",
        "Too short a.",
        "the first letter is not a capital one.",
        "This has no end and is no summary",
        "The result is x = y + 1 for all of them.",
        "See https://example.org for the rest of it.",
        "Values for appropriate choices are found in.",
        "Dies ist kein englischer Satz, sondern ein deutscher.",
        "Use the foo_bar of baz_qux in quux_corge with grault_garply.",
        "The bracket (is not closed in this sentence.",
        "It is a " + "very " * 60 + "long sentence.",
    ],
)
def test_what_is_not_a_sentence(text: str) -> None:
    assert not is_sentence(text)


def test_paragraphs_know_whether_they_lead() -> None:
    found = paragraphs("First of all.\n\nNotes\n-----\nSecond of all.")
    assert found == [("First of all.", True), ("Second of all.", False)]
