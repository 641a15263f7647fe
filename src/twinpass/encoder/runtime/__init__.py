"""What runs the model when encoding, one file each: torch (the reference), and openvino for exported models.

A static model runs itself. Also where, and in which precision. A runtime takes token ids as arrays and returns vectors
as arrays, so that only torch's needs torch to compute; nothing here imports torch before it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from twinpass import processor
from twinpass.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from twinpass.encoder.encoder import Encoder

PRECISIONS = ("fp32", "bf16", "fp16")  # of torch

Forward = Callable[[Mapping[str, NDArray[np.int64]]], NDArray[np.float32]]  # inputs (n, tokens) -> (n, dimensions)


class Runtime(Protocol):
    """A way to run the model many times while its weights stay as they are."""

    def session(self) -> AbstractContextManager[Forward]:
        """Yield the forward pass of the model with its present weights."""
        ...


def make_runtime(name: str, encoder: Encoder, *, precision: str) -> Runtime:
    """Return the named runtime for an encoder, importing what it needs only now."""
    if encoder.static is not None:
        return encoder.static
    if encoder.exported is not None:
        from twinpass.encoder.runtime.openvino import OpenVinoRuntime

        return OpenVinoRuntime(encoder.exported)
    if name != "torch":
        raise ConfigError(f"no runtime named {name!r}. Known: torch (the reference), openvino, auto (the faster).")
    from twinpass.encoder.runtime.pytorch import TorchRuntime

    return TorchRuntime(encoder.model, device=encoder.device, precision=precision)


def choose_device(name: str) -> torch.device:
    """Return the named device, or with `auto` the best that this machine has."""
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"device {name!r} cannot be used here ({reason}). Use auto, cpu, cuda, cuda:1 or mps."
        ) from error
    return device


def check_precision(precision: str, device: torch.device) -> None:
    """Refuse a precision that is unknown, or that the device does not compute in."""
    if precision not in PRECISIONS:
        raise ConfigError(f"no precision named {precision!r}. Known: {', '.join(PRECISIONS)}; to encode, also int8.")
    if precision == "fp16" and device.type == "cpu":
        raise ConfigError("fp16 needs a GPU. On a CPU use fp32, the default, or bf16.")
    if precision == "bf16" and device.type == "cpu":
        processor.check(processor.BF16)


def mixed_precision(device: torch.device) -> str:
    """Return the precision in which training is fastest: bf16 or fp16 on a GPU, fp32 elsewhere."""
    if device.type != "cuda":
        return "fp32"
    import torch

    return "bf16" if torch.cuda.is_bf16_supported() else "fp16"
