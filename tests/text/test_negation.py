"""English sentences are negated by rules."""

from __future__ import annotations

import pytest

from twinpass.text.negation import negate


@pytest.mark.parametrize(
    ("sentence", "negation"),
    [
        # A negation is taken out.
        ("It is not new.", "It is new."),
        ("Not everyone came.", "everyone came."),
        ("They never came back.", "They came back."),
        ("She can't swim.", "She can swim."),
        ("Won't it rain?", "Will it rain?"),
        ("He isn’t here.", "He is here."),
        ("You cannot go.", "You can go."),
        # A "not" is put in.
        ("It was new.", "It was not new."),
        ("The city, which is old, has been rebuilt.", "The city, which is not old, has been rebuilt."),
        ("He has been here.", "He has not been here."),
        ("They had ended it.", "They had not ended it."),
        ("They must, of course, go.", "They must not, of course, go."),
        # Full verbs.
        ("He has a car.", "He does not have a car."),
        ("They had three houses.", "They did not have three houses."),
        ("In 1066 he became king.", "In 1066 he did not become king."),
        ("The book describes a war.", "The book does not describe a war."),
        ("He lived in Rome.", "He did not live in Rome."),
        ("She goes home.", "She does not go home."),
        # Whatever else.
        ("A red house by the sea", "It is not true that A red house by the sea"),
        ("Ein Satz.", "It is not true that Ein Satz."),
        ("", "It is not true that "),
    ],
)
def test_the_rules(sentence: str, negation: str) -> None:
    assert negate(sentence) == negation
