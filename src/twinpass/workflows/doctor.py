"""What this machine offers and what is missing; every question has an answer even if the part is not there."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinpass import __version__
from twinpass import processor as cpu
from twinpass.display import Displayed, Grid
from twinpass.errors import UserError
from twinpass.files import cache_home, with_home
from twinpass.provenance import installed

ENABLES = {
    "demo": "the built-in model minilm, offline",
    "openvino": "faster encoding on a CPU (quantize, --precision int8, --runtime openvino)",
    "hub": "data sets of the Hugging Face hub (hf:owner/name)",
    "augment": "synonyms of WordNet as positives (--positive synonym)",
    "serve": "the HTTP service (twinpass serve)",
    "lora": "training low-rank adapters of a frozen encoder (--lora)",
    "onnx": "export to ONNX, for other software",
    "docs": "building the documentation as a site",
    "tensorboard": "the training log in TensorBoard (--tensorboard)",
    "milvus": "an index on Milvus, for more than one machine",
    "ray": "encoding on many machines with Ray",
    "test": "this project's own tests",
    "bench": "this project's own benchmarks",
}


@dataclass(frozen=True, repr=False)
class Machine(Displayed):
    """Versions, processor, threads, memory, devices, caches, optional parts and the built-in model of this machine."""

    libraries: dict[str, str | None]
    processor: dict[str, Any]
    threads: dict[str, int | None]
    memory: dict[str, int | None]
    devices: list[str]
    caches: list[dict[str, Any]]
    extras: dict[str, dict[str, Any]]
    model: dict[str, Any]
    # Sentences/s of the built-in model; None: not measured on this machine; 0: it does not run here.
    runtimes: dict[str, float | None]

    def grids(self) -> list[Grid]:
        """Return one table, a few lines for each part."""
        parts = {
            "versions": [f"{name} {version or 'MISSING'}" for name, version in self.libraries.items()],
            "processor": self._processor(),
            "threads": [f"{name} {count}" for name, count in self.threads.items()],
            "memory": [f"{name} {_size(size)}" for name, size in self.memory.items()],
            "devices": self.devices,
            "caches": [f"{c['path']} ({c['what']}, {_size(c['free'])} free on its disk)" for c in self.caches],
            "extras": [_extra(name, extra) for name, extra in self.extras.items()],
            "model": [self.model["verdict"]],
            "runtimes": [_rate(way, rate) for way, rate in self.runtimes.items()],
        }
        rows = [("" if row else part, line) for part, lines in parts.items() for row, line in enumerate(lines)]
        return [Grid("", ("part", "found"), rows, words=("found",))]

    def _processor(self) -> list[str]:
        found, limit = self.processor, self.processor["limit"]
        set_to = f"{limit['variable']}={limit['value']}, set by {limit['set_by']}" if limit["value"] else "none"
        return [
            found["name"],
            f"announced: {', '.join(found['announced']) or 'nothing for bf16 or int8'}",
            *(f"executed: {probe['verdict']}" for probe in found["executed"].values()),
            f"limit: {set_to}",
        ]


def doctor(*, measure: bool = False) -> Machine:
    """Look at this machine: what is installed, what the processor executes, which devices and caches there are.

    With `measure`, the runtimes are measured with the built-in model, and the rates are stored for later.
    """
    from huggingface_hub import constants

    # First: a limit counts only if it is set before a library computes anything.
    verdicts = [cpu.prepare(probe) for probe in (cpu.BF16, cpu.INT8)]
    limit, set_by = cpu.active_limit()
    versions = {name: installed(name) for name, extra in _requirements() if extra is None}
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    torch = _torch()
    places = {"twinpass": cache_home(), "models of the hub": with_home(constants.HF_HUB_CACHE)}
    return Machine(
        libraries={"twinpass": __version__, "python": platform.python_version(), **versions},
        processor={
            "name": cpu.processor_name(),
            "announced": cpu.announced(),
            "executed": {verdict.probe.name: verdict.to_dict() for verdict in verdicts},
            "limit": {"variable": cpu.LIMIT, "value": limit, "set_by": set_by},
        },
        threads={"cores": os.cpu_count(), "usable": usable, "torch": torch.get_num_threads() if torch else None},
        memory=_memory(),
        devices=devices(),
        caches=[{"what": what, "path": str(path), "free": _free(path)} for what, path in places.items()],
        extras=extras(),
        model=(model := _builtin_model()),
        runtimes=_runtimes(model["folder"], measure=measure),
    )


def devices() -> list[str]:
    """Return the devices that a model can run on, as --device takes them, with their names."""
    torch = _torch()
    found = [f"cpu ({platform.processor() or platform.machine()})"]
    if torch and torch.cuda.is_available():
        found += [f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())]
    if torch and torch.backends.mps.is_available():
        found.append("mps (Apple)")
    return found


def extras() -> dict[str, dict[str, Any]]:
    """Return, for each extra, what it enables and its packages' versions (None: not installed)."""
    found: dict[str, dict[str, Any]] = {}
    for package, extra in _requirements():
        if extra is not None:
            entry = found.setdefault(extra, {"enables": ENABLES.get(extra, extra), "packages": {}})
            entry["packages"][package] = installed(package)
    return found


