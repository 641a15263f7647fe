"""What carries out the forward pass when encoding: torch, the reference, or ONNX Runtime."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

from twinpass import processor
from twinpass.encoder.model import SentenceModel
from twinpass.errors import ConfigError

if TYPE_CHECKING:
    from twinpass.encoder.encoder import Encoder

PRECISIONS: dict[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

Forward = Callable[[Mapping[str, Tensor]], Tensor]  # the model's inputs -> vectors (n, dimensions), float32


class Runtime(Protocol):
    """A way to run the model many times over weights that stay as they are meanwhile."""

    def session(self) -> contextlib.AbstractContextManager[Forward]:
        """Yield the forward pass of the model as its weights are now."""
        ...


class TorchRuntime:
    """Plain torch."""

    def __init__(self, model: SentenceModel, *, device: torch.device, precision: str) -> None:
        self.model, self.device, self.precision = model, device, precision

    @contextlib.contextmanager
    def session(self) -> Iterator[Forward]:
        """Run in evaluation mode without gradients, and leave the model as it was."""
        dtype = PRECISIONS[self.precision]
        reduced = torch.autocast(self.device.type, dtype=dtype, enabled=dtype != torch.float32)
        with evaluating(self.model), torch.inference_mode(), reduced:
            yield lambda features: self.model(features).float()


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


def choose_device(name: str) -> torch.device:
    """Return the named device, or with `auto` the best that this machine has."""
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
        raise ConfigError(f"no precision named {precision!r}. Known: {', '.join(PRECISIONS)}.")
    if precision == "fp16" and device.type == "cpu":
        raise ConfigError("fp16 needs a GPU. On a CPU use fp32, the default, or bf16.")
    if precision == "bf16" and device.type == "cpu":
        processor.check(processor.BF16)


def mixed_precision(device: torch.device) -> str:
    """Return the precision that training is fastest in: half the width on a GPU, the full one elsewhere."""
    if device.type != "cuda":
        return "fp32"
    return "bf16" if torch.cuda.is_bf16_supported() else "fp16"


def make_runtime(name: str, encoder: Encoder, *, precision: str) -> Runtime:
    """Return the named runtime for an encoder, importing what it needs only now."""
    if name == "onnx":
        from twinpass.encoder.onnx import OnnxRuntime

        return OnnxRuntime(encoder, precision=precision)
    if name != "torch":
        raise ConfigError(f"no runtime named {name!r}. Known: torch (the reference), onnx.")
    return TorchRuntime(encoder.model, device=encoder.device, precision=precision)
