"""Anything that turns texts into vectors: an encoder, word vectors, stored vectors, a service, a function."""

from __future__ import annotations

import inspect
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from twinpass.errors import ConfigError, ModelError
from twinpass.registry import suggest

if TYPE_CHECKING:
    from twinpass.encoder.encoder import Encoder

Encode = Callable[[Sequence[str]], NDArray[np.float32]]

KEY_VARIABLE = "TWINPASS_API_KEY"
SERVICE, WORD_VECTORS, STORED = ("http://", "https://"), (".txt", ".vec", ".txt.gz", ".vec.gz"), (".parquet", ".npy")
_BATCH = 128
_TRIES = 4
_TEMPORARY = {408, 429, 500, 502, 503, 504}  # status codes after which a request is sent again


@dataclass(frozen=True)
class Model:
    """An encode function with a name; its vectors are cached on disk only if it has a fingerprint."""

    name: str
    encode: Encode
    fingerprint: str | None = None
    computing: Mapping[str, str] = field(default_factory=dict)  # an Encoder's precision and runtime
    sizes: tuple[int, ...] | None = None  # shorter vectors that it was trained for, if that is known


def check_loading(loading: Mapping[str, Any], function: Callable[..., Any]) -> None:
    """Raise ConfigError for an option that is neither one of Encoder.load nor one of the function that passes it on."""
    from twinpass.encoder.encoder import Encoder

    own = inspect.signature(Encoder.load).parameters
    known = [*own, *inspect.signature(function).parameters]
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in own.values()):  # one that takes anything
        return
    for name in loading.keys() - known:
        raise ConfigError(f"no option named {name!r}.{suggest(name, known)}")


def open_model(source: str | Path | Encoder | Model | Encode, *, device: str = "auto", **loading: Any) -> Model:
    """Open a folder, a hub name, word vectors, stored vectors or an embeddings URL, or take an Encoder or a function.

    `.txt`, `.vec` and those gzipped are word vectors; a folder with bilstm.json is InferSent's encoder; `.parquet`
    (columns text and vector) and `.npy` (beside a `.txt` of the texts) are stored vectors; `http(s)://...#MODEL` is an
    OpenAI-compatible service. All else is loaded by `Encoder.load`, with the options in `loading`.
    """
    if isinstance(source, Model):
        return source
    if callable(source):
        return Model(getattr(source, "__name__", type(source).__name__), source)
    if not isinstance(source, (str, Path)):
        return _from_encoder(source)
    name = str(source)
    if name.startswith(SERVICE):
        return Model(name, EmbeddingsService(name).encode)
    if name.endswith(WORD_VECTORS):
        from twinpass.encoder.wordvectors import WordVectors

        words = WordVectors.load(name, pooler=loading.get("pooler") or "avg")
        # As `analyze` calls them, where one file may be several models.
        label = name if words.pooler == "avg" else f"{name}#pooler={words.pooler}"
        return Model(label, words.encode, words.fingerprint)
    if name.endswith(STORED):
        return Model(name, _stored(Path(name)))
    if (Path(name) / "bilstm.json").is_file():
        from twinpass.encoder.bilstm import BiLstmEncoder

        bilstm = BiLstmEncoder.load(name, device=device)
        return Model(name, bilstm.encode, bilstm.fingerprint)
    from twinpass.encoder.encoder import Encoder

    return _from_encoder(Encoder.load(name, device=device, **loading))


def check_model(
    source: object, *, trust_pickle: bool = False, trust_remote_code: bool = False, **loading: object
) -> None:
    """Raise ModelError for a name that `open_model` would not find; none is loaded, but one on the hub downloaded."""
    name = str(source)
    if not isinstance(source, (str, Path)) or name.startswith(SERVICE):
        return
    if not name.endswith((*WORD_VECTORS, *STORED)):
        from twinpass.encoder.load import find_folder

        find_folder(name, trust_pickle=trust_pickle, trust_remote_code=trust_remote_code)
    elif not Path(name).exists():
        raise ModelError(f"there is no file {name} of vectors. Check the path.")


def _from_encoder(encoder: Encoder) -> Model:
    computing = {"precision": encoder.precision, "runtime": encoder.runtime_name}
    fingerprint = "-".join([encoder.fingerprint, *computing.values()])
    computing |= {} if encoder.kept_dimensions is None else {"dimensions": str(encoder.kept_dimensions)}
    return Model(encoder.name, encoder.encode, fingerprint, computing, encoder.settings.matryoshka)


