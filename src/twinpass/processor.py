"""What this processor really executes, found by trying it in a child process.

Some virtual machines announce instructions that they do not execute: torch chooses AMX for a product in bf16,
and the process dies of "Illegal instruction". No code can catch that, so a tiny product is tried in a child
first. A limit on the instructions (oneDNN's environment variable) often helps; it must be set before torch computes
anything. The outcomes are stored in the cache folder, per processor, kernel and version of the library.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinpass.errors import ConfigError, UserError
from twinpass.files import cache_folder, cache_home, write_json
from twinpass.provenance import installed

LIMIT = "ONEDNN_MAX_CPU_ISA"  # oneDNN's manual: "CPU Dispatcher Control"
OLD_LIMIT = "DNNL_MAX_CPU_ISA"  # its former name, which still works
WORKS = "works"
TIMEOUT = 300  # seconds; the child takes two, mostly to import torch

# Flags of the processor by which torch and its libraries choose instructions.
RELEVANT = ("amx", "avx512_bf16", "avx512_fp16", "avx512_vnni", "avx_vnni", "bf16", "i8mm")
# Signals that are sent by someone, and so say nothing about the processor.
SENT_FROM_OUTSIDE = {"SIGHUP", "SIGINT", "SIGKILL", "SIGTERM"}


@dataclass(frozen=True)
class Probe:
    """A piece of code that dies where the processor does not execute what it announces."""

    name: str
    library: str  # whose version the outcome depends on; it must be limited before it computes anything
    limit: str  # the limit to try where the code dies without one
    code: str


# Shapes of a transformer, forward and backward: the library chooses instructions by shape.
BF16 = Probe(
    name="bf16",
    library="torch",
    limit="AVX512_CORE_BF16",
    code="""
import torch
for rows, width in ((1, 32), (16, 64), (64, 384), (512, 128)):
    states = torch.randn(2, rows, width)
    linear = torch.nn.Linear(width, width)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        heads = linear(states).unflatten(-1, (4, -1)).transpose(1, 2)
        mixed = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
        product = mixed @ mixed.transpose(-1, -2)
    product.float().sum().backward()
""",
)

# Runs before a probe: modules are found as here, and a crash leaves no core file.
_PREAMBLE = """
import contextlib, sys
sys.path[:] = {path!r}
with contextlib.suppress(ImportError, ValueError, OSError):
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
"""

_limit_of_ours: str | None = None  # what `prepare` set in this process


@dataclass(frozen=True)
class Verdict:
    """How a probe ended without a limit and, where that failed, with one; None stands for no limit."""

    probe: Probe
    tried: dict[str | None, str]

    @property
    def works(self) -> bool:
        """Whether the code runs here, with or without a limit."""
        return WORKS in self.tried.values()

    @property
    def limit(self) -> str | None:
        """The limit with which the code runs, or None if it needs none."""
        return next((limit for limit, outcome in self.tried.items() if outcome == WORKS), None)

    def __str__(self) -> str:
        tries = "; ".join(f"{_spoken(limit)}: {outcome}" for limit, outcome in self.tried.items())
        verdict = "works" if self.limit is None else f"works with {LIMIT}={self.limit}"
        return f"{self.probe.name} {verdict if self.works else 'does not work'} ({tries})"

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain data."""
        tried = {_spoken(limit): outcome for limit, outcome in self.tried.items()}
        return {"works": self.works, "limit": self.limit, "tried": tried, "verdict": str(self)}


def examine(probe: Probe) -> Verdict:
    """Return whether the probe runs on this machine, from the cache or by trying it now.

    If the user has set a limit, only that one is tried.
    """
    given = _limit_of_the_user()
    tried: dict[str | None, str] = {}
    for limit in (given,) if given is not None else (None, probe.limit):
        tried[limit] = _outcome(probe, limit)
        if tried[limit] == WORKS:
            break
    return Verdict(probe, tried)


def prepare(probe: Probe) -> Verdict:
    """Examine the probe and, where it needs a limit, set that for this process if it still takes effect."""
    global _limit_of_ours
    verdict = examine(probe)
    if verdict.limit is not None and active_limit()[0] is None:
        os.environ[LIMIT] = verdict.limit
        if _takes_effect(probe):
            _limit_of_ours = verdict.limit
        else:
            del os.environ[LIMIT]
    return verdict


