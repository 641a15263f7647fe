"""PyTorch: the reference runtime (not named torch.py, which would hide the library inside this package)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from twinpass.encoder.model import SentenceModel
from twinpass.encoder.runtime import Forward

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class TorchRuntime:
    """The model as it is, on its device and in its precision."""

    def __init__(self, model: SentenceModel, *, device: torch.device, precision: str) -> None:
        self.model, self.device, self.dtype = model, device, DTYPES[precision]

    @contextlib.contextmanager
    def session(self) -> Iterator[Forward]:
        """Run in evaluation mode without gradients, and leave the model as it was."""

        def forward(inputs: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float32]:
            features = {name: torch.from_numpy(array).to(self.device) for name, array in inputs.items()}
            vectors: NDArray[np.float32] = self.model(features).float().cpu().numpy()
            return vectors

        reduced = torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32)
        with evaluating(self.model), torch.inference_mode(), reduced:
            yield forward


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch a model that is being trained to evaluation mode and back; threads may share one that is not."""
    if not model.training:
        yield
        return
    model.eval()
    try:
        yield
    finally:
        model.train()
