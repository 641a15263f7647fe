"""Encoder: load, encode, compare, save."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence, Sized
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from twinpass.display import counted
from twinpass.encoder.ahead import ahead
from twinpass.encoder.dimensions import check_size, shorten, shortened, warn_untrained
from twinpass.encoder.folder import Exported, Settings, read_exported, read_settings
from twinpass.encoder.load import assemble, explained, exported_tokens, find_folder, importing, settle, token_limit
from twinpass.encoder.runtime import check_precision, choose_device, make_runtime
from twinpass.encoder.similarity import Cosines, compare
from twinpass.encoder.static import RUNTIME, Static, read_static
from twinpass.encoder.tokens import Distinct, Tokens, windows
from twinpass.errors import ConfigError, InputError, ModelError
from twinpass.progress import Advance, bar, silent
from twinpass.text.batch import cut
from twinpass.vectors import check_finite, unit

if TYPE_CHECKING:
    from torch import Tensor

    from twinpass.encoder.model import SentenceModel

Vectors = NDArray[np.float32]
Item = TypeVar("Item")

WINDOW = 65_536  # texts sorted by length together: few enough to hold in memory
STREAM_WINDOW = 4_096  # texts of one block of a stream: under 1 % padding, and a bar moves every few seconds
TOKEN_BUDGET = 4_096  # padded tokens in one forward pass


class Encoded(NamedTuple, Generic[Item]):
    """A block of a stream: items, their vectors (n, dimensions), and the positions of the truncated ones."""

    items: list[Item]
    vectors: Vectors
    truncated: list[int]


class TruncationWarning(UserWarning):
    """Texts were longer than the token limit and were truncated."""


class Encoder:
    """A sentence encoder: texts to vectors, the same way wherever it is loaded.

    Its model is a network in torch; or an exported or a static model, which need neither torch nor transformers and
    cannot be trained.
    """

    def __init__(
        self,
        model: SentenceModel | Exported | Static,
        tokens: Tokens,
        settings: Settings,
        *,
        name: str,
        device: Any = "cpu",
        precision: str = "fp32",
        runtime: str = "torch",
        dimensions: int | None = None,
    ) -> None:
        self.exported = model if isinstance(model, Exported) else None
        self.static = model if isinstance(model, Static) else None
        self._network = None if isinstance(model, (Exported, Static)) else model.to(device)
        self.tokens = tokens
        self.settings = settings
        self.name = name
        self.device = device  # a torch.device; the text "cpu" for an exported or static model
        self.precision = precision
        self.runtime_name = runtime
        self.runtime = make_runtime(runtime, self, precision=precision)
        self._fingerprint: Any = None  # of a network: computed when it is first asked for
        self._known_sizes: set[int] = set()  # of shorter vectors: a user is warned of each once
        self.kept_dimensions: int | None = None  # how many numbers of each vector are kept, where it is not all
        if dimensions is not None and self._check_size(dimensions) < self.whole_dimensions:
            self.kept_dimensions = dimensions
            self.exported = self.exported and self.exported.shortened(dimensions)

    def __repr__(self) -> str:
        limit = f"at most {self.max_tokens} tokens" if self.max_tokens else "any number of tokens"
        shape = f"pooler {self.pooler}, {self.dimensions} dimensions, {limit}"
        return f"Encoder({self.name!r}: {shape}, {self.device}, {self.precision}, {self.runtime_name})"

    @classmethod
    def load(
        cls,
        name: str | os.PathLike[str] = "minilm",
        *,
        pooler: str | None = None,
        template: str | None = None,
        device: str = "auto",
        precision: str | None = None,
        runtime: str | None = None,
        max_tokens: int | None = None,
        dimensions: int | None = None,
        dropout: float | None = None,
        fresh_head_seed: int | None = None,
        keep_adapter: bool = False,
        trust_pickle: bool = False,
        trust_remote_code: bool = False,
    ) -> Encoder:
        """Load the built-in model, a folder, or a hub model that the user names.

        `pooler` replaces the folder's pooler, and is needed where the folder names none. With `fresh_head_seed`, for
        training, a pooler with an MLP may start a new one; without it, a missing MLP is an error if it is kept at test
        time. `template` replaces that of the pooler `mask`. Without `precision` and `runtime`, an exported model runs
        as it was made, any other in fp32 with torch.
        With `dimensions`, vectors are their first numbers, scaled to length one; a model is trained for that with
        `matryoshka`. The adapter of an adapter folder (LoRA) is merged into its model unless `keep_adapter`.
        """
        trusted = {"trust_pickle": trust_pickle, "trust_remote_code": trust_remote_code}
        folder = find_folder(str(name), **trusted)
        fixed: dict[str, object] = {"pooler": pooler, "device": device, "precision": precision, "runtime": runtime}
        fixed |= {"template": template, "dropout": dropout, "fresh_head_seed": fresh_head_seed}
        with explained(folder):
            exported, found = read_exported(folder), read_static(folder)
        if found is not None:
            return cls._load_static(*found, str(name), max_tokens, dimensions, fixed)
        if exported is None and (precision == "int8" or runtime in ("openvino", "auto")):
            from twinpass.encoder.runtime.choose import find_export

            wanted = runtime or "openvino"
            exported = find_export(str(name), folder, pooler, wanted, precision, device=device, trusted=trusted)
            runtime = "torch" if exported is None else None
        if exported is not None:
            return cls._load_exported(exported, str(name), max_tokens, dimensions, fixed | {"runtime": runtime})
        precision, runtime = precision or "fp32", runtime or "torch"
        with importing(), explained(folder):
            place = choose_device(device)
            check_precision(precision, place)
            settings = settle(folder, name=str(name), pooler=pooler, template=template)
            new = {"dropout": dropout, "fresh_head_seed": fresh_head_seed, "dimensions": dimensions, "name": str(name)}
            model, tokens = assemble(folder, settings, keep_adapter=keep_adapter, **new, **trusted)  # type: ignore[arg-type]
        limit = token_limit(max_tokens, settings.max_tokens, tokens.limit)
        settings = replace(settings, max_tokens=limit, template=tokens.template)
        if not keep_adapter:
            settings = replace(settings, base="", base_weights="")
        computing: dict[str, Any] = {"device": place, "precision": precision, "runtime": runtime}
        return cls(model, tokens, settings, name=str(name), dimensions=dimensions, **computing)

    @classmethod
    def _load_exported(
        cls, exported: Exported, name: str, max_tokens: int | None, dimensions: int | None, options: dict[str, object]
    ) -> Encoder:
        """Load an exported model; of the options, those that are fixed in it must be as they are."""
        settings = read_settings(exported.folder)
        assert settings is not None  # read_exported has read it
        made = {"pooler": settings.pooler, "precision": exported.precision, "runtime": exported.runtime}
        made["template"] = settings.template
        kind = f"an exported model ({exported.precision}, {exported.runtime})"
        _refuse_changes(f"{name} is {kind}", options, made, exported.source)
        with explained(exported.folder):
            tokens = exported_tokens(exported, settings)
        limit = token_limit(max_tokens, settings.max_tokens, tokens.limit)
        if limit != token_limit(None, settings.max_tokens, tokens.limit):
            exported = exported.limited(limit)
        settled = replace(settings, max_tokens=limit)
        computing = {"precision": exported.precision, "runtime": exported.runtime}
        return cls(exported, tokens, settled, name=name, dimensions=dimensions, **computing)

    @classmethod
    def _load_static(
        cls,
        static: Static,
        tokens: Tokens,
        settings: Settings,
        name: str,
        max_tokens: int | None,
        dimensions: int | None,
        options: dict[str, object],
    ) -> Encoder:
        """Take a static model; of the options, those that are fixed in it must be as they are."""
        made = {"pooler": settings.pooler, "precision": "fp32", "runtime": RUNTIME}
        _refuse_changes(f"{name} is a static model", options, made, static.source)
        settled = replace(settings, max_tokens=token_limit(max_tokens, settings.max_tokens, None))
        return cls(static, tokens, settled, name=name, runtime=RUNTIME, dimensions=dimensions)

    @overload
    def encode(
        self,
        texts: Iterable[str],
        *,
        normalize: bool = False,
        max_tokens: int | None = None,
        dimensions: int | None = None,
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
        dimensions: int | None = None,
        progress: bool = False,
        return_truncated: Literal[True],
    ) -> tuple[Vectors, list[int]]: ...
    def encode(
        self,
        texts: Iterable[str],
        *,
        normalize: bool = False,
        max_tokens: int | None = None,
        dimensions: int | None = None,
        progress: bool = False,
        return_truncated: bool = False,
    ) -> Vectors | tuple[Vectors, list[int]]:
        """Return one float32 vector per text (n, dimensions), in order; for a single string, its vector.

        Each distinct text is encoded once. An iterator is read in windows and never held whole. `dimensions` keeps only
        the first numbers of each vector, scaled to length one. With
        `return_truncated`, the positions of the texts that were longer than the limit are returned too.
        """
        limit = self._limit(max_tokens)
        size = None if dimensions is None else self._check_size(dimensions)
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
        vectors = shorten(np.concatenate(blocks), size)
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
        from twinpass.encoder.parts import save_model

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
        if self.static is not None:
            return shorten(self.static.pool_all(ids, advance), self.kept_dimensions)
        vectors = np.empty((len(ids), self.whole_dimensions), dtype=np.float32)
        batches = cut(np.fromiter(map(len, ids), np.int64, len(ids)), token_budget=token_budget)
        with self.runtime.session() as forward:
            for batch in batches:
                vectors[batch] = forward(self.tokens.arrays([ids[place] for place in batch]))
                advance(len(batch))
        return shorten(vectors, self.kept_dimensions)

    def pad(self, ids: Sequence[Sequence[int]]) -> dict[str, Tensor]:
        """Return the model's inputs for rows of token ids, on the model's device."""
        import torch

        return {name: torch.from_numpy(array).to(self.device) for name, array in self.tokens.arrays(ids).items()}

    @property
    def model(self) -> SentenceModel:
        """The network, in torch; an exported or static model has none."""
        if self._network is None:
            raise self._no_network("network in torch")
        return self._network

    @property
    def tokenizer(self) -> Any:
        """The tokenizer, a transformers object; an exported or static model has none."""
        if self._network is None:
            raise self._no_network("tokenizer of transformers")
        return self.tokens.tokenizer

    def _no_network(self, missing: str) -> ModelError:
        made: Any = self.static or self.exported
        kind = "a static model" if self.static else f"an exported model ({self.precision}, {self.runtime_name})"
        return ModelError(
            f"{self.name} is {kind}, which encodes and has no {missing}: it cannot be trained, fitted, distilled, "
            f"changed or saved. Use the model that it was made from, {made.source['name']}."
        )

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
        return self.kept_dimensions or self.whole_dimensions

    @property
    def whole_dimensions(self) -> int:
        """The length of a vector of the model itself, of which `dimensions` may be the first part."""
        if self.static is not None:
            return int(self.static.table.shape[1])
        return self.model.dimensions if self.exported is None else self.exported.dimensions

    def check_whole(self, what: str) -> None:
        """Raise ConfigError if vectors are shortened, for what changes the model itself."""
        if self.kept_dimensions is not None:
            raise ConfigError(
                f"{self.name} was loaded with {self.kept_dimensions} of its {self.whole_dimensions} dimensions, and "
                f"{what} needs all of them. Load it without dimensions."
            )

    @property
    def vocabulary(self) -> int:
        """The number of token ids that the model knows."""
        if self.static is not None:
            return len(self.static.table) - 1  # the last row is for a text without tokens
        if self.exported is not None:
            return self.exported.vocabulary
        transformer: Any = self.model.transformer
        return int(transformer.get_input_embeddings().num_embeddings)

    @property
    def fingerprint(self) -> str:
        """A SHA-256 over weights and settings: equal fingerprints give equal vectors.

        It is computed once and again only after a change of weights, layers, settings or tokenizer.
        """
        if self.static is not None:
            return shortened(self.static.fingerprint(self.settings), self.kept_dimensions)
        if self.exported is not None:
            return self.exported.fingerprint
        if self._fingerprint is None:
            from twinpass.encoder.fingerprint import Fingerprint

            self._fingerprint = Fingerprint()
        digest: str = self._fingerprint.of(self.model, self.tokens, self.settings)
        return shortened(digest, self.kept_dimensions)

    def _limit(self, max_tokens: int | None) -> int | None:
        return token_limit(max_tokens, self.settings.max_tokens, self.tokens.limit)

    def _check_size(self, dimensions: int) -> int:
        """Refuse a size that vectors cannot have; warn once of one that the model was not trained for."""
        whole = self.dimensions
        check_size(dimensions, whole=whole, name=self.name)
        if dimensions < whole and dimensions not in self._known_sizes and self.static is None:
            self._known_sizes.add(dimensions)
            warn_untrained([dimensions], trained=self.settings.matryoshka, name=self.name, stacklevel=4)
        return dimensions

    def _report_truncation(self, truncated: int, texts: int, limit: int | None) -> None:
        if truncated:
            are, their = ("is", "its") if truncated == 1 else ("are", "their")
            message = f"{truncated:,} of {counted(texts, 'text')} {are} longer than {limit} tokens"
            kept = "end" if self.tokens.tokenizer.truncation_side == "left" else "beginning"
            warnings.warn(f"{message}; only {their} {kept} was encoded.", TruncationWarning, stacklevel=3)


def _refuse_changes(
    what: str, options: Mapping[str, object], made: Mapping[str, str], source: Mapping[str, Any]
) -> None:
    """Refuse options of loading that differ from how a model was made, if it cannot run otherwise."""
    for option, asked in options.items():
        has = {**made, "device": "cpu"}.get(option)
        if asked not in (None, "auto", has):
            raise ConfigError(
                f"{what}: its {option} "
                + (f"is {has}, not {asked}." if has else "cannot be set.")
                + f" Leave that option out, or use the model that it was made from, {source['name']}."
            )
