"""Keys of texts."""

from __future__ import annotations

from twinpass.text.rows import text_key


def test_a_key_is_of_letters_and_digits_alone() -> None:
    assert text_key("Can't stop, U.S.!") == text_key("can ' t  stop us") != text_key("can stop us")
    assert text_key("\ufb01sh") == text_key("FISH")
    assert text_key("?! ...") == b"" and text_key("1") != text_key("2")
