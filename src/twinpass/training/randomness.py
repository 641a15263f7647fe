"""The states of the random generators of torch (which dropout uses), Python and NumPy: take, keep, restore."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class TorchState(NamedTuple):
    """The state of the generators that dropout uses."""

    cpu: Tensor
    gpu: Tensor | None
    device: torch.device

    @classmethod
    def now(cls, device: torch.device) -> TorchState:
        """Return the present state."""
        return cls(torch.get_rng_state(), _gpu_state(device), device)

    def restore(self) -> None:
        """Restore the state."""
        torch.set_rng_state(self.cpu)
        if self.gpu is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(self.gpu, self.device)
        elif self.gpu is not None and self.device.type == "mps":  # a GPU's state is of no use on a CPU
            torch.mps.set_rng_state(self.gpu)


def take_states(device: torch.device) -> dict[str, Tensor]:
    """Return the states of all generators as tensors, for a checkpoint."""
    now = TorchState.now(device)
    version, words, gauss = random.getstate()
    _, keys, place, has_gauss, cached = np.random.get_state(legacy=True)
    states = {
        "torch": now.cpu,
        "python": torch.tensor([version, *words], dtype=torch.int64),
        "python_gauss": torch.tensor([math.nan if gauss is None else gauss], dtype=torch.float64),
        "numpy": torch.tensor([*np.asarray(keys).tolist(), int(place), int(has_gauss)], dtype=torch.int64),
        "numpy_gauss": torch.tensor([float(cached)], dtype=torch.float64),
    }
    return states if now.gpu is None else states | {"gpu": now.gpu}


def restore_states(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Restore all generators."""
    TorchState(states["torch"], states.get("gpu"), device).restore()
    version, *words = states["python"].tolist()
    gauss = states["python_gauss"].item()
    random.setstate((version, tuple(words), None if math.isnan(gauss) else gauss))
    *keys, place, has_gauss = states["numpy"].tolist()
    cached = states["numpy_gauss"].item()
    np.random.set_state(("MT19937", np.array(keys, dtype=np.uint32), place, has_gauss, cached))


@contextlib.contextmanager
def keeping_states(device: torch.device) -> Iterator[None]:
    """Restore all generators afterwards, whatever is drawn inside."""
    before = take_states(device)
    try:
        yield
    finally:
        restore_states(before, device)


def _gpu_state(device: torch.device) -> Tensor | None:
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    return torch.mps.get_rng_state() if device.type == "mps" else None