def _stored(path: Path) -> Encode:
    """Look up vectors by text in a file or a folder of parquet files; a text without one is an error that names it."""
    if not (path.is_file() or (path.is_dir() and path.suffix == ".parquet")):
        raise ModelError(f"there is no file {path} of stored vectors.")
    texts, vectors = _read_parquet(path) if path.suffix == ".parquet" else _read_npy(path)
    if vectors.ndim != 2 or len(texts) != len(vectors):
        raise ModelError(f"{path} holds an array {vectors.shape} for {len(texts)} texts; expected a row for each.")
    # A file of texts cannot hold the empty sentence: unless given a vector, its vector is zeros.
    vectors = np.concatenate([np.zeros((1, vectors.shape[1]), np.float32), vectors])
    row = {"": 0} | {text: place for place, text in enumerate(texts, start=1)}

    def encode(asked: Sequence[str]) -> Any:
        missing = [text for text in asked if text not in row]
        if missing:
            raise ModelError(
                f"{path} has no vector for {len(missing)} of {len(asked)} texts, the first of them "
                f"{missing[0][:80]!r}. Encode all the tasks' texts (--write-texts FILE writes them)."
            )
        return vectors[[row[text] for text in asked]]

    return encode


def _read_parquet(path: Path) -> tuple[list[str], Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, columns=["text", "vector"], page_checksum_verification=True)
        vectors = np.array(table["vector"].to_pylist(), dtype=np.float32)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ModelError(f"{path}: expected the columns text and vector: {error}.") from error
    return table["text"].to_pylist(), vectors


def _read_npy(path: Path) -> tuple[list[str], Any]:
    beside = path.with_suffix(".txt")
    if not beside.is_file():
        raise ModelError(f"{path} needs its texts beside it: write them, one per line, to {beside}.")
    try:
        vectors = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}.") from error
    lines = beside.read_text(encoding="utf-8").split("\n")
    return lines[:-1] if lines[-1] == "" else lines, vectors


class EmbeddingsService:
    """A URL that answers {"model", "input"} with {"data": [{"index", "embedding"}]}; `#NAME` names the model."""

    def __init__(self, source: str, *, timeout: float = 60.0, pause: float = 1.0) -> None:
        url, _, model = source.partition("#")
        self.url = url if url.rstrip("/").endswith("/embeddings") else url.rstrip("/") + "/embeddings"
        self.model = model or "default"
        self.timeout = timeout
        self.pause = pause

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one vector per text (n, d), a few texts at a time; a temporary failure is tried again."""
        blocks = [self._ask(list(texts[i : i + _BATCH])) for i in range(0, len(texts), _BATCH)]
        return np.concatenate(blocks)

    def _ask(self, texts: list[str], tries: int = _TRIES) -> NDArray[np.float32]:
        try:
            return self._vectors(self._post({"model": self.model, "input": texts}), len(texts))
        except urllib.error.HTTPError as error:
            if error.code not in _TEMPORARY or tries == 1:
                reason = " ".join(error.read(300).decode("utf-8", "replace").split()) or error.reason
                hint = f" Set {KEY_VARIABLE} to the service's key." if error.code in (401, 403) else ""
                raise ModelError(f"{self.url} answered {error.code}: {reason}{hint}") from error
        except (OSError, HTTPException) as error:
            if tries == 1:
                raise ModelError(f"{self.url} cannot be reached: {error}. Is the service running?") from error
        time.sleep(self.pause * 2 ** (_TRIES - tries))
        return self._ask(texts, tries - 1)

    def _post(self, document: dict[str, Any]) -> Any:
        key = os.environ.get(KEY_VARIABLE)
        if urllib.parse.urlsplit(self.url).hostname == "api.openai.com":  # this key is for no other service
            key = key or os.environ.get("OPENAI_API_KEY")
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        request = urllib.request.Request(self.url, data=json.dumps(document).encode(), headers=headers)
        with urllib.request.urlopen(request, timeout=self.timeout) as answer:
            try:
                return json.load(answer)
            except ValueError as error:
                raise ModelError(f"{self.url} returned something that is not JSON.") from error

    def _vectors(self, answer: Any, count: int) -> NDArray[np.float32]:
        try:
            data = sorted(answer["data"], key=lambda entry: entry["index"])
            vectors = np.array([entry["embedding"] for entry in data], dtype=np.float32)
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{self.url} returned no data[].index and data[].embedding.") from error
        if vectors.ndim != 2 or len(vectors) != count:
            raise ModelError(f"{self.url} was asked for {count} vectors and returned {vectors.shape}.")
        return vectors
