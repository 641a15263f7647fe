"""Texts in windows, each distinct one once; texts to token ids; token ids to padded arrays."""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from twinpass.encoder.template import make_frame
from twinpass.errors import ConfigError, InputError

Item = TypeVar("Item")

PART = 16  # characters per token that a long text is cut to: enough tokens in nearly every text
MOST_CHARACTERS = 4_096  # characters per token that are read at most: no text, only noise, has tokens as long
MARGIN = 64  # characters before a cut that may be tokenised differently without what follows

_truncation_lock = threading.Lock()  # a fast tokenizer keeps its truncation setting as state


def windows(items: Iterable[Item], size: int, key: Callable[[Item], str] | None = None) -> Iterator[list[Item]]:
    """Cut items into lists of at most `size`; each is a text, or has one that `key` returns."""
    if size < 1:
        raise ConfigError(f"a window holds at least one text; got {size}.")
    given: object = items
    if isinstance(given, (str, bytes, bytearray)) or not isinstance(given, Iterable):
        raise InputError(f"expected texts, got {type(given).__name__}. Pass a list or an iterator of strings.")
    stream = enumerate(items)
    while window := list(itertools.islice(stream, size)):
        for place, item in window:
            text: object = item if key is None else key(item)
            if not isinstance(text, str):
                raise InputError(f"expected a string as text {place}, got {type(text).__name__}: {text!r:.60}.")
        yield [item for _, item in window]


