"""OpenVINO: runs an exported model, head and layers included, without torch."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinpass import processor
from twinpass.encoder.folder import Exported
from twinpass.encoder.runtime import Forward
from twinpass.errors import MissingExtra, UserError
from twinpass.files import cache_folder, cache_home, keep_recent, writing
from twinpass.provenance import installed


def load_openvino() -> Any:
    """Import openvino, with the limit that this processor needs, and without its telemetry."""
    if "openvino" not in sys.modules and importlib.util.find_spec("openvino") is None:
        raise MissingExtra("the openvino runtime", "openvino")
    processor.prepare(processor.INT8)
    _stop_telemetry()
    import openvino

    return openvino


def _stop_telemetry() -> None:
    """Keep openvino and nncf from sending messages, which they do when they are imported and used.

    Without the package that sends, both do nothing. If the caller has loaded it before us, it is made to send nothing.
    """
    modules: dict[str, Any] = sys.modules
    if modules.setdefault("openvino_telemetry", None) is not None:
        sender: Any = importlib.import_module("openvino_telemetry.utils.sender")
        sender.TelemetrySender.send = lambda *_: None


@functools.cache
def core() -> Any:
    """Return OpenVINO's entry point, one for the whole process, which is never destroyed.

    Each one gives the thread a stack for signals, and puts the one before it back when it is destroyed. If several are
    destroyed in another order than the reverse, a freed stack comes back, and the next Ctrl-C is a segmentation fault.
    """
    return load_openvino().Core()


class OpenVinoRuntime:
    """Runs a graph that maps token ids to vectors; it is compiled when it is first used."""

    def __init__(self, exported: Exported) -> None:
        if importlib.util.find_spec("openvino") is None:
            raise MissingExtra("the openvino runtime", "openvino")
        if exported.precision == "int8":
            processor.check(processor.INT8)
        self.exported = exported
        self._compiled: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_compiled": None}  # another process compiles it again

    @contextlib.contextmanager
    def session(self) -> Iterator[Forward]:
        """Yield the forward pass, with a request of its own, so that threads may share the model."""
        if self._compiled is None:
            self._compiled = compiled(self.exported)
        request = self._compiled.create_infer_request()

        def forward(inputs: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float32]:
            vectors: NDArray[np.float32] = request.infer(dict(inputs), share_inputs=True)[0]
            return vectors

        yield forward


def compiled(exported: Exported) -> Any:
    """Return the compiled graph; one in int8 from the cache folder, if it was compiled on this machine before.

    Compiling int8 takes three times as long as reading what was compiled; with fp32 nothing would be gained.
    """
    openvino, options = load_openvino(), _options()
    if exported.precision != "int8":
        return core().compile_model(os.fspath(exported.path), "CPU", options)
    limit = processor.active_limit()[0]
    machine = (processor.processor_name(), processor.announced(), limit, installed("openvino"), options)
    key = hashlib.sha256(repr((exported.fingerprint, machine)).encode()).hexdigest()
    place = cache_home() / "compiled" / f"{key[:32]}.blob"
    # None there, or of another build; earlier versions of OpenVINO raise TypeError, as they take a stream only.
    with contextlib.suppress(OSError, RuntimeError, TypeError):
        kept = np.fromfile(place, dtype=np.uint8)
        digest, content = kept[:32].tobytes(), kept[32:]
        if hashlib.sha256(content.data).digest() == digest:
            graph = core().import_model(openvino.Tensor(content), "CPU", options)
            keep_recent(place)
            return graph
    graph = core().compile_model(os.fspath(exported.path), "CPU", options)
    with contextlib.suppress(OSError, UserError, RuntimeError):  # without a cache, every process compiles
        made = graph.export_model().getvalue()
        cache_folder("compiled")
        with writing(place) as aside:
            aside.write_bytes(hashlib.sha256(made).digest() + made)
        keep_recent(place)
    return graph


def _options() -> dict[str, Any]:
    """Return how to compile: one batch at a time on all threads, and fp32 where the graph has no int8.

    Without the precision, OpenVINO computes in bf16 where the processor announces that.
    """
    options: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    torch: Any = sys.modules.get("torch")
    given = os.environ.get("OMP_NUM_THREADS", "")
    if torch is not None and hasattr(torch, "get_num_threads"):
        options["INFERENCE_NUM_THREADS"] = torch.get_num_threads()
    elif given.isdecimal() and int(given) > 0:
        options["INFERENCE_NUM_THREADS"] = int(given)
    return options
