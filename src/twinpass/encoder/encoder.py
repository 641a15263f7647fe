"""Encoder: load, encode, compare, save."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Sequence, Sized
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twinpass.encoder.ahead import ahead
from twinpass.encoder.folder import Settings, save_model
from twinpass.encoder.load import DROPOUT_FIELDS, assemble, explained, find_folder, settle, token_limit
from twinpass.encoder.model import Dense, SentenceModel, WeightsSeen
from twinpass.encoder.runtime import check_precision, choose_device, make_runtime
from twinpass.encoder.similarity import Cosines, compare
from twinpass.encoder.tokens import Distinct, Tokens, windows
from twinpass.errors import InputError
from twinpass.progress import Advance, bar, silent
from twinpass.text.batch import cut
from twinpass.vectors import check_finite, unit

Vectors = NDArray[np.float32]
Item = TypeVar("Item")

WINDOW = 65_536  # texts sorted by length together: few enough to hold in memory
STREAM_WINDOW = 4_096  # texts of one block of a stream: under 1 % padding, and a bar moves every few seconds
TOKEN_BUDGET = 4_096  # padded tokens in one forward pass

# Fields of a config that do not change vectors: its history, and what only training or the caller uses.
_NOT_IN_FINGERPRINT = {"_name_or_path", "architectures", "transformers_version", "dtype", "torch_dtype"}
_NOT_IN_FINGERPRINT |= {"output_hidden_states", *DROPOUT_FIELDS}


class Encoded(NamedTuple, Generic[Item]):
    """A block of a stream: items, their vectors (n, dimensions), and the positions of the truncated ones."""

    items: list[Item]
    vectors: Vectors
    truncated: list[int]


class TruncationWarning(UserWarning):
    """Texts were longer than the token limit and were truncated."""


class Encoder:
    """A sentence encoder: texts to vectors, the same way wherever it is loaded."""

    def __init__(
        self,
        model: SentenceModel,
        tokens: Tokens,
        settings: Settings,
        *,
        name: str,
        device: torch.device,
        precision: str = "fp32",
        runtime: str = "torch",
    ) -> None:
        self.model = model.to(device)
        self.tokens = tokens
        self.settings = settings
        self.name = name
        self.device = device
        self.precision = precision
        self.runtime_name = runtime
        self.runtime = make_runtime(runtime, self, precision=precision)
        self._fingerprint: tuple[WeightsSeen, tuple[object, ...], str] | None = None

    def __repr__(self) -> str:
        limit = f"at most {self.max_tokens} tokens" if self.max_tokens else "any number of tokens"
        shape = f"pooler {self.pooler}, {self.dimensions} dimensions, {limit}"
        return f"Encoder({self.name!r}: {shape}, {self.device}, {self.precision}, {self.runtime_name})"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_fingerprint": None}  # it refers to weights of this process

    @classmethod
    def load(
        cls,
        name: str | os.PathLike[str] = "minilm",
        *,
        pooler: str | None = None,
        device: str = "auto",
        precision: str = "fp32",
        runtime: str = "torch",
        max_tokens: int | None = None,
        dropout: float | None = None,
        fresh_head_seed: int | None = None,
        trust_pickle: bool = False,
        trust_remote_code: bool = False,
    ) -> Encoder:
        """Load the built-in model, a folder, or a hub model that the user names.

        `pooler` replaces the folder's pooler, and is needed where the folder names none. With `fresh_head_seed`, for
        training, a pooler with an MLP may start a new one; without it, a missing MLP is an error if it is kept at test
        time.
        """
        place = choose_device(device)
        check_precision(precision, place)
        trusted = {"trust_pickle": trust_pickle, "trust_remote_code": trust_remote_code}
        folder = find_folder(str(name), **trusted)
        with explained(folder):
            settings = settle(folder, name=str(name), pooler=pooler)
            model, tokens = assemble(folder, settings, dropout=dropout, fresh_head_seed=fresh_head_seed, **trusted)
        settings = replace(settings, max_tokens=token_limit(max_tokens, settings.max_tokens, tokens.limit))
        return cls(model, tokens, settings, name=str(name), device=place, precision=precision, runtime=runtime)

    @overload
    def encode(
        self,
        texts: Iterable[str],
        *,
        normalize: bool = False,
        max_tokens: int | None = None,
        progress: bool = False,
        return_truncated: Literal[False] = False,
    ) -> Vectors: ...
    @overload
    def encode(
        self,
        texts: Iterable[str],
        *,
        normalize: bool = False,
        max_tokens: int | None = None,
        progress: bool = False,
        return_truncated: Literal[True],
    ) -> tuple[Vectors, list[int]]: ...
    def encode(
        self,
        texts: Iterable[str],
        *,
        normalize: bool = False,
        max_tokens: int | None = None,
        progress: bool = False,
        return_truncated: bool = False,
    ) -> Vectors | tuple[Vectors, list[int]]:
        """Return one float32 vector per text (n, dimensions), in order; for a single string, its vector.

        Each distinct text is encoded once. An iterator is read in windows and never held whole. With
        `return_truncated`, the positions of the texts that were longer than the limit are returned too.
        """
        limit = self._limit(max_tokens)
        distinct, cut_rows = Distinct(), set[int]()
        blocks: list[Vectors] = [np.empty((0, self.dimensions), dtype=np.float32)]
        given = [texts] if isinstance(texts, str) else texts
        total = len(given) if isinstance(given, Sized) else None
        show = bar if progress and sys.stderr.isatty() else silent
        with show("encoding", total=total) as advance:
            for window in windows(given, WINDOW):
                known, fresh = len(distinct), distinct.add(window)
                ids, cut_places = self.tokens.ids(fresh, max_tokens=limit)
                cut_rows.update(known + place for place in cut_places)
                blocks.append(self.encode_ids(ids, advance=advance))
                place_of = lambda row, known=known: distinct.rows.index(known + row)  # noqa: E731
                check_finite(blocks[-1], fresh, model=self.name, position=place_of)
                advance(len(window) - len(ids))
        truncated = distinct.places(cut_rows)
        self._report_truncation(len(truncated), len(distinct.rows), limit)
        vectors = np.concatenate(blocks)
        if len(distinct) < len(distinct.rows):
            vectors = vectors[np.asarray(distinct.rows)]
        vectors = unit(vectors) if normalize else vectors
        vectors = vectors[0] if isinstance(texts, str) else vectors
        return (vectors, truncated) if return_truncated else vectors

    def encode_stream(
        self,
        items: Iterable[Item],
        *,
        key: Callable[[Item], str] | None = None,
        normalize: bool = False,
        max_tokens: int | None = None,
        window: int = STREAM_WINDOW,
        read_ahead: bool = False,
        advance: Advance = lambda count: None,
    ) -> Generator[Encoded[Item], None, None]:
        """Yield consecutive blocks of items with their vectors, in order, in constant memory.

        Items are texts, or anything from which `key` takes the text, such as a row with an id beside it. With
        `read_ahead`, a thread reads and tokenises the next block while this one is computed; close the stream to end
        it early. `advance` is called with the number of texts of each batch that is done.
        """
        limit = self._limit(max_tokens)

        def tokenize(block: list[Item]) -> tuple[list[Item], list[Any], Distinct, list[list[int]], list[int]]:
            texts: list[Any] = block if key is None else [key(item) for item in block]
            distinct = Distinct()
            return block, texts, distinct, *self.tokens.ids(distinct.add(texts), max_tokens=limit)

        truncated = count = 0
        tokenized = map(tokenize, windows(items, window, key))
        with closing(ahead(tokenized)) if read_ahead else nullcontext(tokenized) as blocks:
            for block, texts, distinct, ids, cut_rows in blocks:
                vectors = self.encode_ids(ids, advance=advance)
                vectors = vectors[np.asarray(distinct.rows)] if len(ids) < len(block) else vectors
                check_finite(vectors, texts, model=self.name, position=count.__add__)
                advance(len(block) - len(ids))
                cut_places = distinct.places({*cut_rows})
                truncated, count = truncated + len(cut_places), count + len(block)
                yield Encoded(block, unit(vectors) if normalize else vectors, cut_places)
        self._report_truncation(truncated, count, limit)

    def similarity(
        self,
        a: str | Sequence[str],
        b: str | Sequence[str] | None = None,
        *,
        pairwise: bool = False,
        max_tokens: int | None = None,
    ) -> Cosines:
        """Return the cosines of two texts, or of each text of `a` with each of `b` (without `b`, of `a`).

        With `pairwise`, the first text of `a` is compared with the first of `b`, and so on.
        """
        return compare(partial(self.encode, max_tokens=max_tokens), a, b, pairwise=pairwise)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the model, whole or not at all, so that sentence-transformers and transformers load it too."""
        save_model(Path(folder), self.model, self.tokens, self.settings)

    def tokenize(self, texts: Sequence[str], *, max_tokens: int | None = None) -> list[list[int]]:
        """Return each text's token ids, special tokens included, truncated to the limit."""
        if isinstance(texts, str):
            raise InputError("expected texts, got a single string. Pass a list of one.")
        return self.tokens.ids(texts, max_tokens=self._limit(max_tokens))[0]

    def encode_ids(
        self, ids: Sequence[Sequence[int]], *, token_budget: int = TOKEN_BUDGET, advance: Advance = lambda count: None
    ) -> Vectors:
        """Return a vector for each row of token ids, as `tokenize` returns them, in batches of near-equal length."""
        batches = cut(np.fromiter(map(len, ids), np.int64, len(ids)), token_budget=token_budget)
        vectors = np.empty((len(ids), self.dimensions), dtype=np.float32)
        with self.runtime.session() as forward:
            for batch in batches:
                vectors[batch] = forward(self.tokens.arrays([ids[place] for place in batch]))
                advance(len(batch))
        return vectors

    def pad(self, ids: Sequence[Sequence[int]]) -> dict[str, Tensor]:
        """Return the model's inputs for rows of token ids, on the model's device."""
        return {name: torch.from_numpy(array).to(self.device) for name, array in self.tokens.arrays(ids).items()}

    @property
    def tokenizer(self) -> Any:
        """The tokenizer, a transformers object."""
        return self.tokens.tokenizer

    @property
    def pooler(self) -> str:
        """The name of the pooler."""
        return self.settings.pooler

    @property
    def max_tokens(self) -> int | None:
        """The maximum number of tokens read of a text."""
        return self.settings.max_tokens

    @property
    def dimensions(self) -> int:
        """The length of a vector."""
        mapped = [layer.linear.out_features for layer in self.model.layers.children() if isinstance(layer, Dense)]
        if mapped:
            return mapped[-1]
        transformer: Any = self.model.transformer
        return int(transformer.config.hidden_size) * len(self.pooler.split("+"))

    @property
    def fingerprint(self) -> str:
        """A SHA-256 over weights and settings: equal fingerprints give equal vectors.

        It is computed once and again only after a change of weights, layers, settings or tokenizer.
        """
        settings = replace(self.settings, transformer="", head=None, layers=())
        transformer: Any = self.model.transformer
        config = {k: v for k, v in transformer.config.to_dict().items() if k not in _NOT_IN_FINGERPRINT}
        described = json.dumps(config, sort_keys=True, default=str)
        marks = (settings, repr(self.model.layers), described, self.tokens.marks())
        kept = self._fingerprint
        if kept is not None and kept[1] == marks and kept[0].unchanged(self.model):
            return kept[2]
        seen = WeightsSeen(self.model)
        digest = hashlib.sha256(repr((settings, self.model.layers, described, self.tokens.rules())).encode())
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        self._fingerprint = (seen, marks, digest.hexdigest())
        return digest.hexdigest()

    def _limit(self, max_tokens: int | None) -> int | None:
        return token_limit(max_tokens, self.settings.max_tokens, self.tokens.limit)

    def _report_truncation(self, truncated: int, texts: int, limit: int | None) -> None:
        if truncated:
            message = f"{truncated:,} of {texts:,} texts are longer than {limit} tokens"
            kept = "end" if self.tokenizer.truncation_side == "left" else "beginning"
            warnings.warn(f"{message}; only their {kept} was encoded.", TruncationWarning, stacklevel=3)