class Distinct:
    """Numbers distinct texts in order of appearance; `rows` has that number for every text added so far."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self._row_of: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._row_of)

    def add(self, window: Sequence[str]) -> list[str]:
        """Add every text of a window and return those that are new."""
        fresh = []
        for text in window:
            # A digest, so that an iterator's texts need not be kept to recognise them.
            try:
                key = hashlib.blake2b(text.encode(), digest_size=16).digest()
            except UnicodeEncodeError as error:
                raise InputError(
                    f"text {len(self.rows)} holds half a character ({text[error.start]!r} at position {error.start}), "
                    "which no encoding can write. It was decoded wrongly; read it again as UTF-8."
                ) from error
            if key not in self._row_of:
                self._row_of[key] = len(self._row_of)
                fresh.append(text)
            self.rows.append(self._row_of[key])
        return fresh

    def places(self, rows: set[int]) -> list[int]:
        """Return the positions, among all texts added, of those with one of these numbers."""
        return [place for place, row in enumerate(self.rows) if row in rows] if rows else []


@dataclass
class PlainTokenizer:
    """What `Tokens` uses of a tokenizer of transformers, over the library tokenizers alone."""

    backend_tokenizer: Any
    truncation_side: str


class Tokens:
    """A tokenizer together with what its model expects as input."""

    def __init__(
        self,
        tokenizer: Any,
        *,
        pad_id: int,
        takes_types: bool,
        limit: int | None,
        lowercase: bool = False,
        prompt: str = "",
        template: str = "",
    ) -> None:
        self.tokenizer = tokenizer  # a fast one of transformers, or a PlainTokenizer
        self.pad_id = pad_id
        self.takes_types = takes_types  # whether the model's inputs include token_type_ids
        self.limit = limit  # the most tokens that the model can read
        self.lowercase = lowercase
        self.prompt = prompt
        self.template = template  # resolved: with the model's own mask token
        self.frame = make_frame(tokenizer.backend_tokenizer, template) if template else None

    def ids(
        self, texts: Sequence[str], *, max_tokens: int | None, side: str | None = None
    ) -> tuple[list[list[int]], list[int]]:
        """Return each text's ids, special tokens included, and the positions of the texts that were truncated.

        `side` is where they lose tokens, left or right; by default as the tokenizer says.
        """
        side = side or self.tokenizer.truncation_side
        prepared = [self.prompt + text for text in texts]
        if self.lowercase:
            prepared = [text.lower() for text in prepared]
        backend, shortened = self.tokenizer.backend_tokenizer, set[int]()
        if self.frame is not None and max_tokens is not None:
            max_tokens -= self._room(max_tokens)
        with _truncation_lock:
            backend.no_padding()
            backend.no_truncation()
            if max_tokens is not None:
                shortened = self._shorten(prepared, max_tokens, left=side == "left")
                backend.enable_truncation(max_tokens, direction=side)
            encodings = backend.encode_batch_fast(prepared, add_special_tokens=self.frame is None)
        # A text without a single token still needs one position.
        ids = [encoding.ids or [self.pad_id] for encoding in encodings]
        if self.frame is not None:
            ids = [[*self.frame.before, *encoding.ids, *self.frame.after] for encoding in encodings]
        return ids, [place for place, each in enumerate(encodings) if each.overflowing or place in shortened]

    def _room(self, max_tokens: int) -> int:
        """Return how many tokens the template takes; at least one must be left for the text."""
        taken = len(self.frame) if self.frame is not None else 0
        if taken >= max_tokens:
            raise ConfigError(
                f"max_tokens is {max_tokens}, and the template {self.template!r} alone has {taken} tokens, special "
                f"ones included. Use {taken + 1} or more."
            )
        return taken

    def _shorten(self, texts: list[str], max_tokens: int, *, left: bool) -> set[int]:
        """Cut long texts to a part with the same ids, in place; return the positions of those that were cut.

        A part has the same ids if it has enough tokens away from the cut: not in the word that was cut, nor so near
        that what follows could count. If not, a longer part is tried, up to a length of which no more is read.
        """
        size, most = PART * max_tokens, MOST_CHARACTERS * max_tokens
        pending = [place for place, text in enumerate(texts) if len(text) > 2 * size]
        shortened = set[int]()
        while pending:
            parts = [texts[place][-size:] if left else texts[place][:size] for place in pending]
            encodings = self.tokenizer.backend_tokenizer.encode_batch(parts, add_special_tokens=False)
            for place, part, encoding in zip(pending, parts, encodings, strict=True):
                if size == most or _tokens_away(encoding, len(part), left=left) >= max_tokens:
                    texts[place] = part
                    shortened.add(place)
            size = min(4 * size, most)
            pending = [place for place in pending if place not in shortened and len(texts[place]) > size]
        return shortened

    def rules(self) -> dict[str, Any]:
        """Return what decides how text becomes ids, without the limit, which changes by the call."""
        return {**json.loads(self.tokenizer.backend_tokenizer.to_str()), "truncation": None, "padding": None}

    def marks(self) -> tuple[object, ...]:
        """Return what changes when the rules do, at a fraction of their cost: the vocabulary counts by its size."""
        backend = self.tokenizer.backend_tokenizer
        steps = (backend.normalizer, backend.pre_tokenizer, backend.post_processor)
        return (id(backend), backend.get_vocab_size(), *(step and step.__getstate__() for step in steps))

    def save(self, folder: Path) -> None:
        """Write the tokenizer without the limit of the last call."""
        with _truncation_lock:
            self.tokenizer.backend_tokenizer.no_truncation()
            self.tokenizer.save_pretrained(folder)

    def arrays(self, ids: Sequence[Sequence[int]]) -> dict[str, NDArray[np.int64]]:
        """Return the model's inputs (n, tokens), padded on the right to the longest row."""
        longest = max(len(row) for row in ids)
        table = np.full((len(ids), longest), self.pad_id, dtype=np.int64)
        mask = np.zeros((len(ids), longest), dtype=np.int64)
        for place, row in enumerate(ids):
            table[place, : len(row)] = row
            mask[place, : len(row)] = 1
        types = {"token_type_ids": np.zeros_like(table)} if self.takes_types else {}
        return {"input_ids": table, "attention_mask": mask, **types}


def _tokens_away(encoding: Any, length: int, *, left: bool) -> int:
    """Count the tokens that lie well away from where a text was cut: at its start (`left`) or at its end."""
    words, offsets = encoding.word_ids, encoding.offsets
    if not words:
        return 0
    cut_word = words[0] if left else words[-1]
    away = (start >= MARGIN if left else end <= length - MARGIN for start, end in offsets)
    return sum(far and word != cut_word for far, word in zip(away, words, strict=True))
