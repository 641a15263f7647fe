"""The questions `doctor` asks; each answers even where the part it asks about is missing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
from pathlib import Path
from typing import Any

from twinpass import __version__
from twinpass import processor as cpu
from twinpass.errors import UserError
from twinpass.files import cache_home
from twinpass.provenance import installed

ENABLES = {
    "demo": "the built-in model minilm, offline",
    "onnx": "faster encoding on a CPU (--runtime)",
    "hub": "data sets of the Hugging Face hub (hf:owner/name)",
    "augment": "synonyms of WordNet as positives (--positive synonym)",
    "serve": "the HTTP service (twinpass serve)",
    "tensorboard": "the training log in TensorBoard (--tensorboard)",
    "milvus": "an index on Milvus, beyond one machine (--milvus)",
    "ray": "encoding on many machines (--engine ray)",
    "test": "this project's own tests",
    "bench": "this project's own benchmarks",
}


def libraries() -> dict[str, str | None]:
    """Return the version of Python and of everything that twinpass always needs."""
    needed = [name for name, extra in _requirements() if extra is None]
    return {"twinpass": __version__, "python": platform.python_version()} | {n: installed(n) for n in needed}


def threads() -> dict[str, int | None]:
    """Return how many cores there are, how many this process may use, and how many torch uses."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    torch = _torch()
    return {"cores": os.cpu_count(), "usable": usable, "torch": torch.get_num_threads() if torch else None}


def processor() -> dict[str, Any]:
    """Return what the processor announces, what of it runs, and the limit this process runs with.

    To be asked first: a limit counts only if it is set before torch computes anything.
    """
    verdict = cpu.prepare(cpu.BF16)
    limit, set_by = cpu.active_limit()
    return {
        "name": cpu.processor_name(),
        "announced": cpu.announced(),
        "executed": {verdict.probe.name: verdict.to_dict() | {"verdict": str(verdict)}},
        "limit": {"variable": cpu.LIMIT, "value": limit, "set_by": set_by},
    }


def memory() -> dict[str, int | None]:
    """Return the bytes of memory in this machine and those still free to use."""
    try:
        import psutil  # type: ignore[import-untyped]
    except ImportError:
        return {"total": None, "available": None}
    found = psutil.virtual_memory()
    return {"total": found.total, "available": found.available}


def devices() -> list[str]:
    """Return what a model can run on, as --device takes it, with each device's name."""
    torch = _torch()
    found = [f"cpu ({platform.processor() or platform.machine()})"]
    if torch is None:
        return found
    if torch.cuda.is_available():
        found += [f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        found.append("mps (Apple)")
    return found


def caches() -> list[dict[str, Any]]:
    """Return where things are kept between runs, and the room left on that disk."""
    from twinpass.encoder.builtin import hub_cache

    places = {"twinpass": cache_home(), "models of the hub": hub_cache()}
    return [
        {"what": what, "path": str(path.expanduser()), "free": _free(path.expanduser())}
        for what, path in places.items()
    ]


def extras() -> dict[str, dict[str, Any]]:
    """Return, for each extra, what it enables and its packages' versions (None: not installed)."""
    found: dict[str, dict[str, Any]] = {}
    for package, extra in _requirements():
        if extra is not None:
            entry = found.setdefault(extra, {"enables": ENABLES.get(extra, extra), "packages": {}})
            entry["packages"][package] = installed(package)
    return found


def builtin_model() -> dict[str, Any]:
    """Return whether the built-in model is here and is the published one."""
    from twinpass.encoder.builtin import NAME, find_minilm

    try:
        folder = find_minilm()
    except UserError as error:
        return {"name": NAME, "genuine": False, "folder": None, "verdict": str(error)}
    verdict = f"{NAME} is here and genuine ({folder})"
    return {"name": NAME, "genuine": True, "folder": str(folder), "verdict": verdict}


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
    """Return (package, extra or None) for all that the installed twinpass asks for."""
    try:
        from packaging.requirements import Requirement

        lines = importlib.metadata.requires("twinpass") or []
        names = importlib.metadata.metadata("twinpass").get_all("Provides-Extra") or []
    except (ImportError, importlib.metadata.PackageNotFoundError):
        return []
    wanted = [Requirement(line) for line in lines]
    return [
        (one.name, extra)
        for extra in (None, *names)
        for one in wanted
        if one.name != "twinpass" and _applies(one, extra)
    ]


def _applies(requirement: Any, extra: str | None) -> bool:
    """Tell whether a requirement belongs to this extra (None: to everyone) on this machine."""
    marker = requirement.marker
    if extra is None:
        return marker is None or marker.evaluate({"extra": ""})
    return marker is not None and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})
