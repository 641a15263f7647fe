"""SimCSE: a drop-in for the class of the authors' tool, with its arguments and return shapes.

    from twinpass import SimCSE

Differences: a bare checkpoint that the authors did not release needs `pooler`, which is not guessed from its name;
weights stored as a pickle need `trust_pickle`; blank lines of a file are not indexed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, from_numpy

from twinpass.encoder.encoder import Encoder
from twinpass.encoder.runtime import choose_device
from twinpass.errors import ConfigError, InputError
from twinpass.search.engines.exact import top
from twinpass.search.index import Index
from twinpass.text.corpus import open_corpus
from twinpass.vectors import unit

Floats = NDArray[np.float32]
Found = list[tuple[str, float]]

# The authors' names of two poolers; any other name is one of ours.
POOLERS = {"cls": "cls_pretrained", "cls_before_pooler": "cls"}


class SimCSE:
    """Embed sentences, compare them and search them, as the authors' tool does."""

    def __init__(
        self,
        model_name_or_path: str,
        device: str | None = None,
        num_cells: int = 100,
        num_cells_in_search: int = 10,
        pooler: str | None = None,
        *,
        trust_pickle: bool = False,
    ) -> None:
        self.encoder = Encoder.load(
            model_name_or_path,
            device=device or "auto",
            pooler=POOLERS.get(pooler, pooler) if pooler else None,
            trust_pickle=trust_pickle,
        )
        self.num_cells = num_cells
        self.num_cells_in_search = num_cells_in_search
        self.index: dict[str, Any] | None = None
        self.is_faiss_index = False

    @property
    def device(self) -> str:
        """The device that the model runs on."""
        return str(self.encoder.device)

    def encode(
        self,
        sentence: str | Sequence[str],
        device: str | None = None,
        return_numpy: bool = False,
        normalize_to_unit: bool = True,
        keepdim: bool = False,
        batch_size: int = 64,
        max_length: int = 128,
    ) -> Tensor | Floats:
        """Return the vectors (n, d) of sentences, or for one sentence its vector (d,), (1, d) with `keepdim`.

        `batch_size` is accepted and ignored: batches are made by number of tokens, which is faster.
        """
        if device is not None and str(choose_device(device)) != str(self.encoder.device):
            old = self.encoder
            self.encoder = Encoder(old.model, old.tokens, old.settings, name=old.name, device=choose_device(device))
        limit = min(max_length, self.encoder.max_tokens or max_length)
        vectors = self.encoder.encode(sentence, normalize=normalize_to_unit, max_tokens=limit)
        vectors = np.atleast_2d(vectors) if keepdim else vectors
        return vectors if return_numpy else from_numpy(vectors)

    @overload
    def similarity(self, queries: str, keys: str, device: str | None = None) -> float: ...
    @overload
    def similarity(
        self, queries: str | Sequence[str], keys: str | Sequence[str] | Floats, device: str | None = None
    ) -> float | Floats: ...
    def similarity(
        self, queries: str | Sequence[str], keys: str | Sequence[str] | Floats, device: str | None = None
    ) -> float | Floats:
        """Return the cosines (n, m) of queries and keys; (m,) for a single query, a number if the key is single too."""
        left = self._vectors(queries, device)
        right = unit(np.atleast_2d(keys)) if isinstance(keys, np.ndarray) else self._vectors(keys, device)
        cosines: Floats = left @ right.T
        if not isinstance(queries, str):
            return cosines
        single_key = isinstance(keys, str) or (isinstance(keys, np.ndarray) and keys.ndim == 1)
        return float(cosines[0, 0]) if single_key else cosines[0]

    def build_index(
        self,
        sentences_or_file_path: str | Sequence[str],
        use_faiss: bool | None = None,
        faiss_fast: bool = False,
        device: str | None = None,
        batch_size: int = 64,
    ) -> None:
        """Index sentences, or those of a file, in memory; `faiss_fast` searches `num_cells_in_search` cells of them."""
        sentences = _sentences(sentences_or_file_path)
        if not sentences:
            raise InputError("there is no sentence to index.")
        vectors = self._vectors(sentences, device)
        self.is_faiss_index = use_faiss is None or use_faiss
        fast = self._cells(vectors) if faiss_fast and self.is_faiss_index else None
        self.index = {"sentences": sentences, "index": vectors, "cells": fast}

    def add_to_index(
        self, sentences_or_file_path: str | Sequence[str], device: str | None = None, batch_size: int = 64
    ) -> None:
        """Add sentences, or those of a file, to the index."""
        index, sentences = self._built(), _sentences(sentences_or_file_path)
        vectors = self._vectors(sentences, device)
        index["sentences"] = [*index["sentences"], *sentences]
        index["index"] = np.concatenate([index["index"], vectors])
        if index["cells"] is not None:
            index["cells"].add(vectors)

    def search(
        self, queries: str | Sequence[str], device: str | None = None, threshold: float = 0.6, top_k: int = 5
    ) -> Found | list[Found]:
        """Return a query's nearest sentences with their cosines, best first; for several queries, a list of such."""
        index, vectors = self._built(), self._vectors(queries, device)
        sentences, cells = index["sentences"], index["cells"]
        scores, rows = cells.search(vectors, top_k) if cells is not None else top(vectors, index["index"], k=top_k)
        found = [
            [
                (sentences[row], float(score))
                for score, row in zip(*each, strict=True)
                if row >= 0 and score >= threshold
            ]
            for each in zip(scores, rows, strict=True)
        ]
        return found[0] if isinstance(queries, str) else found

    def save_index(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Save the index in a folder that the command line and `Index.open` read too."""
        index, encoder = self._built(), self.encoder
        Index.build(folder, index["sentences"], vectors=index["index"], encoder=encoder, overwrite=overwrite)

    def load_index(self, folder: str | os.PathLike[str]) -> None:
        """Load a saved index, if it was made with the same model."""
        index = Index.open(folder)
        index.check_model(name=self.encoder.name, fingerprint=self.encoder.fingerprint)
        sentences = [hit.text for hit in index.entries(index.ids())]
        self.index = {"sentences": sentences, "index": index.vectors(), "cells": None}
        self.is_faiss_index = True

    def _vectors(self, sentences: str | Sequence[str], device: str | None) -> Floats:
        vectors = self.encode(sentences, device=device, return_numpy=True, keepdim=True)
        return np.asarray(vectors, dtype=np.float32)

    def _built(self) -> dict[str, Any]:
        if self.index is None:
            raise ConfigError("there is no index yet. Call build_index or load_index first.")
        return self.index

    def _cells(self, vectors: Floats) -> Any:
        import faiss

        library: Any = faiss
        kind = f"IVF{min(self.num_cells, len(vectors))},Flat"
        cells = library.index_factory(vectors.shape[1], kind, library.METRIC_INNER_PRODUCT)
        cells.cp.min_points_per_centroid = 1  # no warning where there are few sentences for many cells
        cells.train(vectors)
        cells.add(vectors)
        cells.nprobe = self.num_cells_in_search
        return cells


def _sentences(given: str | Sequence[str]) -> list[str]:
    """Return sentences as they are, or the lines of the file that a string names."""
    if isinstance(given, str):
        return list(open_corpus(f"txt:{given}", skip_bad_rows=True).texts())
    return list(given)
