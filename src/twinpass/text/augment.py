"""Augmentations of Table 1: what a random discrete operator g makes of a sentence's words.

A word is what is between spaces. Each operator takes a sentence and a generator. An operator that has nothing to
change returns the sentence as it is; no operator returns an empty one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple
from unicodedata import category

from numpy.random import Generator

Operator = Callable[[str, Generator], str]
Synonyms = Callable[[str], Sequence[str]]


def crop(percent: int) -> Operator:
    """Keep a random span of (100 - percent) % of the words, at least one."""

    def cropped(text: str, random: Generator) -> str:
        words = text.split()
        kept = max(1, len(words) - share(percent, len(words)))
        if kept >= len(words):
            return text
        start = int(random.integers(len(words) - kept + 1))
        return " ".join(words[start : start + kept])

    return cropped


def delete(percent: int) -> Operator:
    """Delete exactly percent % of the words, chosen at random; one always stays."""
    return lambda text, random: _without(text, random, lambda words: share(percent, words))


def delete_one(text: str, random: Generator) -> str:
    """Delete one word, unless it is the only one."""
    return _without(text, random, lambda words: 1)


def replace_by_synonym(synonyms: Synonyms) -> Operator:
    """Replace one random word that has a synonym by one of its synonyms."""

    def replaced(text: str, random: Generator) -> str:
        words = text.split()
        # In random order: words are looked up only until one has a synonym.
        for place in random.permutation(len(words)):
            before, core, after = split_word(words[place])
            if core and (found := sorted(synonyms(core))):
                synonym = found[int(random.integers(len(found)))]
                words[place] = before + like(core, synonym) + after
                return " ".join(words)
        return text

    return replaced


class Hidden(NamedTuple):
    """A sentence with the words at some places masked, for a masked language model to guess."""

    words: tuple[str, ...]
    places: tuple[int, ...]

    @property
    def originals(self) -> list[str]:
        """The masked words, without their punctuation."""
        return [split_word(self.words[place])[1] for place in self.places]

    def filled(self, new: Sequence[str]) -> str:
        """Return the sentence with other words (or mask tokens) in the masked places, punctuation kept."""
        words = list(self.words)
        for place, word in zip(self.places, new, strict=True):
            before, _, after = split_word(words[place])
            words[place] = before + word + after
        return " ".join(words)


def hide(text: str, random: Generator, percent: int) -> Hidden:
    """Mask exactly percent % of a sentence's words, chosen at random; punctuation alone is not a word."""
    words = tuple(text.split())
    candidates = [place for place, word in enumerate(words) if split_word(word)[1]]
    chosen = random.permutation(len(candidates))[: share(percent, len(candidates))]
    return Hidden(words, tuple(sorted(candidates[place] for place in chosen)))


def share(percent: int, count: int) -> int:
    """Return percent % of a number of words, rounded half up; 0 for few words."""
    return (percent * count + 50) // 100


def split_word(word: str) -> tuple[str, str, str]:
    """Split a word into the punctuation (and symbols) before it, its core and the punctuation after it."""
    inside = [place for place, letter in enumerate(word) if category(letter)[0] not in "PS"]
    if not inside:
        return word, "", ""
    start, end = inside[0], inside[-1] + 1
    return word[:start], word[start:end], word[end:]


def like(original: str, word: str) -> str:
    """Give a word the case of the one it replaces: all capitals, a capital first, or its own."""
    if len(original) > 1 and original.isupper():
        return word.upper()
    return word[:1].upper() + word[1:] if original[:1].isupper() else word


def _without(text: str, random: Generator, count: Callable[[int], int]) -> str:
    words = text.split()
    dropped = min(count(len(words)), len(words) - 1)
    if dropped <= 0:
        return text
    kept = sorted(random.permutation(len(words))[dropped:].tolist())
    return " ".join(words[place] for place in kept)
