"""What carries out the forward pass when encoding: torch, the reference, or ONNX Runtime."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from twinpass.encoder.model import SentenceModel
from twinpass.errors import ConfigError

if TYPE_CHECKING:
    from twinpass.encoder.encoder import Encoder

PRECISIONS: dict[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

Forward = Callable[[Mapping[str, Tensor]], Tensor]  # the model's inputs -> vectors (n, dimensions), float32


class Runtime(Protocol):
    """A way to run the model many times over weights that stay as they are meanwhile."""

    def session(self, *, batches: int) -> contextlib.AbstractContextManager[Forward]:
        """Prepare for this many batches and yield the forward pass."""
        ...


class TorchRuntime:
    """Plain torch; on a CPU the weights are laid out once for the whole session."""

    # Laying the weights out costs about as much as this many batches gain.
    worth_packing = 4

    def __init__(self, model: SentenceModel, *, device: torch.device, precision: str) -> None:
        self.model, self.device, self.precision = model, device, precision

    @contextlib.contextmanager
    def session(self, *, batches: int) -> Iterator[Forward]:
        """Run in evaluation mode without gradients, and leave the model as it was."""
        packed = self.device.type == "cpu" and self.precision == "fp32" and batches >= self.worth_packing
        dtype = PRECISIONS[self.precision]
        reduced = torch.autocast(self.device.type, dtype=dtype, enabled=dtype != torch.float32)
        layout = packed_linears(self.model) if packed else contextlib.nullcontext()
        with evaluating(self.model), torch.inference_mode(), reduced, layout:
            yield lambda features: self.model(features).float()


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch a model to evaluation mode and back."""
    before = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(before)


@contextlib.contextmanager
def packed_linears(model: nn.Module) -> Iterator[None]:
    """Let every linear layer use weights packed for oneDNN, where this torch has them."""
    layers: list[Any] = [layer for layer in model.modules() if type(layer) is nn.Linear] if can_pack() else []
    for layer in layers:
        # An attribute of the instance hides the class's method until it is deleted again.
        layer.forward = _packed_forward(layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def can_pack() -> bool:
    """Tell whether this torch offers linear layers with packed weights."""
    return torch._C._has_mkldnn and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _packed_forward(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach())
    bias = None if layer.bias is None else layer.bias.detach()

    def forward(states: Tensor) -> Tensor:
        result: Tensor = torch.ops.mkldnn._linear_pointwise(states, weight, bias, "none", [], "")
        return result

    return forward


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


def make_runtime(name: str, encoder: Encoder, *, precision: str) -> Runtime:
    """Return the named runtime for an encoder, importing what it needs only now."""
    if name == "onnx":
        from twinpass.encoder.onnx import OnnxRuntime

        return OnnxRuntime(encoder, precision=precision)
    if name != "torch":
        raise ConfigError(f"no runtime named {name!r}. Known: torch (the reference), onnx.")
    return TorchRuntime(encoder.model, device=encoder.device, precision=precision)
