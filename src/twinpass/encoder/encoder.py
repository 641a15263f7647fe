"""Encoder: load, encode, save."""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from twinpass.encoder import foreign
from twinpass.encoder.loading import find_folder, load_tokenizer, load_transformer
from twinpass.encoder.model import Dense, SentenceModel, fresh_head
from twinpass.encoder.pooling import find_pooler
from twinpass.encoder.progress import Progress
from twinpass.encoder.runtime import Forward, check_precision, choose_device, make_runtime
from twinpass.encoder.settings import Settings, need_pooler, read_settings, write_settings
from twinpass.encoder.tokens import Tokens
from twinpass.errors import ConfigError, InputError, ModelError
from twinpass.files import explaining, writing_folder
from twinpass.text.batch import cut

Vectors = NDArray[np.float32]

WINDOW = 65_536  # texts looked at together: enough to sort by length, little enough to hold
TOKEN_BUDGET = 4_096  # padded tokens in one forward pass


class TruncationWarning(UserWarning):
    """Texts were longer than the model reads."""


class Encoder:
    """A sentence encoder: texts to vectors, the same way wherever it is loaded."""

    def __init__(
        self, model: SentenceModel, tokens: Tokens, settings: Settings, *, name: str, device: torch.device,
        precision: str = "fp32", runtime: str = "torch",
    ) -> None:  # fmt: skip
        check_precision(precision, device)
        self.model = model.to(device)
        self.tokens = tokens
        self.settings = settings
        self.name = name
        self.device = device
        self.runtime = make_runtime(runtime, model, device=device, precision=precision, encoder=self)
        self.truncated = 0

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

        `pooler` overrides what the folder says and is needed where it says nothing. `fresh_head_seed` lets a
        pooler with an MLP start one from a seed, for training; without it a missing MLP is an error.
        """
        place = choose_device(device)
        check_precision(precision, place)
        folder = find_folder(str(name), trust_pickle=trust_pickle)
        settings = read_settings(folder) or foreign.read_foreign_settings(folder)
        if pooler is not None:
            settings = _with_pooler(settings, pooler)
        if settings is None:
            raise need_pooler(str(name))
        transformer = load_transformer(
            folder, dropout=dropout, trust_pickle=trust_pickle, trust_remote_code=trust_remote_code
        )
        _check_pooler_fits(settings.pooler, transformer, str(name))
        head = _load_head(folder, settings, transformer.config, fresh_head_seed)
        layers = nn.Sequential(
            *(foreign.read_layer(folder, layer, trust_pickle=trust_pickle) for layer in settings.layers)
        )
        tokens = Tokens(
            load_tokenizer(folder, trust_remote_code=trust_remote_code),
            transformer,
            lowercase=settings.lowercase,
            prompt=settings.prompt,
        )
        settings = replace(settings, max_tokens=_token_limit(max_tokens, settings.max_tokens, tokens.limit))
        model = SentenceModel(transformer, pooler=settings.pooler, head=head, layers=layers).eval()
        return cls(
            model, tokens, settings, name=str(name), device=place, precision=precision, runtime=runtime
        )

    def encode(
        self,
        texts: Iterable[str],
        *,
        normalize: bool = False,
        max_tokens: int | None = None,
        progress: bool = False,
    ) -> Vectors:
        """Return one float32 vector per text (n, dimensions), in order; a single string gives a single vector.

        Each distinct text is encoded once. An iterator is consumed in windows and never held whole.
        """
        if isinstance(texts, str):
            vector: Vectors = self.encode([texts], normalize=normalize, max_tokens=max_tokens)[0]
            return vector
        limit = _token_limit(max_tokens, self.settings.max_tokens, self.tokens.limit)
        seen: dict[bytes, int] = {}
        blocks: list[Vectors] = [np.empty((0, self.dimensions), dtype=np.float32)]
        rows: list[int] = []
        self.truncated = 0
        with Progress("encoding", total=_length(texts), shown=progress) as bar:
            for window in _windows(texts, WINDOW):
                fresh = _place_texts(window, seen, rows)
                blocks.append(self._encode_distinct(fresh, limit, bar))
                bar.advance(len(window) - len(fresh))
        self._report_truncation(len(seen), limit)
        vectors = np.concatenate(blocks)
        if len(seen) < len(rows):
            vectors = vectors[np.asarray(rows)]
        return unit(vectors) if normalize else vectors

    def encode_stream(
        self,
        texts: Iterable[str],
        *,
        normalize: bool = False,
        max_tokens: int | None = None,
        window: int = 16_384,
    ) -> Iterator[Vectors]:
        """Yield the vectors of consecutive blocks of texts, in order, in constant memory."""
        truncated = count = 0
        for block in _windows(texts, window):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TruncationWarning)
                vectors = self.encode(block, normalize=normalize, max_tokens=max_tokens)
            truncated, count = truncated + self.truncated, count + len(block)
            yield vectors
        self.truncated = truncated
        self._report_truncation(count, _token_limit(max_tokens, self.settings.max_tokens, self.tokens.limit))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the model so that twinpass, transformers and sentence-transformers load it; whole or not at all."""
        target = Path(folder)
        if not target.exists():
            with writing_folder(target) as aside:
                self._write(aside)
            return
        with explaining(target):
            aside = Path(tempfile.mkdtemp(prefix=".saving.", dir=target))
            try:
                self._write(aside)
                _move_into(aside, target)
            finally:
                shutil.rmtree(aside, ignore_errors=True)

    def tokenize(self, texts: Sequence[str], *, max_tokens: int | None = None) -> list[list[int]]:
        """Return each text's token ids, special tokens included, cut to the limit."""
        limit = _token_limit(max_tokens, self.settings.max_tokens, self.tokens.limit)
        return self.tokens.ids(texts, max_tokens=limit)[0]

    def pad(self, ids: Sequence[Sequence[int]]) -> dict[str, Tensor]:
        """Return the model's inputs for rows of token ids, on the model's device."""
        return self.tokens.pad(ids, device=self.device)

    @property
    def tokenizer(self) -> Any:
        """The tokenizer, as transformers knows it."""
        return self.tokens.tokenizer

    @property
    def pooler(self) -> str:
        """The name of the pooler."""
        return self.settings.pooler

    @property
    def max_tokens(self) -> int | None:
        """How many tokens of a text are read at most."""
        return self.settings.max_tokens

    @property
    def dimensions(self) -> int:
        """The length of a vector."""
        for layer in reversed(self.model.layers):  # type: ignore[arg-type]
            if isinstance(layer, Dense):
                return layer.linear.out_features
        width: int = self.model.transformer.config.hidden_size  # type: ignore[union-attr, assignment]
        return width * len(self.pooler.split("+"))

    @property
    def fingerprint(self) -> str:
        """A SHA-256 over weights and settings: equal fingerprints give equal vectors."""
        digest = hashlib.sha256(repr(self.settings).encode())
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def _encode_distinct(self, texts: Sequence[str], limit: int | None, bar: Progress) -> Vectors:
        """Encode texts in batches of near-equal length and put the vectors back in order."""
        ids, truncated = self.tokens.ids(texts, max_tokens=limit)
        self.truncated += truncated
        batches = cut(np.fromiter(map(len, ids), np.int64, len(ids)), token_budget=TOKEN_BUDGET)
        vectors = np.empty((len(ids), self.dimensions), dtype=np.float32)
        with self.runtime.session(batches=len(batches)) as forward:
            for batch in batches:
                vectors[batch] = self._run(forward, [ids[place] for place in batch])
                bar.advance(len(batch))
        return vectors

    def _run(self, forward: Forward, ids: Sequence[Sequence[int]]) -> Vectors:
        vectors: Vectors = forward(self.pad(ids)).cpu().numpy()
        return vectors

    def _report_truncation(self, texts: int, limit: int | None) -> None:
        if self.truncated:
            warnings.warn(
                f"{self.truncated:,} of {texts:,} distinct texts are longer than {limit} tokens; only their beginning was encoded.",
                TruncationWarning,
                stacklevel=3,
            )

    def _write(self, folder: Path) -> None:
        settings = self._write_layers(folder)
        transformer: Any = self.model.transformer
        # sentence-transformers hands on every layer's states only if the config asks for them.
        transformer.config.output_hidden_states = find_pooler(self.pooler).layers is not None
        transformer.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        refusal = foreign.write_foreign_settings(folder, settings, transformer)
        if refusal:
            warnings.warn(
                f"sentence-transformers cannot load this model: {refusal}. twinpass can.", stacklevel=4
            )
        write_settings(folder, settings)

    def _write_layers(self, folder: Path) -> Settings:
        """Write head and layers under numbered names and return settings that point there."""
        head, names = None, []
        if self.model.head is not None:
            head = "2_Dense" if find_pooler(self.pooler).head == "kept" else "training_head"
            foreign.write_layer(folder / head, self.model.head)
        for place, layer in enumerate(self.model.layers, start=3):  # type: ignore[arg-type]
            names.append(f"{place}_Dense" if isinstance(layer, Dense) else foreign.NORMALIZE)
            if isinstance(layer, Dense):
                foreign.write_layer(folder / names[-1], layer)
        return replace(self.settings, head=head, layers=tuple(names))


