"""OpenVINO: runs an exported model, head and layers included, without torch."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinpass.encoder.runtime import Forward
from twinpass.errors import MissingExtra


class OpenVinoRuntime:
    """Runs a graph that maps token ids to vectors; it is compiled when it is first used."""

    def __init__(self, path: Path, *, threads: int | None = None) -> None:
        if importlib.util.find_spec("openvino") is None:
            raise MissingExtra("the openvino runtime", "openvino")
        self.path, self.threads = path, threads
        self._compiled: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_compiled": None}  # another process compiles it again

    @contextlib.contextmanager
    def session(self) -> Iterator[Forward]:
        """Yield the forward pass, with a request of its own, so that threads may share the model."""
        if self._compiled is None:
            self._compiled = self._compile()
        request = self._compiled.create_infer_request()

        def forward(inputs: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float32]:
            vectors: NDArray[np.float32] = request.infer(dict(inputs), share_inputs=True)[0].copy()
            return vectors

        yield forward

    def _compile(self) -> Any:
        import openvino

        core = openvino.Core()
        # fp32 is fp32: without the hint, OpenVINO computes in bf16 where the processor announces it.
        options: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        if self.threads is not None:
            options["INFERENCE_NUM_THREADS"] = self.threads
        return core.compile_model(self.path, "CPU", options)
