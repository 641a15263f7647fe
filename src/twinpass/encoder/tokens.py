"""Text to token ids to padded tensors, each done once."""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

_truncation_lock = threading.Lock()  # a fast tokenizer keeps its truncation setting as state


class Tokens:
    """A tokenizer together with what its model needs to be told."""

    def __init__(self, tokenizer: Any, transformer: Any, *, lowercase: bool = False, prompt: str = "") -> None:
        self.tokenizer = tokenizer
        self.lowercase = lowercase
        self.prompt = prompt
        self.limit = _token_limit(tokenizer, transformer)
        self.pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
        accepted = inspect.signature(transformer.forward).parameters
        self.takes_types = "token_type_ids" in accepted and "token_type_ids" in tokenizer.model_input_names

    def ids(self, texts: Sequence[str], *, max_tokens: int | None) -> tuple[list[list[int]], list[int]]:
        """Return each text's ids, special tokens included, and the places of the texts that were cut."""
        prepared = [self._prepare(text) for text in texts]
        backend = self.tokenizer.backend_tokenizer
        with _truncation_lock:
            backend.no_padding()
            if max_tokens is None:
                backend.no_truncation()
            else:
                backend.enable_truncation(max_tokens, direction=self.tokenizer.truncation_side)
            encodings = backend.encode_batch_fast(prepared)
        # A text without a single token still needs a place to stand.
        ids = [encoding.ids or [self.pad_id] for encoding in encodings]
        return ids, [place for place, encoding in enumerate(encodings) if encoding.overflowing]

    def rules(self) -> str:
        """Return what decides how text becomes ids, as JSON; the limit, which changes by the call, is left out."""
        backend = json.loads(self.tokenizer.backend_tokenizer.to_str())
        return json.dumps({**backend, "truncation": None, "padding": None}, sort_keys=True)

    def save(self, folder: Path) -> None:
        """Write the tokenizer, free of what the last call asked of it."""
        with _truncation_lock:
            self.tokenizer.backend_tokenizer.no_truncation()
            self.tokenizer.save_pretrained(folder)

    def pad(self, ids: Sequence[Sequence[int]], *, device: torch.device) -> dict[str, Tensor]:
        """Return the model's inputs, padded on the right to the longest row."""
        longest = max(len(row) for row in ids)
        table = np.full((len(ids), longest), self.pad_id, dtype=np.int64)
        mask = np.zeros((len(ids), longest), dtype=np.int64)
        for place, row in enumerate(ids):
            table[place, : len(row)] = row
            mask[place, : len(row)] = 1
        features = {"input_ids": torch.from_numpy(table), "attention_mask": torch.from_numpy(mask)}
        if self.takes_types:
            features["token_type_ids"] = torch.zeros_like(features["input_ids"])
        return {name: tensor.to(device) for name, tensor in features.items()}

    def _prepare(self, text: str) -> str:
        text = self.prompt + text
        return text.lower() if self.lowercase else text


def _token_limit(tokenizer: Any, transformer: Any) -> int | None:
    """Return how many tokens fit the model: the tokenizer's word for it, or its position table's."""
    limits = []
    if tokenizer.model_max_length < 1_000_000:  # larger means "not said"
        limits.append(int(tokenizer.model_max_length))
    positions = getattr(transformer.config, "max_position_embeddings", None)
    if positions:
        # RoBERTa's family numbers its positions from after the padding token's place.
        offset = getattr(getattr(transformer, "embeddings", None), "padding_idx", None)
        limits.append(int(positions) - (0 if offset is None else offset + 1))
    return min(limits) if limits else None
