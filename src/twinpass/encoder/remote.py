"""An OpenAI-compatible embeddings service as a model: POST texts, get vectors."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from twinpass.errors import ModelError

KEY_VARIABLE = "TWINPASS_API_KEY"
_BATCH = 128
_TRIES = 4
_PASSING = {408, 429, 500, 502, 503, 504}  # answers that may be better next time


class EmbeddingsService:
    """A URL that answers {"model", "input"} with {"data": [{"index", "embedding"}]}; `#NAME` names the model."""

    def __init__(self, source: str, *, timeout: float = 60.0, pause: float = 1.0) -> None:
        url, _, model = source.partition("#")
        self.url = url if url.rstrip("/").endswith("/embeddings") else url.rstrip("/") + "/embeddings"
        self.model = model or "default"
        self.timeout = timeout
        self.pause = pause

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return one vector per text (n, d), a few texts at a time; a passing failure is tried again."""
        blocks = [self._ask(list(texts[i : i + _BATCH])) for i in range(0, len(texts), _BATCH)]
        return np.concatenate(blocks)

    def _ask(self, texts: list[str], tries: int = _TRIES) -> npt.NDArray[np.float32]:
        try:
            return self._vectors(self._post({"model": self.model, "input": texts}), len(texts))
        except urllib.error.HTTPError as error:
            if error.code not in _PASSING or tries == 1:
                raise ModelError(f"{self.url} answered {error.code}: {_said(error)}{_hint(error)}") from error
        except OSError as error:
            if tries == 1:
                raise ModelError(f"{self.url} cannot be reached: {error}. Is the service running?") from error
        time.sleep(self.pause * 2 ** (_TRIES - tries))
        return self._ask(texts, tries - 1)

    def _post(self, document: dict[str, Any]) -> Any:
        headers = {"Content-Type": "application/json"}
        if key := _key(self.url):
            headers["Authorization"] = f"Bearer {key}"
        body = json.dumps(document).encode()
        request = urllib.request.Request(self.url, data=body, headers=headers)
        with urllib.request.urlopen(request, timeout=self.timeout) as answer:
            try:
                return json.load(answer)
            except ValueError as error:
                raise ModelError(f"{self.url} answered something that is not JSON.") from error

    def _vectors(self, answer: Any, wanted: int) -> npt.NDArray[np.float32]:
        try:
            data = sorted(answer["data"], key=lambda entry: entry["index"])
            vectors = np.array([entry["embedding"] for entry in data], dtype=np.float32)
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{self.url} answered without data[].index and data[].embedding.") from error
        if vectors.ndim != 2 or len(vectors) != wanted:
            raise ModelError(f"{self.url} was asked for {wanted} vectors and answered {vectors.shape}.")
        return vectors


def _key(url: str) -> str | None:
    """The key to send: the user's own for any service; OpenAI's goes to nobody but OpenAI."""
    own = os.environ.get(KEY_VARIABLE)
    host = urllib.parse.urlsplit(url).hostname or ""
    return own or (os.environ.get("OPENAI_API_KEY") if host == "api.openai.com" else None)


def _said(error: urllib.error.HTTPError) -> str:
    return " ".join(error.read(300).decode("utf-8", "replace").split()) or str(error.reason)


def _hint(error: urllib.error.HTTPError) -> str:
    return f" Set {KEY_VARIABLE} to the service's key." if error.code in (401, 403) else ""
