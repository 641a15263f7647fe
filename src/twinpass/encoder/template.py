"""Templates around a text (Jiang et al., 2022): the state of the mask token is the text's vector. No torch here.

A template is text with two places, `[X]` for the sentence and `[MASK]` for the mask token, such as

    This sentence : "[X]" means [MASK] .

It is tokenised once, without the sentence; a sentence's ids are put between the two parts. So the template is never
truncated, and the mask token stands at a fixed place, counted from the end of the row (or from its start, where the
mask token comes before the sentence).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from twinpass.errors import ConfigError, ModelError

TEXT, MASK = "[X]", "[MASK]"
POOLER = "mask"  # the pooler that reads the mask token
USUAL = f'This sentence : "{TEXT}" means {MASK} .'  # the paper's, where none is named


@dataclass(frozen=True)
class Frame:
    """The ids before and after a text, special tokens included."""

    before: tuple[int, ...]
    after: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.before) + len(self.after)

    def place(self, mask_id: int) -> int:
        """Return where the mask token stands in a row: from the start, or from the end if it is negative."""
        if mask_id in self.before:
            return self.before.index(mask_id)
        return self.after.index(mask_id) - len(self.after)


def resolve(template: str, mask_token: str | None, model: str) -> str:
    """Return a template with the model's own mask token in its place, or raise if that cannot be."""
    if mask_token is None:
        raise ModelError(
            f"{model} has a tokenizer without a mask token, so the pooler {POOLER!r} has nothing to read. Choose "
            "another pooler."
        )
    resolved = template.replace(MASK, mask_token)
    check(resolved, mask_token)
    return resolved


def check(template: str, mask_token: str = MASK) -> None:
    """Raise ConfigError unless a template has one place for the text and one for the mask token."""
    if template.count(TEXT) != 1 or template.count(mask_token) != 1:
        raise ConfigError(
            f"a template has {TEXT} once, for the text, and {mask_token} once, for its vector, as in {USUAL!r}; got "
            f"{template!r:.80}."
        )


def make_frame(backend: Any, template: str) -> Frame:
    """Tokenise a resolved template around the place of the text; `backend` is a tokenizer of the library tokenizers."""
    before, after = template.split(TEXT)
    backend.no_truncation()
    backend.no_padding()
    first, last = _special(backend, before or after)

    def bare(part: str) -> tuple[int, ...]:
        return tuple(backend.encode(part, add_special_tokens=False).ids)

    return Frame((*first, *bare(before)), (*bare(after), *last))


def _special(backend: Any, text: str) -> tuple[list[int], list[int]]:
    """Return the special ids that a tokenizer puts before and after a text."""
    whole, bare = backend.encode(text).ids, backend.encode(text, add_special_tokens=False).ids
    start = next(place for place in range(len(whole)) if whole[place : place + len(bare)] == bare)
    return whole[:start], whole[start + len(bare) :]