def _memory() -> dict[str, int | None]:
    """Return the bytes of memory in this machine and those still free to use."""
    try:
        import psutil  # type: ignore[import-untyped]
    except ImportError:
        return {"total": None, "available": None}
    found = psutil.virtual_memory()
    return {"total": found.total, "available": found.available}


def _builtin_model() -> dict[str, Any]:
    """Return whether the built-in model is installed and is the published one."""
    try:
        from twinpass.encoder.load import find_minilm

        folder = find_minilm()
    except (UserError, ImportError, OSError) as error:  # torch, or a library that it needs, may be missing
        return {"name": "minilm", "genuine": False, "folder": None, "verdict": str(error)}
    verdict = f"minilm is installed and genuine ({folder})"
    return {"name": "minilm", "genuine": True, "folder": str(folder), "verdict": verdict}


def _runtimes(folder: str | None, *, measure: bool) -> dict[str, float | None]:
    """Return the built-in model's sentences per second by runtime and precision, measured now or earlier."""
    from twinpass.encoder.load import BUILTIN
    from twinpass.encoder.runtime.choose import FP32, INT8, TORCH, Source

    known = (TORCH, FP32, INT8)
    if folder is None:
        return dict.fromkeys(known)
    source = Source(BUILTIN, Path(folder))
    rates = source.rates()
    if measure:
        rates |= source.measure(*(("fp32", "int8") if installed("openvino") else ()))
    return {way: rates.get(way) for way in known}


def _rate(way: str, rate: float | None) -> str:
    if rate == 0:
        return f"{way}: does not run here"
    shown = "not measured here (twinpass doctor --measure)" if rate is None else f"{rate:,.0f} sentences/s"
    return f"{way}: {shown}"


def _torch() -> Any:
    try:
        import torch
    except (ImportError, OSError):  # OSError: a library that torch was built against is missing
        return None
    return torch


def _free(path: Path) -> int | None:
    existing = next((place for place in (path, *path.parents) if place.exists()), None)
    return shutil.disk_usage(existing).free if existing else None


def _requirements() -> list[tuple[str, str | None]]:
    """Return (package, extra or None) for everything that the installed twinpass requires on this machine."""
    try:
        from packaging.requirements import Requirement

        required = [Requirement(line) for line in importlib.metadata.requires("twinpass") or []]
        names = importlib.metadata.metadata("twinpass").get_all("Provides-Extra") or []
    except (ImportError, importlib.metadata.PackageNotFoundError):
        return []
    always = [one for one in required if one.marker is None or one.marker.evaluate({"extra": ""})]
    found: list[tuple[str, str | None]] = [(one.name, None) for one in always]
    for extra in names:
        more = (one for one in required if one not in always and one.name != "twinpass")
        found += [(one.name, extra) for one in more if one.marker and one.marker.evaluate({"extra": extra})]
    return found


def _extra(name: str, extra: dict[str, Any]) -> str:
    missing = [package for package, version in extra["packages"].items() if version is None]
    state = f"missing {', '.join(missing)}: pip install 'twinpass[{name}]'" if missing else "installed"
    return f"[{name}] {extra['enables']}: {state}"


def _size(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 2**30:.1f} GiB"
