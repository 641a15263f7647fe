"""Texts in windows, each distinct one once; texts to token ids; token ids to padded arrays."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from twinpass.errors import ConfigError, InputError

Item = TypeVar("Item")

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


class Tokens:
    """A tokenizer together with what its model expects as input."""

    def __init__(self, tokenizer: Any, transformer: Any, *, lowercase: bool = False, prompt: str = "") -> None:
        self.tokenizer = tokenizer
        self.lowercase = lowercase
        self.prompt = prompt
        self.limit = _hard_limit(tokenizer, transformer)
        self.pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
        accepted = inspect.signature(transformer.forward).parameters
        self.takes_types = "token_type_ids" in accepted and "token_type_ids" in tokenizer.model_input_names

    def ids(self, texts: Sequence[str], *, max_tokens: int | None) -> tuple[list[list[int]], list[int]]:
        """Return each text's ids, special tokens included, and the positions of the texts that were truncated."""
        prepared = [self.prompt + text for text in texts]
        if self.lowercase:
            prepared = [text.lower() for text in prepared]
        backend = self.tokenizer.backend_tokenizer
        with _truncation_lock:
            backend.no_padding()
            if max_tokens is None:
                backend.no_truncation()
            else:
                backend.enable_truncation(max_tokens, direction=self.tokenizer.truncation_side)
            encodings = backend.encode_batch_fast(prepared)
        # A text without a single token still needs one position.
        ids = [encoding.ids or [self.pad_id] for encoding in encodings]
        return ids, [place for place, encoding in enumerate(encodings) if encoding.overflowing]

    def rules(self) -> str:
        """Return what decides how text becomes ids, as JSON, without the limit, which changes by the call."""
        backend = json.loads(self.tokenizer.backend_tokenizer.to_str())
        return json.dumps({**backend, "truncation": None, "padding": None}, sort_keys=True)

    def marks(self) -> tuple[object, ...]:
        """Return what changes when the rules do, at a fraction of their cost: the vocabulary counts by its size."""
        backend = self.tokenizer.backend_tokenizer
        steps = (backend.normalizer, backend.pre_tokenizer, backend.post_processor)
        return (id(backend), len(self.tokenizer), *(step and step.__getstate__() for step in steps))

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


def _hard_limit(tokenizer: Any, transformer: Any) -> int | None:
    """Return how many tokens fit the model: as its tokenizer or its position table says, whichever is less."""
    limits = []
    if tokenizer.model_max_length < 1_000_000:  # larger means that the tokenizer does not say
        limits.append(int(tokenizer.model_max_length))
    positions = getattr(transformer.config, "max_position_embeddings", None)
    if positions:
        # RoBERTa's family numbers its positions starting after the padding token's.
        offset = getattr(getattr(transformer, "embeddings", None), "padding_idx", None)
        limits.append(int(positions) - (0 if offset is None else offset + 1))
    return min(limits) if limits else None