def unit(vectors: Vectors) -> Vectors:
    """Scale rows to length one; a zero vector stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Vectors = vectors / np.maximum(lengths, 1e-12)
    return scaled


def _with_pooler(settings: Settings | None, pooler: str) -> Settings:
    """Let the user's pooler replace the folder's; a head saved for another pooler does not carry over."""
    find_pooler(pooler)
    if settings is None:
        return Settings(pooler=pooler)
    if settings.pooler == pooler:
        return settings
    shares_head = find_pooler(settings.pooler).head != "none" and find_pooler(pooler).head != "none"
    return replace(settings, pooler=pooler, head=settings.head if shares_head else None, layers=())


def _check_pooler_fits(pooler: str, transformer: Any, name: str) -> None:
    """Refuse a pooler whose weights the checkpoint does not have."""
    if "cls_pretrained" in pooler.split("+") and getattr(transformer, "pooler", None) is None:
        raise ModelError(
            f"{name} has no pretrained pooler, so 'cls_pretrained' has nothing to use. Choose another, for example 'cls'."
        )


def _load_head(folder: Path, settings: Settings, config: Any, fresh_seed: int | None) -> Dense | None:
    """Load the MLP over the pooled vector, start a fresh one if asked, or say that it is missing."""
    when = find_pooler(settings.pooler).head
    if when == "none":
        return None
    if settings.head is not None:
        head = foreign.read_layer(folder, settings.head)
        return head if isinstance(head, Dense) else None
    if fresh_seed is not None:
        return fresh_head(
            config.hidden_size, seed=fresh_seed, deviation=getattr(config, "initializer_range", 0.02)
        )
    if when == "kept":
        raise ModelError(
            f"pooler {settings.pooler!r} needs the MLP learned in training, and {folder} has none; a random one would "
            "give random vectors. Use 'cls' or 'cls_pretrained', or train the model first."
        )
    return None


def _token_limit(asked: int | None, settled: int | None, hard: int | None) -> int | None:
    """Return the limit to use: the one asked for if it fits, else the model's own."""
    own = min((limit for limit in (settled, hard) if limit is not None), default=None)
    if asked is None:
        return own
    if asked < 3:
        raise ConfigError(f"max_tokens is {asked}; a text needs at least 3 tokens, two of them special.")
    if hard is not None and asked > hard:
        raise ConfigError(f"max_tokens is {asked}, but this model reads at most {hard} tokens.")
    return asked


