"""Makes a processor that announces more than it executes, for every interpreter that finds this file on its path.

PRETENDED_PROCESSOR says which: with `amx`, a process that enters bf16 on the CPU with torch, or that compiles a model
in int8 with openvino, dies unless a limit was set when the library was loaded; with `none`, it dies in any case.
"""

import importlib.util
import os
import signal
import sys

LIMITS = ("AVX512_CORE_BF16", "AVX512_CORE_VNNI")


class LyingProcessor:
    def __init__(self, kind):
        self.kind = kind
        self.left = {"torch": torch_dies, "openvino": openvino_dies}

    def find_spec(self, name, path=None, target=None):
        if name not in self.left:
            return None
        make_it_die = self.left.pop(name)
        spec = importlib.util.find_spec(name)
        if spec is None:
            return None
        execute = spec.loader.exec_module
        saved = os.environ.get("ONEDNN_MAX_CPU_ISA") in LIMITS and self.kind == "amx"

        def exec_module(module):
            execute(module)
            if not saved:
                make_it_die(module)

        spec.loader.exec_module = exec_module
        return spec


def torch_dies(torch):
    enter = torch.autocast.__enter__

    def __enter__(self):  # noqa: N807
        if (self.device, self.fast_dtype) == ("cpu", torch.bfloat16) and self._enabled:
            os.kill(os.getpid(), signal.SIGILL)
        return enter(self)

    torch.autocast.__enter__ = __enter__


def openvino_dies(openvino):
    compile_model = openvino.Core.compile_model

    def dying(self, model, *arguments, **options):
        graph = model if isinstance(model, openvino.Model) else self.read_model(model)
        if any(node.get_type_name() == "FakeQuantize" for node in graph.get_ops()):
            os.kill(os.getpid(), signal.SIGILL)
        return compile_model(self, model, *arguments, **options)

    openvino.Core.compile_model = dying


if kind := os.environ.get("PRETENDED_PROCESSOR"):
    sys.meta_path.insert(0, LyingProcessor(kind))
