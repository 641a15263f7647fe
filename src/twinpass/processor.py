"""What this processor really executes, found by trying it in a child process.

Some virtual machines announce instructions that they do not execute: torch chooses AMX for a product in bf16, OpenVINO
for one in int8, and the process dies of "Illegal instruction". No code can catch that, so a tiny product is tried in a
child first. A limit on the instructions (oneDNN's environment variable) often helps; it must be set before the library
computes anything. The outcomes are stored in the cache folder, per processor, kernel and version of the library.

Both libraries read the same variable, each its own copy of oneDNN. The limits are tried in the same order for both, so
that one process can compute in bf16 and in int8.
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
_MISSING = "not tried, {} is not installed"
TIMEOUT = 300  # seconds; the child takes two, mostly to import the library
# Without AMX, the first with and the second without bf16: every processor that announces AMX has both.
LIMITS = ("AVX512_CORE_BF16", "AVX512_CORE_VNNI")

# Flags of the processor by which torch and its libraries choose instructions.
RELEVANT = ("amx", "avx512_bf16", "avx512_fp16", "avx512_vnni", "avx_vnni", "bf16", "i8mm")
# Signals that are sent by someone, and so say nothing about the processor.
SENT_FROM_OUTSIDE = {"SIGHUP", "SIGINT", "SIGKILL", "SIGTERM"}


@dataclass(frozen=True)
class Probe:
    """A piece of code that dies where the processor does not execute what it announces."""

    name: str
    library: str  # whose version the outcome depends on; it must be limited before it computes anything
    code: str
    limits: tuple[str, ...] = LIMITS  # the limits to try, in order, where the code dies without one


# Shapes of a transformer, forward and backward: the library chooses instructions by shape.
BF16 = Probe(
    name="bf16",
    library="torch",
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

# Products of quantised states and weights, with the shapes of a transformer, as in a model that `quantize` writes.
INT8 = Probe(
    name="int8",
    library="openvino",
    code="""
import sys
sys.modules["openvino_telemetry"] = None
import numpy, openvino
from openvino import opset13 as ops
for rows, width in ((1, 32), (16, 64), (64, 384), (512, 128)):
    given = ops.parameter([-1, width], numpy.float32)
    states = given
    for _ in range(2):
        whole = numpy.arange(width * width, dtype=numpy.int64).reshape(width, width) % 255 - 127
        weights = ops.convert(ops.constant(whole.astype(numpy.int8)), "f32")
        weights = ops.multiply(weights, ops.constant(numpy.float32(0.01)))
        low, high = (ops.constant(numpy.float32(bound)) for bound in (-1, 1))
        states = ops.matmul(ops.fake_quantize(states, low, high, low, high, 256), weights, False, True)
    model = openvino.Model([states], [given])
    compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    compiled([numpy.ones((rows, width), numpy.float32)])
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

_LOADED = Path("/proc/self/maps")  # the files that this process has loaded, on Linux
_limit_of_ours: str | None = None  # what `prepare` set in this process
_not_limited: frozenset[str] = frozenset()  # libraries that had chosen their instructions before it did


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
        if {*self.tried.values()} == {_MISSING.format(self.probe.library)}:
            return f"{self.probe.name} was not tried: {self.probe.library} is not installed"
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
    for limit in (given,) if given is not None else (None, *probe.limits):
        tried[limit] = _outcome(probe, limit)
        if tried[limit] == WORKS:
            break
    return Verdict(probe, tried)


def prepare(probe: Probe) -> Verdict:
    """Examine the probe and, where it needs a limit, set that for this process if it still takes effect."""
    global _limit_of_ours, _not_limited
    verdict = examine(probe)
    if verdict.limit is not None and active_limit()[0] is None:
        os.environ[LIMIT] = verdict.limit
        too_late = frozenset(library for library in ("torch", "openvino") if not _takes_effect(library))
        if probe.library in too_late:
            del os.environ[LIMIT]
        else:
            _limit_of_ours, _not_limited = verdict.limit, too_late
    return verdict


def check(probe: Probe) -> None:
    """Raise ConfigError unless this process can run what the probe stands for."""
    verdict = prepare(probe)
    if not verdict.works:
        raise ConfigError(
            f"{probe.name} cannot be used on this processor ({processor_name()}). A small product was tried in "
            f"a child process: {verdict}. Use fp32, the default, or a GPU."
        )
    if verdict.limit is None:
        return
    active = active_limit()[0]  # perhaps not this verdict's: it may have been set for the other library
    if active is None or probe.library in _not_limited or _outcome(probe, active) != WORKS:
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


def _takes_effect(name: str) -> bool:
    """Tell whether a limit that was just set has an effect: oneDNN reads it once, when it first computes.

    Our limits exclude fp16, so with the limit torch must report that it has no fp16. OpenVINO's oneDNN lies in the
    plugin for processors, which is loaded when the first model is compiled.
    """
    library: Any = sys.modules.get(name)
    if library is None:
        return True
    if name == "openvino":
        with contextlib.suppress(OSError):
            return "openvino_intel_cpu_plugin" not in _LOADED.read_text(encoding="utf-8")
        return False
    with contextlib.suppress(AttributeError, RuntimeError):
        return not library.ops.mkldnn._is_mkldnn_fp16_supported()
    return False


@functools.cache
def _outcome(probe: Probe, limit: str | None) -> str:
    """Return how the probe ends under a limit, from the cache folder if it is stored there."""
    version = installed(probe.library)
    if version is None:
        return _MISSING.format(probe.library)
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