def check(probe: Probe) -> None:
    """Raise ConfigError unless this process can run what the probe stands for."""
    verdict = prepare(probe)
    if not verdict.works:
        raise ConfigError(
            f"{probe.name} cannot be used on this processor ({processor_name()}). A small product was tried in "
            f"a child process: {verdict}. Use fp32, the default, or a GPU."
        )
    if verdict.limit is not None and active_limit()[0] != verdict.limit:
        raise ConfigError(
            f"{verdict} on this processor ({processor_name()}), and {probe.library} has already chosen its "
            f"instructions without that limit. Set {LIMIT}={verdict.limit} before Python starts, or use fp32."
        )


def active_limit() -> tuple[str | None, str | None]:
    """Return the limit of this process, and who set it: `twinpass` or `environment`."""
    if (given := _limit_of_the_user()) is not None:
        return given, "environment"
    return _limit_of_ours, "twinpass" if _limit_of_ours is not None else None


def processor_name() -> str:
    """Return the name of the processor's model."""
    return _cpuinfo().get("model name") or platform.processor() or platform.machine()


def announced() -> list[str]:
    """Return the flags for bf16 and int8 that the processor announces; empty if the system does not say."""
    flags = _cpuinfo().get("flags") or _cpuinfo().get("Features") or ""
    return sorted(flag for flag in flags.split() if flag.startswith(RELEVANT))


def _limit_of_the_user() -> str | None:
    """Return the limit that this process was started with, or None."""
    if _limit_of_ours is not None and os.environ.get(LIMIT) == _limit_of_ours:
        return None
    return os.environ.get(LIMIT) or os.environ.get(OLD_LIMIT)


def _takes_effect(probe: Probe) -> bool:
    """Tell whether a limit that was just set has an effect: oneDNN reads it once, when it first computes.

    Our limits exclude fp16, so with the limit torch must report that it has no fp16.
    """
    library: Any = sys.modules.get(probe.library)
    if library is None:
        return True
    with contextlib.suppress(AttributeError, RuntimeError):
        return not library.ops.mkldnn._is_mkldnn_fp16_supported()
    return False


@functools.cache
def _outcome(probe: Probe, limit: str | None) -> str:
    """Return how the probe ends under a limit, from the cache folder if it is stored there."""
    version = installed(probe.library)
    if version is None:
        return f"not tried, {probe.library} is not installed"
    machine = {
        "processor": processor_name(),
        "announced": announced(),
        "kernel": f"{platform.system()} {platform.release()}",
        probe.library: version,
    }
    digest = hashlib.sha256(json.dumps(machine, sort_keys=True).encode()).hexdigest()[:16]
    place = cache_home() / "processor" / f"{probe.name}-{digest}.json"
    outcomes: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, KeyError):  # none, or a damaged file
        kept = json.loads(place.read_text(encoding="utf-8"))["outcomes"]
        outcomes = {str(tried): str(outcome) for tried, outcome in kept.items()}
    key = limit or ""
    if key in outcomes:
        return outcomes[key]
    outcome, certain = _try(probe, limit)
    if certain:
        with contextlib.suppress(UserError):  # without a cache the probe takes two seconds every time
            cache_folder("processor")
            write_json(place, {"machine": machine, "outcomes": outcomes | {key: outcome}})
    return outcome


def _try(probe: Probe, limit: str | None) -> tuple[str, bool]:
    """Run the probe in a child process; return how it ended, and whether that says something about the processor."""
    environment = {name: value for name, value in os.environ.items() if name not in (LIMIT, OLD_LIMIT)}
    environment |= {} if limit is None else {LIMIT: limit}
    command = [sys.executable, "-c", _PREAMBLE.format(path=sys.path) + probe.code]
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return f"not tried, the child took more than {TIMEOUT} s", False
    except (OSError, ValueError) as error:
        return f"not tried, {error}", False
    if done.returncode == 0:
        return WORKS, True
    if (died := _death(done.returncode)) is not None:
        return f"died of {died}", died not in SENT_FROM_OUTSIDE
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return f"failed with {said[-1] if said else f'exit code {done.returncode}'}", False


def _death(code: int) -> str | None:
    """Return what killed a process with this exit code, or None if it was not killed."""
    if code >= 0xC0000000:  # Windows: 0xC000001D is an illegal instruction
        return f"exception 0x{code:X}"
    if code >= 0:
        return None
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


@functools.cache
def _cpuinfo() -> dict[str, str]:
    """Return the facts about the first processor in /proc/cpuinfo, where there is one."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        for line in lines:
            if not line.strip():
                break
            name, _, value = line.partition(":")
            found[name.strip()] = value.strip()
    return found


def _spoken(limit: str | None) -> str:
    return "no limit" if limit is None else f"limit {limit}"
