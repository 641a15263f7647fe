"""ONNX Runtime: the whole model, head and layers included, exported once and run faster on a CPU."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from twinpass.encoder.model import SentenceModel, WeightsSeen
from twinpass.encoder.runtime import Forward
from twinpass.encoder.runtime.pytorch import evaluating
from twinpass.errors import ConfigError, MissingExtra
from twinpass.files import cache_folder, writing_folder

if TYPE_CHECKING:
    from twinpass.encoder.encoder import Encoder


class OnnxRuntime:
    """Runs the exported model; vectors equal torch's to 1e-4."""

    def __init__(self, encoder: Encoder, *, precision: str) -> None:
        if str(encoder.device) != "cpu" or precision != "fp32":
            raise ConfigError("the onnx runtime computes in fp32 on a CPU. Use the torch runtime on a GPU.")
        if not all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime")):
            raise MissingExtra("the onnx runtime", "onnx")
        self.encoder = encoder
        self._loaded: tuple[WeightsSeen, Any] | None = None

    @contextlib.contextmanager
    def session(self) -> Iterator[Forward]:
        """Yield the forward pass of the model with its present weights."""
        model = self.encoder.model
        if self._loaded is None or not self._loaded[0].unchanged(model):
            import onnxruntime

            seen, options = WeightsSeen(model), onnxruntime.SessionOptions()
            options.intra_op_num_threads = torch.get_num_threads()
            path = os.fspath(exported(self.encoder))
            self._loaded = (seen, onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]))
        session = self._loaded[1]

        def forward(inputs: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float32]:
            vectors: NDArray[np.float32] = session.run(None, dict(inputs))[0]
            return vectors

        yield forward


def exported(encoder: Encoder) -> Path:
    """Return the encoder's ONNX file from the cache, exporting it if it is not there yet.

    It maps the transformer's inputs, of any batch size and length, to `vectors`.
    """
    versions = hashlib.sha256(f"{encoder.fingerprint} {torch.__version__}".encode()).hexdigest()
    folder = cache_folder("onnx") / versions[:32]
    if folder.exists():
        return folder / "model.onnx"
    features = encoder.pad(encoder.tokenize(["two texts", "of some length"]))
    free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    # A folder, because a large model's weights lie in a second file.
    with writing_folder(folder) as aside, evaluating(encoder.model), torch.no_grad(), _quiet_export():
        program = torch.onnx.export(
            _Positional(encoder.model, list(features)),
            tuple(features.values()),
            dynamo=True,
            input_names=list(features),
            output_names=["vectors"],
            dynamic_shapes=(tuple(free for _ in features),),
            verbose=False,
        )
        if program is None:
            raise ConfigError("this version of torch did not export the model. Use the torch runtime.")
        program.save(os.fspath(aside / "model.onnx"))
    return folder / "model.onnx"


class _Positional(nn.Module):
    """The model with its named inputs in a fixed order, as the exporter needs them."""

    def __init__(self, model: SentenceModel, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Tensor) -> Tensor:
        vectors: Tensor = self.model(dict(zip(self.names, inputs, strict=True)))
        return vectors


@contextlib.contextmanager
def _quiet_export() -> Iterator[None]:
    """Hide the exporter's messages about itself."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(None):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