def _length(texts: Iterable[str]) -> int | None:
    return len(texts) if hasattr(texts, "__len__") else None


def _windows(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    """Cut texts into lists of `size`, checking that each is one."""
    if isinstance(texts, (bytes, bytearray)):
        raise InputError("expected texts, got bytes. Decode them first, for example with .decode('utf-8').")
    stream = enumerate(texts)
    while window := list(itertools.islice(stream, size)):
        for place, text in window:
            if not isinstance(text, str):
                raise InputError(f"text {place} is not a string but {type(text).__name__}: {text!r:.60}.")
        yield [text for _, text in window]


def _place_texts(window: Sequence[str], seen: dict[bytes, int], rows: list[int]) -> list[str]:
    """Note each text's row among the distinct ones and return the texts not met before."""
    fresh = []
    for text in window:
        # A digest, so that an iterator's texts need not be kept to recognise them.
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if key not in seen:
            seen[key] = len(seen)
            fresh.append(text)
        rows.append(seen[key])
    return fresh


def _move_into(aside: Path, target: Path) -> None:
    """Move finished files one by one over their older namesakes; the settings, written last, move last."""
    files = sorted(
        (path for path in aside.rglob("*") if path.is_file()), key=lambda path: path.name == "twinpass.json"
    )
    for path in files:
        place = target / path.relative_to(aside)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, place)
