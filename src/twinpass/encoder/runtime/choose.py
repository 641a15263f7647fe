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
from twinpass.errors import ConfigError, MissingExtra, ModelError, OutputError, UserError
from twinpass.files import cache_folder, cache_home, keep_recent, locked, sha256, write_json
from twinpass.provenance import installed

VERSION = 1  # of how models are exported: another number makes every cached export anew
INT8, FP32 = "openvino int8", "openvino fp32"
TORCH = "torch fp32"
_FILES = (".json", ".safetensors", ".txt", ".model", ".bpe", ".bin", ".py")
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
    competing = runtime == "auto" and precision != "int8"
    if device not in ("auto", "cpu"):
        if competing:
            return None
        raise ConfigError(f"the runtime openvino computes on a CPU, not on {device!r}. Use --device cpu, or torch.")
    if importlib.util.find_spec("openvino") is None:
        if competing:
            return None
        raise MissingExtra("the runtime openvino", "openvino")
    if competing and device == "auto" and _has_gpu():
        return None
    model = Source(name, folder, pooler, trusted)
    if not competing:
        return model.export(precision or "fp32")
    with contextlib.suppress(UserError):  # what is wrong with the model itself, torch says too
        return model.export("fp32") if model.fastest() == FP32 else None
    return None


def exported_here(exported: Exported) -> bool:
    """Return whether an export was made for the cache of this machine; any other is a folder that can be copied."""
    return exported.folder.is_relative_to((cache_home() / "exported").absolute())


class Source:
    """A model that is to be exported: where it lies, and what decides about its vectors."""

    def __init__(self, name: str, folder: Path, pooler: str | None = None, trusted: Mapping[str, bool] | None = None):
        self.name, self.folder, self.pooler, self.trusted = name, folder, pooler, dict(trusted or {})
        found = sorted(path for pattern in ("*", "*/*") for path in folder.glob(pattern) if path.suffix in _FILES)
        files = {path.relative_to(folder): path for path in found if path.is_file()}
        mine = {place: path for place, path in files.items() if place.parent.name not in _NOT_OF_THE_MODEL}
        listed = [(place.as_posix(), sha256(path)) for place, path in mine.items()]
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
        if (found := _cached(place)) is not None:
            return found
        from twinpass.encoder.export import save_straight

        doing = "quantised to int8" if precision == "int8" else "exported to OpenVINO"
        warnings.warn(f"{self.name} is {doing}, once, and cached in {place.parent}.", stacklevel=4)
        cache_folder("exported")
        with locked(place.with_suffix(".lock")):
            if (found := _cached(place)) is not None:  # another process has made it meanwhile
                return found
            made = save_straight(self._load(), place, precision=precision)
            keep_recent(place)
            return made

    def fastest(self) -> str:
        """Return what is faster in fp32 on this machine's CPU, torch or openvino, as measured now or earlier."""
        rates = self.rates()
        if not {TORCH, FP32} <= rates.keys():
            rates = self.measure("fp32")
        return max((TORCH, FP32), key=lambda way: rates[way])

    def rates(self) -> dict[str, float]:
        """Return the sentences per second that were measured on this machine, by runtime and precision.

        0 stands for a runtime that cannot run this model.
        """
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, KeyError):  # none, or a damaged file
            kept = json.loads(self._measured_in().read_text(encoding="utf-8"))["rates"]
            return {str(way): float(rate) for way, rate in kept.items() if float(rate) >= 0}
        return {}

    def measure(self, *precisions: str) -> dict[str, float]:
        """Measure torch, and openvino in these precisions, for a second each, and store the rates."""
        from twinpass.encoder.encoder import Encoder
        from twinpass.encoder.export import measure_rates

        made, lasting = dict[str, Any](), True
        rates = {f"openvino {precision}": 0.0 for precision in precisions}
        for precision in precisions:
            try:
                made[f"openvino {precision}"] = Encoder.load(self.export(precision).folder)
            except UserError as error:
                warnings.warn(str(error), stacklevel=2)
                # A full disk, or a part that is not installed, says nothing about the model.
                lasting = lasting and not isinstance(error, (OutputError, MissingExtra))
        rates |= measure_rates({TORCH: self._load(), **made}, _TEXTS)
        with contextlib.suppress(UserError):  # without a cache it is measured every time
            if lasting:
                cache_folder("runtimes")
                write_json(self._measured_in(), {"model": self.name, "machine": _machine(), "rates": rates})
        return rates

    def _measured_in(self) -> Path:
        return cache_home() / "runtimes" / f"{_digest((self.key, _machine()))[:32]}.json"

    def _load(self) -> Any:
        from twinpass.encoder.encoder import Encoder

        loading: dict[str, Any] = {"pooler": self.pooler, "device": "cpu", **self.trusted}
        return Encoder.load(self.name, **loading)


def _cached(place: Path) -> Exported | None:
    """Return an export from the cache; None if there is none, or if it is damaged and must be made again."""
    try:
        found = read_exported(place)
    except ModelError:
        return None
    if found is not None:
        keep_recent(place)
    return found


def _has_gpu() -> bool:
    """Return whether torch would compute elsewhere than on the CPU; it is imported only if its build could."""
    if (installed("torch") or "").endswith("+cpu"):
        return False
    from twinpass.encoder.runtime import choose_device

    return choose_device("auto").type != "cpu"


def _machine() -> dict[str, Any]:
    """Return what the rates depend on beside the model; our own limit follows from the processor."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    limit, set_by = processor.active_limit()
    return {
        "processor": processor.processor_name(),
        "announced": processor.announced(),
        "limit": limit if set_by == "environment" else None,
        "threads": [usable, os.environ.get("OMP_NUM_THREADS")],
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {library: installed(library) for library in ("torch", "openvino")},
    }


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
