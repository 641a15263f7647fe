"""Anything that turns texts into vectors, opened by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinpass.errors import ModelError

Encode = Callable[[Sequence[str]], NDArray[np.float32]]


@dataclass(frozen=True)
class Model:
    """An encode function with a name; vectors are kept on disk only where a fingerprint says whose they are."""

    name: str
    encode: Encode
    fingerprint: str | None = None


def open_model(
    source: str | Path | Encode,
    *,
    pooler: str | None = None,
    device: str = "auto",
    precision: str = "fp32",
    runtime: str = "torch",
    max_tokens: int | None = None,
    trust_pickle: bool = False,
    trust_remote_code: bool = False,
) -> Model:
    """Open a folder, a hub name, word vectors, precomputed vectors, an embeddings URL, or take a function.

    `.txt`, `.vec` and those gzipped are word vectors; a folder with bilstm.json is InferSent's encoder; `.parquet`
    (columns text and vector) and `.npy` (beside a `.txt` of the texts) are precomputed; `http(s)://...#MODEL` is an
    OpenAI-compatible service. The options are for encoders only, but for the device, which InferSent's takes too.
    """
    if callable(source):
        return Model(getattr(source, "__name__", type(source).__name__), source)
    for fits, opener in _KINDS:
        if fits(str(source)):
            return opener(str(source), device)
    from twinpass.encoder.encoder import Encoder

    encoder = Encoder.load(
        source,
        pooler=pooler,
        device=device,
        precision=precision,
        runtime=runtime,
        max_tokens=max_tokens,
        trust_pickle=trust_pickle,
        trust_remote_code=trust_remote_code,
    )
    return from_encoder(encoder, precision=precision, runtime=runtime)


def from_encoder(encoder: Any, *, precision: str = "fp32", runtime: str = "torch") -> Model:
    """Take an Encoder; how it is run is added to what it is."""
    fingerprint = f"{encoder.fingerprint}-{precision}-{runtime}"
    return Model(encoder.name, encoder.encode, fingerprint)


def _word_vectors(source: str) -> Model:
    from twinpass.encoder.static import WordVectors

    words = WordVectors.load(source)
    return Model(source, words.encode, words.fingerprint)


def _bilstm(source: str, device: str) -> Model:
    from twinpass.encoder.bilstm import BiLstmEncoder

    encoder = BiLstmEncoder.load(source, device=device)
    return Model(source, encoder.encode, encoder.fingerprint)


def _precomputed(source: str) -> Model:
    """Vectors by text from a file; a text that is not there is an error that names it."""
    path = Path(source)
    if not path.is_file():
        raise ModelError(f"no file {path} of precomputed vectors.")
    texts, vectors = _read_parquet(path) if path.suffix == ".parquet" else _read_npy(path)
    if vectors.ndim != 2 or len(texts) != len(vectors):
        raise ModelError(f"{path} holds an array {vectors.shape} for {len(texts)} texts; a row each is wanted.")
    # The empty sentence has no line in a file of texts: unless given a vector it has none, that is, zeros.
    vectors = np.concatenate([np.zeros((1, vectors.shape[1]), np.float32), vectors])
    row = {"": 0} | {text: place for place, text in enumerate(texts, start=1)}

    def encode(wanted: Sequence[str]) -> Any:
        missing = [text for text in wanted if text not in row]
        if missing:
            raise ModelError(
                f"{path} has no vector for {len(missing)} of {len(wanted)} texts, the first of them "
                f"{missing[0][:80]!r}. Encode all the tasks' texts (--write-texts FILE writes them)."
            )
        return vectors[[row[text] for text in wanted]]

    return Model(source, encode)


def _read_parquet(path: Path) -> tuple[list[str], Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, columns=["text", "vector"])
        vectors = np.array(table["vector"].to_pylist(), dtype=np.float32)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ModelError(f"{path}: the columns text and vector are wanted: {error}.") from error
    return table["text"].to_pylist(), vectors


def _read_npy(path: Path) -> tuple[list[str], Any]:
    beside = path.with_suffix(".txt")
    if not beside.is_file():
        raise ModelError(f"{path} says no texts: write them, one a line, to {beside}.")
    try:
        vectors = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}.") from error
    lines = beside.read_text(encoding="utf-8").split("\n")
    return lines[:-1] if lines[-1] == "" else lines, vectors


def _service(source: str) -> Model:
    from twinpass.encoder.remote import EmbeddingsService

    return Model(source, EmbeddingsService(source).encode)


def _holds(name: str) -> Callable[[str], bool]:
    return lambda source: (Path(source) / name).is_file()


def _ends(*suffixes: str) -> Callable[[str], bool]:
    return lambda source: source.endswith(suffixes)


_KINDS: list[tuple[Callable[[str], bool], Callable[[str, str], Model]]] = [
    (lambda source: source.startswith(("http://", "https://")), lambda source, _: _service(source)),
    (_ends(".txt", ".vec", ".txt.gz", ".vec.gz"), lambda source, _: _word_vectors(source)),
    (_ends(".parquet", ".npy"), lambda source, _: _precomputed(source)),
    (_holds("bilstm.json"), _bilstm),
]
