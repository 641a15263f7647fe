"""Models that are not exported yet, for the runtime openvino: each is exported once and cached; `auto` measures first.

What is cached is found by the files of the model folder, so that torch is not needed from the second time on.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twinpass import processor
from twinpass.encoder.folder import Exported, read_exported
from twinpass.encoder.load import RELEASED
from twinpass.errors import ConfigError, MissingExtra, ModelError, UserError
from twinpass.files import cache_folder, cache_home, locked, sha256, write_json
from twinpass.provenance import installed

VERSION = 1  # of how models are exported: another number makes every cached export anew
INT8, FP32 = "openvino int8", "openvino fp32"
TORCH = "torch fp32"
_FILES = (".json", ".safetensors", ".txt", ".model", ".bin", ".py")
_NOT_OF_THE_MODEL = {"checkpoints", "onnx", "openvino"}
# Measured with these: what they say does not matter, their lengths do.
_TEXTS = [f"{number} {'words to measure with ' * (1 + number % 12)}" for number in range(96)]


def find_export(
    name: str,
    folder: Path,
    pooler: str | None,
    runtime: str,
    precision: str | None,
    *,
    device: str,
    trusted: Mapping[str, bool],
) -> Exported | None:
    """Return the export of a model that the options ask for, made now if it is not in the cache; None means torch."""
    if runtime not in ("openvino", "auto"):
        raise ConfigError(f"int8 is computed by the runtime openvino, not by {runtime}. Leave --runtime out.")
    if runtime == "auto" and precision not in (None, "fp32", "int8"):
        return None  # the runtimes compete in equal precision, and only torch has these
    if precision not in (None, "fp32", "int8"):
        raise ConfigError(f"the runtime openvino computes in fp32 or int8, not in {precision}. Use the torch runtime.")
    if device not in ("auto", "cpu"):
        if runtime == "auto" and precision != "int8":
            return None
        raise ConfigError(f"the runtime openvino computes on a CPU, not on {device!r}. Use --device cpu, or torch.")
    if importlib.util.find_spec("openvino") is None:
        if runtime == "auto" and precision != "int8":
            return None
        raise MissingExtra("the runtime openvino", "openvino")
    model = Source(name, folder, pooler, trusted)
    if runtime == "auto" and precision != "int8":
        return model.export("fp32") if model.fastest(device) == FP32 else None
    return model.export(precision or "fp32")


class Source:
    """A model that is to be exported: where it lies, and what decides about its vectors."""

    def __init__(self, name: str, folder: Path, pooler: str | None = None, trusted: Mapping[str, bool] | None = None):
        self.name, self.folder, self.pooler, self.trusted = name, folder, pooler, dict(trusted or {})
        files = sorted(path for pattern in ("*", "*/*") for path in folder.glob(pattern) if path.suffix in _FILES)
        mine = [path for path in files if path.parent.name not in _NOT_OF_THE_MODEL and path.is_file()]
        listed = [(path.relative_to(folder).as_posix(), sha256(path)) for path in mine]
        self.key = _digest((listed, pooler or RELEASED.get(name), VERSION))

    def place(self, precision: str) -> Path:
        """Return where its export lies, or will lie."""
        library = installed("nncf") if precision == "int8" else None
        key = _digest((self.key, precision, installed("openvino"), library))
        return cache_home() / "exported" / f"{precision}-{key[:32]}"

    def export(self, precision: str) -> Exported:
        """Return the model's export from the cache; the first time, it is made."""
        if precision == "int8":
            processor.check(processor.INT8)
        place = self.place(precision)
        with contextlib.suppress(ModelError):  # damaged: made again
            if (found := read_exported(place)) is not None:
                return found
        from twinpass.encoder.export import save_straight

        doing = "quantised to int8" if precision == "int8" else "exported to OpenVINO"
        warnings.warn(f"{self.name} is {doing}, once, and cached in {place.parent}.", stacklevel=4)
        cache_folder("exported")
        with locked(place.with_suffix(".lock")):
            with contextlib.suppress(ModelError):  # another process may have made it meanwhile
                if (found := read_exported(place)) is not None:
                    return found
            return save_straight(self._load(), place, precision=precision)

    def fastest(self, device: str) -> str:
        """Return what is faster in fp32 on this machine, torch or openvino, as measured now or earlier."""
        from twinpass.encoder.runtime import choose_device

        rates = self.rates()
        if not {TORCH, FP32} <= rates.keys():
            if choose_device(device).type != "cpu":
                return TORCH
            try:
                rates = self.measure("fp32")
            except ModelError:  # it cannot be exported
                return TORCH
        return max((TORCH, FP32), key=lambda way: rates[way])

    def rates(self) -> dict[str, float]:
        """Return the sentences per second that were measured on this machine, by runtime and precision."""
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, KeyError):  # none, or a damaged file
            kept = json.loads(self._measured_in().read_text(encoding="utf-8"))["rates"]
            return {str(way): float(rate) for way, rate in kept.items() if float(rate) > 0}
        return {}

    def measure(self, *precisions: str) -> dict[str, float]:
        """Measure torch, and openvino in these precisions, for a second each, and store the rates."""
        from twinpass.encoder.encoder import Encoder
        from twinpass.encoder.export import measure_rates

        made = {f"openvino {one}": Encoder.load(self.export(one).folder) for one in precisions}
        rates = measure_rates({TORCH: self._load(), **made}, _TEXTS)
        with contextlib.suppress(UserError):  # without a cache it is measured every time
            cache_folder("runtimes")
            write_json(self._measured_in(), {"model": self.name, "machine": _machine(), "rates": rates})
        return rates

    def _measured_in(self) -> Path:
        return cache_home() / "runtimes" / f"{_digest((self.key, _machine()))[:32]}.json"

    def _load(self) -> Any:
        from twinpass.encoder.encoder import Encoder

        loading: dict[str, Any] = {"pooler": self.pooler, "device": "cpu", **self.trusted}
        return Encoder.load(self.name, **loading)


def _machine() -> dict[str, Any]:
    """Return what the rates depend on beside the model."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "processor": processor.processor_name(),
        "announced": processor.announced(),
        "limit": os.environ.get(processor.LIMIT),
        "threads": [usable, os.environ.get("OMP_NUM_THREADS")],
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {library: installed(library) for library in ("torch", "openvino")},
    }


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
