"""The verb `doctor`: what this machine offers, and what is missing."""

from __future__ import annotations

from typing import Any

from twinpass.cli import checkup
from twinpass.cli.console import Console, verb
from twinpass.provenance import provenance


@verb
def doctor(console: Console) -> None:
    """Look at this machine: versions, processor, threads, memory, devices, caches, optional parts, the built-in model.

    Nothing missing is an error here: what is not there is named, with the command that installs it.
    """
    facts = {
        "processor": checkup.processor(),
        "threads": checkup.threads(),
        "memory": checkup.memory(),
        "devices": checkup.devices(),
        "caches": checkup.caches(),
        "extras": checkup.extras(),
        "model": checkup.builtin_model(),
    }
    console.result(provenance() | {"libraries": checkup.libraries()} | facts, human=_page(facts))


def _page(facts: dict[str, Any]) -> str:
    sections = {
        "versions": [f"{name} {version or 'MISSING'}" for name, version in checkup.libraries().items()],
        "processor": _processor(facts["processor"]),
        "threads": [f"{name} {count}" for name, count in facts["threads"].items()],
        "memory": [f"{name} {_size(size)}" for name, size in facts["memory"].items()],
        "devices": facts["devices"],
        "caches": [f"{c['path']} ({c['what']}, {_size(c['free'])} free on its disk)" for c in facts["caches"]],
        "extras": [_extra(name, extra) for name, extra in facts["extras"].items()],
        "model": [facts["model"]["verdict"]],
    }
    return "\n".join(f"{name:<10}{line}" for title, lines in sections.items() for name, line in _label(title, lines))


def _label(title: str, lines: list[str]) -> list[tuple[str, str]]:
    return [(title if row == 0 else "", line) for row, line in enumerate(lines)]


def _processor(found: dict[str, Any]) -> list[str]:
    limit = found["limit"]
    return [
        found["name"],
        f"announced: {', '.join(found['announced']) or 'nothing for bf16 or int8'}",
        *(f"executed: {probe['verdict']}" for probe in found["executed"].values()),
        f"limit: {limit['variable']}={limit['value']}, set by {limit['set_by']}" if limit["value"] else "limit: none",
    ]


def _extra(name: str, extra: dict[str, Any]) -> str:
    missing = [package for package, version in extra["packages"].items() if version is None]
    state = f"missing {', '.join(missing)}: pip install 'twinpass[{name}]'" if missing else "installed"
    return f"[{name}] {extra['enables']}: {state}"


def _size(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 2**30:.1f} GiB"
